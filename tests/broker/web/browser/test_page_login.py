"""The page where the browser itself asks for a login (`--http-auth basic`)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from acl_file import PLAIN_ACL, READER, READER_SECRET, write_accounts
from broker.config import HttpAuth
from broker_harness import service_of
from storage.store.message_store import MessageStore
from web_browser import Browser
from web_questions import serving_page


@pytest.fixture
def asked(one_browser: Browser, g1_store: Path, tmp_path: Path) -> Iterator[Browser]:
    """The browser on a page that asks before anything is shown; on an origin of its own, for it keeps what it sent."""
    accounts = write_accounts(tmp_path / "plain_acl.yml", PLAIN_ACL)
    one_browser.complaints()
    with serving_page([service_of(MessageStore.open(g1_store))], accounts, auth=HttpAuth("basic")) as origin:
        one_browser.server = origin
        yield one_browser
        one_browser.driver.get("about:blank")
    one_browser.complaints()


def log_in(browser: Browser, secret: str) -> None:
    """Have the browser know the keys as it does once its own dialog was filled in, and open the page.

    An address with keys in it is how a driver gives them; scripts do not run under one.
    """
    browser.driver.get(f"{browser.server.replace('://', f'://{READER}:{secret}@')}/page/icon.svg")
    browser.complaints()
    browser.open("topics")


def test_the_page_works_with_the_browsers_own_login(asked: Browser) -> None:
    log_in(asked, "a-wrong-secret")
    assert not asked.driver.find_elements("id", "main")
    log_in(asked, READER_SECRET)
    asked.see(".topics a.open", "TopicTest")
    assert asked.driver.find_elements("css selector", "dialog.login") == [], "the page does not ask once more"
    asked.open("topic", topic="TopicTest")
    asked.click(".messages a.open")
    asked.see(".body-text pre")
    asked.open("health")
    asked.see(".notice.error", "administrators")
    assert READER_SECRET not in asked.driver.page_source
    assert READER_SECRET not in asked.driver.current_url
    assert [line for line in asked.complaints() if "403" not in line and "401" not in line] == []
