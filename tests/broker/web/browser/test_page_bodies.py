"""Bodies in a browser: JSON that folds with every number as it is written, texts in any charset and with NULs."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from selenium.webdriver.common.keys import Keys

from broker_harness import service_of
from storage.store.message_store import MessageStore
from store_writer import StoreWriter
from web_browser import Browser
from web_questions import serving_page


def test_json_is_a_tree_that_folds_and_keeps_every_number_as_it_is_written(lone: Browser, tmp_path: Path) -> None:
    body = '{"id":12345678901234567890,"price":1.10,"lines":[{"a":1},{"b":[]}],"text":"{","none":{}}'
    writer = StoreWriter(tmp_path / "store")
    writer.append("orders", body.encode())
    writer.close()
    with serving_page([service_of(MessageStore.open(tmp_path / "store"))]) as lone.server:
        lone.open("message", offset=0)
        tree = lone.see(".json-tree", '"text": "{"')
        whole = tree.text
        assert json.loads(whole) == json.loads(body)
        assert '"price": 1.10' in whole
        assert "12345678901234567890" in whole
        assert len(lone.all(".json-tree details[open]")) == 4
        lone.click(".json-tree summary", '"lines": [')
        lone.until(lambda: '"lines": [ 2 elements ],' in lone.see(".json-tree").text)
        assert '"a"' not in lone.see(".json-tree").text
        assert '"price": 1.10' in lone.see(".json-tree").text
        # And by keyboard: the line that was clicked has the focus.
        lone.press(Keys.ENTER)
        lone.until(lambda: json.loads(lone.see(".json-tree").text) == json.loads(body))
        lone.click("button", "Fold all")
        lone.until(lambda: lone.all(".json-tree details[open]") == lone.all(".json-tree > details"))
        lone.keep("json-folded")
        lone.click("button", "Unfold all")
        lone.until(lambda: json.loads(lone.see(".json-tree").text) == json.loads(body))
        assert lone.complaints() == []


def test_deep_json_is_folded_and_json_of_very_many_lists_stays_a_text(lone: Browser, tmp_path: Path) -> None:
    deep, many = "[" * 12 + "1" + "]" * 12, json.dumps([[1]] * 5001)
    writer = StoreWriter(tmp_path / "store")
    places = [writer.append("orders", body.encode()).physical_offset for body in (deep, many)]
    writer.close()
    with serving_page([service_of(MessageStore.open(tmp_path / "store"))]) as lone.server:
        lone.open("message", offset=places[0])
        lone.see(".json-tree summary", "[ 1 element ]")
        assert len(lone.all(".json-tree details")) == 12
        assert len(lone.all(".json-tree details[open]")) == 6
        lone.open("message", offset=places[1])
        assert json.loads(lone.see(".body-text pre").text) == json.loads(many)


GBK = "订单 4711 已付款"


@pytest.fixture
def in_gbk(lone: Browser, tmp_path: Path) -> Iterator[Browser]:
    """A store with a body in GBK, JSON in GBK, and a text in UTF-8 with NULs, in this order."""
    writer = StoreWriter(tmp_path / "store")
    for body in (GBK.encode("gbk"), json.dumps({"状态": "已付款"}, ensure_ascii=False).encode("gbk"), b"a=1\0b=2\0"):
        writer.append("orders", body)
    writer.close()
    with serving_page([service_of(MessageStore.open(tmp_path / "store"))]) as lone.server:
        yield lone
        lone.run("localStorage.removeItem('charset')")


def test_bodies_are_read_in_the_charset_that_was_chosen(in_gbk: Browser) -> None:
    browser = in_gbk
    browser.open("topic", topic="orders", order="oldest")
    browser.see(".messages td.body", "no text")
    browser.open("message", offset=0)
    first = "00000000  b6 a9 b5 a5"
    browser.see("pre.hex", first)
    # By keyboard alone, and the choice keeps the focus.
    browser.run("document.querySelector('.body-panel select').focus()")
    browser.press("gbk")
    browser.see(".body-text pre", GBK)
    browser.see(".body-panel", "text, 16 bytes")
    browser.until(lambda: browser.run("return document.activeElement.matches('.body-panel select')"))
    assert parse_qs(urlsplit(browser.place).query)["charset"] == ["gbk"]
    browser.keep("charset")
    # The bytes stay what they are.
    browser.click(".tabs button", "Hex")
    browser.see("pre.hex", first)
    assert browser.run("return document.activeElement.textContent") == "Hex"
    browser.click(".facts a", "after")
    browser.see(".json-tree", '"状态": "已付款"')
    # Lists and searches follow it, and it is a part of what is sent to others.
    browser.open("topic", topic="orders", order="oldest", charset="gbk")
    browser.see(".messages td.body", GBK)
    browser.open("search", contains="订单", charset="gbk")
    browser.see(".list .end", "1 message, all there are.")
    browser.see(".messages td.body", GBK)
    browser.open("tail", topic="orders", charset="gbk")
    browser.see(".messages td.body", GBK)
    # Kept until another is chosen.
    browser.open("message", offset=0)
    browser.see(".body-text pre", GBK)
    browser.click(".body-panel select option", "gbk")
    browser.open("message", offset=0, charset="utf-8")
    browser.see("pre.hex", first)
    assert browser.complaints() == []


def test_a_text_with_nuls_stays_a_text_and_a_charset_that_is_none_is_reported(in_gbk: Browser) -> None:
    in_gbk.open("message", topic="orders", queueId=0, queueOffset=2)
    in_gbk.see(".body-panel", "text, 8 bytes")
    assert in_gbk.see(".body-text pre").text == "a=1U+0000b=2U+0000"
    in_gbk.click(".tabs button", "Hex")
    in_gbk.see("pre.hex", "61 3d 31 00 62 3d 32 00")
    in_gbk.open("message", offset=0, charset="klingon")
    in_gbk.see(".notice.error", "'klingon' is no charset")
    in_gbk.click("#charset option[value=gbk]")
    in_gbk.see(".body-text pre", GBK)
