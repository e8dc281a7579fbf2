"""Bodies in a browser: JSON that folds, with every number as it is written."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from broker_harness import service_of
from page_server import serving_page
from storage.store.message_store import MessageStore
from store_writer import StoreWriter
from web_browser import Browser


@pytest.fixture
def lone(one_browser: Browser) -> Iterator[Browser]:
    """The browser, pointed nowhere yet."""
    yield one_browser
    one_browser.driver.get("about:blank")
    one_browser.complaints()


def test_json_is_a_tree_that_folds_and_keeps_every_number_as_it_is_written(lone: Browser, tmp_path: Path) -> None:
    body = '{"id":12345678901234567890,"price":1.10,"lines":[{"a":1},{"b":[]}],"text":"{","none":{}}'
    writer = StoreWriter(tmp_path / "store")
    writer.append("orders", body.encode())
    writer.close()
    with serving_page([service_of(MessageStore.open(tmp_path / "store"))]) as origin:
        lone.server = origin
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
        assert lone.violations() == []
        lone.click("button", "Fold all")
        lone.until(lambda: lone.all(".json-tree details[open]") == lone.all(".json-tree > details"))
        assert lone.violations() == []
        lone.keep("json-folded")
        lone.click("button", "Unfold all")
        lone.until(lambda: json.loads(lone.see(".json-tree").text) == json.loads(body))
        assert lone.complaints() == []


def test_deep_json_is_folded_and_json_of_very_many_lists_stays_a_text(lone: Browser, tmp_path: Path) -> None:
    deep, many = "[" * 12 + "1" + "]" * 12, json.dumps([[1]] * 5001)
    writer = StoreWriter(tmp_path / "store")
    places = [writer.append("orders", body.encode()).physical_offset for body in (deep, many)]
    writer.close()
    with serving_page([service_of(MessageStore.open(tmp_path / "store"))]) as origin:
        lone.server = origin
        lone.open("message", offset=places[0])
        lone.see(".json-tree summary", "[ 1 element ]")
        assert len(lone.all(".json-tree details")) == 12
        assert len(lone.all(".json-tree details[open]")) == 6
        lone.open("message", offset=places[1])
        assert json.loads(lone.see(".body-text pre").text) == json.loads(many)
