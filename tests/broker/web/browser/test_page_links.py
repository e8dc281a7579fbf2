"""Addresses that cannot be used, counts that agree, and a server or a store that is away: said alike everywhere."""

import shutil
from pathlib import Path

import pytest

from broker_harness import service_of
from storage.store.message_store import MessageStore
from store_writer import StoreWriter
from web_browser import Browser
from web_questions import serving_page

VIEWS = (
    *("topics", "find", "message", "topic", "search", "groups", "dead-letters", "pending", "space", "health"),
    *("light-topics", "tail"),
)


def test_what_a_view_cannot_use_of_its_address_is_reported(browser: Browser) -> None:
    for view, parameters, said in (
        ("topic", {"topic": "TopicTest", "from": "1795243506300"}, "from=1795243506300, which this view does not know"),
        ("topic", {"topic": "TopicTest", "order": "random"}, "expected newest or oldest"),
        ("search", {"contains": "hot", "minimumSize": "-3"}, "minimumSize=-3, which cannot be read: a whole number"),
        ("topics", {"system": "yes"}, "expected 1"),
        ("topic", {"topic": "TopicTest", "begin": "soon"}, 'begin=soon, which cannot be read: "soon" is not a time'),
    ):
        browser.open(view, **parameters)
        assert browser.see("main > .notice.error[role=alert]", said)
    browser.see(".list .end", "50 messages shown")
    browser.open("topic", topic="TopicTest", begin="2026-11-21T06:45:06.300Z")
    browser.see(".list .end", "7 messages, all there are.")
    assert not browser.all("main > .notice")


@pytest.fixture
def small_root(tmp_path: Path) -> Path:
    writer = StoreWriter(tmp_path / "store")
    writer.append("orders", b"body")
    writer.close()
    return writer.root


def test_a_server_that_is_away_is_said_alike_on_every_view_and_mended_by_itself(
    lone: Browser, small_root: Path
) -> None:
    store = MessageStore.open(small_root)
    with serving_page([service_of(store)]) as lone.server:
        lone.open("topics")
        lone.see(".topics a.open", "orders")
    said = set()
    for key in ("s", "h", "t"):
        lone.press(key)
        said.add(lone.see("#state .notice", "does not answer").text)
        assert not [each for each in lone.all("main .notice.error") if each.is_displayed()]
    assert len(said) == 1
    lone.keep("absent")
    port = int(lone.server.rpartition(":")[2])
    with serving_page([service_of(store)], port=port):
        lone.see(".topics a.open", "orders")
        lone.until(lambda: not lone.all("#state .notice"))
        assert "RocketLens" in lone.see("#store", "segment").text


def test_a_server_that_says_nothing_counts_as_one_that_does_not_answer(browser: Browser) -> None:
    browser.open("topics")
    browser.see(".topics a.open", "TopicTest")
    # A question that is never answered, as on a line that was cut, and a clock on which a minute is soon over.
    browser.run(
        "const send = window.fetch, wait = window.setTimeout; window.isSilent = true;"
        "window.setTimeout = (work, time) => wait(work, time === 60_000 ? 300 : time);"
        "window.fetch = (place, options) => !window.isSilent ? send(place, options) : new Promise((_, reject) =>"
        "  options.signal.addEventListener('abort', () => reject(new DOMException('cut', 'AbortError'))));"
    )
    browser.press("h")
    browser.see("#state .notice", "does not answer")
    browser.run("window.isSilent = false")
    browser.see(".picture")
    browser.until(lambda: not browser.all("#state .notice"))


@pytest.mark.parametrize("views", [("search",), pytest.param(VIEWS, marks=pytest.mark.soak)], ids=["one", "all"])
def test_a_store_that_is_gone_is_said_on_every_view(lone: Browser, small_root: Path, views: tuple[str, ...]) -> None:
    with serving_page([service_of(MessageStore.open(small_root))]) as lone.server:
        lone.open("topics")
        lone.see(".topics a.open", "orders")
        assert not lone.all("#state .notice")
        shutil.rmtree(small_root)
        # Also where the view is left open.
        lone.see("#state .notice", "The store is gone: the store cannot be followed")
        for view in views:
            lone.open(view)
            lone.see("#state .notice", "found nothing there")
        lone.keep("gone")
