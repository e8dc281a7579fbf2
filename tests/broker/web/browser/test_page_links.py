"""Addresses that cannot be used, counts that agree, and a server or a store that is away: said alike everywhere."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from selenium.webdriver.common.keys import Keys

from broker_harness import service_of
from page_server import serving_page
from storage.store.message_store import MessageStore
from store_writer import StoreWriter
from web_browser import Browser

VIEWS = (
    *("topics", "find", "message", "topic", "search", "groups", "dead-letters", "pending", "space", "health"),
    *("light-topics", "tail"),
)
QUEUES, MESSAGES = 1000, 2000


@pytest.fixture
def lone(one_browser: Browser) -> Iterator[Browser]:
    """The browser, pointed nowhere yet."""
    yield one_browser
    one_browser.driver.get("about:blank")
    one_browser.complaints()


@pytest.fixture(scope="module")
def wide_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 messages in 1,000 queues of one topic, ten seconds apart."""
    writer = StoreWriter(tmp_path_factory.mktemp("wide") / "store")
    for number in range(MESSAGES):
        stamp = 1_795_239_900_000 + 10_000 * number
        writer.append("wide", b"%d" % number, queue_id=number % QUEUES, store_timestamp=stamp)
    writer.close()
    return writer.root


def test_what_a_view_cannot_use_of_its_address_is_reported(browser: Browser) -> None:
    for view, parameters, said in (
        ("topic", {"topic": "TopicTest", "from": "1795243506300"}, "from=1795243506300, which this view does not know"),
        ("topic", {"topic": "TopicTest", "begin": "soon"}, 'begin=soon, which cannot be read: "soon" is not a time'),
        ("topic", {"topic": "TopicTest", "order": "random"}, "expected newest or oldest"),
        ("search", {"contains": "hot", "minimumSize": "-3"}, "minimumSize=-3, which cannot be read: a whole number"),
        ("topics", {"system": "yes"}, "expected 1"),
        *((view, {"from": "x"}, "from=x, which this view does not know") for view in VIEWS),
    ):
        browser.open(view, **parameters)
        assert browser.see("main > .notice.error[role=alert]", said)
    browser.open("topic", topic="TopicTest", begin="soon")
    browser.see(".list .end", "50 messages shown")
    # Views that were opened without what they need have asked, and some were refused before the next one was opened.
    assert [each for each in browser.complaints() if "a status of 400 (Bad Request)" not in each] == []


def test_a_time_in_a_link_may_be_a_date(browser: Browser) -> None:
    browser.open("topic", topic="TopicTest", begin="2026-11-21T06:45:06.300Z")
    browser.see(".list .end", "7 messages, all there are.")
    assert not browser.all("main > .notice")


def test_all_counts_of_a_topic_agree(lone: Browser, wide_root: Path) -> None:
    with serving_page([service_of(MessageStore.open(wide_root))]) as origin:
        lone.server = origin
        lone.open("topic", topic="wide")
        lone.see("main .bar", "1,000 queues, 2,000 messages")
        lone.see(".histogram .said", "2,000 messages")
        lone.open("topics")
        lone.see(".topics tbody .count", "2,000")
        assert lone.complaints() == []


@pytest.mark.soak
def test_a_bar_zooms_again_and_again_by_click_and_by_keyboard(lone: Browser, wide_root: Path) -> None:
    def reach() -> int:
        times = parse_qs(urlsplit(lone.place).query)
        return int(times["end"][0]) - int(times["begin"][0]) if "begin" in times else MESSAGES * 10_000

    with serving_page([service_of(MessageStore.open(wide_root))]) as origin:
        lone.server = origin
        lone.open("topic", topic="wide")
        lone.see(".histogram .said", "2,000 messages")
        for there in ("30 messages", "1 message"):
            before = reach()
            lone.until(lambda: lone.all(".histogram rect.target"))[10].click()
            lone.until(lambda before=before: reach() < before / 10)
            lone.see(f".histogram svg[aria-label^='{there} in bars']")
        lone.open("topic", topic="wide")
        lone.see(".histogram .said", "2,000 messages")
        lone.run("document.querySelector('.histogram svg').focus()")
        for there in ("30 messages", "1 message"):
            before = reach()
            lone.press(Keys.ARROW_RIGHT, Keys.ENTER)
            lone.until(lambda before=before: reach() < before / 10)
            lone.see(f".histogram svg[aria-label^='{there} in bars']")
            # The new bars have the focus when they are there.
            lone.until(lambda: lone.run("return document.activeElement.closest('.histogram') !== null"))
        lone.press(Keys.BACKSPACE)
        lone.see(".histogram .said", "2,000 messages")
        assert lone.complaints() == []


def test_a_server_that_is_away_is_said_alike_on_every_view_and_mended_by_itself(lone: Browser, wide_root: Path) -> None:
    store = MessageStore.open(wide_root)
    with serving_page([service_of(store)]) as origin:
        lone.server = origin
        lone.open("topics")
        lone.see(".topics a.open", "wide")
    said = set()
    for key in ("s", "p", "u", "h", "t"):
        lone.press(key)
        said.add(lone.see("#state .notice", "does not answer").text)
        assert not [each for each in lone.all("main .notice.error") if each.is_displayed()]
    assert len(said) == 1
    lone.keep("absent")
    port = int(origin.rpartition(":")[2])
    with serving_page([service_of(store)], port=port):
        lone.see(".topics a.open", "wide")
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


@pytest.mark.parametrize("each", [4, pytest.param(1, marks=pytest.mark.soak)])
def test_a_store_that_is_gone_is_said_on_every_view(lone: Browser, wide_root: Path, tmp_path: Path, each: int) -> None:
    root = tmp_path / "store"
    shutil.copytree(wide_root, root)
    with serving_page([service_of(MessageStore.open(root))]) as origin:
        lone.server = origin
        lone.open("topics")
        lone.see(".topics a.open", "wide")
        assert not lone.all("#state .notice")
        shutil.rmtree(root)
        # Also where the view is left open.
        lone.see("#state .notice", "The store is gone: the store cannot be followed")
        for view in VIEWS[::each]:
            lone.open(view)
            lone.see("#state .notice", "found nothing there")
        assert lone.violations() == []
        lone.keep("gone")
