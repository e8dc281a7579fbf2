"""A topic live in a browser: messages come by themselves, a pause holds them back, a filter chooses, old ones go."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from broker.service.following_threads import FollowingThreads
from broker.service.long_polling import LongPolling
from broker_harness import service_of
from storage.store.message_store import MessageStore
from store_writer import StoreWriter
from web_browser import Browser
from web_questions import serving_page


class Live:
    """A topic that grows while a page shows it."""

    polls: LongPolling
    """What waits at the server."""

    def __init__(self, browser: Browser, writer: StoreWriter) -> None:
        self.browser, self.writer = browser, writer
        self.count = 0

    def add(self, count: int = 1, queues: int = 3) -> None:
        """Store messages in so many queues, whose bodies are "body" and a number from 0 on."""
        for number in range(self.count, self.count + count):
            self.writer.append("orders", b"body %d." % number, tags=f"T{number % 2}", queue_id=number % queues)
        self.count += count
        self.writer.flush()

    @property
    def bodies(self) -> list[str]:
        """The bodies that are shown, from top to bottom."""
        texts = self.browser.run("return [...document.querySelectorAll('.messages td.body')].map((e) => e.textContent)")
        return [str(each) for each in texts]


@pytest.fixture
def live(one_browser: Browser, tmp_path: Path) -> Iterator[Live]:
    writer = StoreWriter(tmp_path / "store")
    grown = Live(one_browser, writer)
    grown.add(3)
    service = service_of(MessageStore.open(tmp_path / "store"))
    grown.polls = service.polls
    following = FollowingThreads(service.store, service.polls, lambda: None)
    with serving_page([service]) as one_browser.server:
        following.start()
        try:
            yield grown
        finally:
            following.stop()
            one_browser.driver.get("about:blank")
            assert one_browser.complaints() == []
    writer.close()


def test_messages_come_by_themselves_but_in_a_pause(live: Live) -> None:
    browser = live.browser
    browser.open("topic", topic="orders")
    browser.click("main .bar a", "Live")
    browser.until(lambda: live.bodies == ["body 2.", "body 1.", "body 0."])
    browser.see("main .bar", "waiting for messages")
    live.add()
    browser.until(lambda: live.bodies[0] == "body 3.")
    browser.see("main .bar", "1 message since it was opened")
    browser.keep("tail")
    browser.until(lambda: len(live.polls) > 0)  # the page waits for an answer; after one it does nothing for a while
    browser.click("main .bar button", "Pause")
    browser.see("main .bar", "paused")
    live.add(2)
    # What waits at the server when the pause begins is shown, what comes then is not.
    browser.until(lambda: len(live.bodies) == 6)
    live.add()
    assert len(live.bodies) == 6
    browser.click("main .bar button", "Go on")
    browser.until(lambda: live.bodies == [f"body {number}." for number in range(6, -1, -1)])
    browser.see("main .bar", "4 messages since it was opened")
    browser.click(".messages a.open")
    browser.see(".body-text pre", "body 6.")


def test_a_filter_chooses_and_is_a_part_of_the_address(live: Live) -> None:
    browser = live.browser
    browser.open("tail", topic="orders")
    browser.see(".messages tbody tr", "body 2.")
    browser.see(".filters .wide").send_keys("T1", Keys.ENTER)
    browser.until(lambda: live.bodies == ["body 1."])
    assert browser.place == "/tail?topic=orders&tag=T1"
    live.add(4)
    browser.until(lambda: live.bodies == ["body 5.", "body 3.", "body 1."])
    browser.open("tail", topic="orders", sql="TAGS = 'T0'", queueId=0)
    browser.until(lambda: live.bodies == ["body 6.", "body 0."])
    live.add(6)
    browser.until(lambda: live.bodies == ["body 12.", "body 6.", "body 0."])


def test_only_the_newest_are_kept(live: Live) -> None:
    browser = live.browser
    browser.open("tail", topic="orders")
    browser.see(".messages tbody tr", "body 2.")
    live.add(600, queues=1)  # the builder writes one queue after the other, and an answer may come between two
    browser.until(lambda: live.bodies[0] == "body 602.")
    assert live.bodies == [f"body {number}." for number in range(602, 102, -1)]
    browser.see("main .bar", "600 messages since it was opened")
