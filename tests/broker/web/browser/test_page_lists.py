"""What is chosen is in the address, lists are saved as files, and forms begin small and complete names."""

import csv
import io
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from broker_harness import service_of
from spark_jobs.export.export_formats import without_formula
from storage.store.message_store import MessageStore
from store_writer import StoreWriter
from web_browser import Browser
from web_questions import serving_page

CATCH = """
    URL.createObjectURL = (blob) => { blob.arrayBuffer().then((data) => {
      window.savedText = new TextDecoder('utf-8', {ignoreBOM: true}).decode(data); }); return '#'; };
    HTMLAnchorElement.prototype.click = function () { window.savedAs = this.download; };
"""


def shown(browser: Browser, selector: str) -> list[str]:
    """The names of the inputs that are to be seen."""
    return [str(each.get_attribute("name")) for each in browser.all(selector) if each.is_displayed()]


def test_a_search_starts_with_two_fields_and_unfolds_where_it_has_more(browser: Browser) -> None:
    browser.open("search")
    browser.see(".search-form")
    assert shown(browser, ".search-form input") == ["contains", "topic"]
    assert not [each for each in browser.all(".search-form select") if each.is_displayed()]
    browser.keep("search-small")
    browser.click("summary", "More conditions")
    browser.see("input[name=keyPrefix]").send_keys("OrderID18", Keys.ENTER)
    browser.until(lambda: "keyPrefix=OrderID18" in browser.place)
    browser.see(".messages tbody tr", "OrderID188")
    # What restricts a search is never folded away.
    browser.open("search", contains="hot 1", tag="TagA")
    browser.see(".list .end", "Searched")
    assert "tag" in shown(browser, ".search-form input")


def test_topics_complete_as_they_are_typed(browser: Browser) -> None:
    browser.open("search")
    field = browser.see("input[name=topic]")
    field.send_keys("opicte")
    name = field.get_attribute("list")
    offered = f"return [...document.querySelectorAll('#{name} option')].map((each) => each.value)"
    browser.until(lambda: browser.run(offered) == ["TopicTest"])
    field.send_keys("-none-such")
    browser.until(lambda: browser.run(offered) == [])


@pytest.fixture(scope="module")
def hostile_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    writer = StoreWriter(tmp_path_factory.mktemp("hostile") / "store")
    for key, body in (("=1+1", b'say "hi", twice\r\nand go'), ("+31", b"@SUM(A1)"), ("plain", "größe".encode())):
        writer.append("orders", body, keys=key, tags="-tag")
    writer.close()
    return writer.root


def test_a_list_is_saved_as_json_as_the_api_gave_it_and_as_csv_that_runs_nothing(
    lone: Browser, hostile_root: Path
) -> None:
    def saved(form: str) -> str:
        lone.run("window.savedText = window.savedAs = null;")
        lone.click(".save button", form)
        lone.until(lambda: lone.run("return window.savedText"))
        assert lone.run("return window.savedAs") == f"messages.{form.lower()}"
        return str(lone.run("return window.savedText"))

    with serving_page([service_of(MessageStore.open(hostile_root))]) as lone.server:
        lone.open("topic", topic="orders", order="oldest")
        lone.see(".list .end", "3 messages")
        lone.run(CATCH)
        with urllib.request.urlopen(f"{lone.server}/api/v1/messages?topic=orders", timeout=60) as answer:
            messages: list[dict[str, Any]] = json.load(answer)["messages"]
        assert len(messages) == 3
        assert json.loads(saved("JSON")) == messages
        sheet = saved("CSV")
        assert sheet.startswith("\ufeff")
        rows = list(csv.DictReader(io.StringIO(sheet[1:], newline="")))
        assert [row["keys"] for row in rows] == ["'=1+1", "'+31", "plain"]
        assert [row["tags"] for row in rows] == ["'-tag"] * 3
        previews = [each["preview"] for each in messages]
        assert [row["preview"] for row in rows] == [previews[0], f"'{previews[1]}", previews[2]]
        for name in ("physicalOffset", "queueOffset", "storeTimestamp", "offsetMessageId"):
            assert [row[name] for row in rows] == [str(each[name]) for each in messages]
        script = """
            const [texts, done] = arguments;
            import('/page/save.js').then((save) => done(texts.map((text) => save.cell(text))));"""
        texts = [first + rest for first in "=+-@\t' a7{订" for rest in ("", "1+1", "SUM")]
        cells = lone.driver.execute_async_script(script, texts)
        assert cells == [without_formula(text) for text in texts]  # what an export has
        lone.open("topics")
        lone.see(".topics .count", "3")
        lone.run(CATCH)
        lone.click(".save button", "JSON")
        saved_topics = json.loads(lone.until(lambda: lone.run("return window.savedText")))
        assert [each["topic"] for each in saved_topics] == lone.texts(".topics a.open")
        assert {each["topic"]: each["messages"] for each in saved_topics}["orders"] == 3
        assert lone.complaints() == []


def test_a_body_that_is_not_what_it_says_and_words_of_keys_are_explained(lone: Browser, tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    plain = writer.append("orders", b'{"order": 4711}', sys_flag=0x301, keys="order 4711")
    packed = writer.append("orders", "订单已付款，请尽快发货".encode("gbk"))
    writer.close()
    with serving_page([service_of(MessageStore.open(writer.root))]) as lone.server:
        lone.open("message", offset=plain.physical_offset)
        lone.see(".body-panel .notice", "sysFlag says zlib, and the body is not compressed.")
        lone.open("message", offset=packed.physical_offset)
        lone.see(".body-panel .notice", "It looks like GBK: choose that charset above to read it.")
        lone.open("find", text="order 4711")
        lone.see("main div p", "RocketMQ splits keys at blanks")
