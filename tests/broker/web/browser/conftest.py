"""One browser for all tests of the page, and the recorded store for it to look at."""

import pytest

from broker_harness import service_of
from storage.store.message_store import MessageStore
from web_browser import Browser
from web_questions import serving_page


@pytest.fixture(scope="session")
def one_browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("browser"))
    try:
        yield browser
    finally:
        browser.close()


@pytest.fixture(scope="session")
def recorded_page(g1_store):
    with serving_page([service_of(MessageStore.open(g1_store))]) as origin:
        yield origin


@pytest.fixture
def browser(one_browser, recorded_page):
    """The browser on the recorded store; no test may leave anything in the browser's log that is wrong."""
    one_browser.server = recorded_page
    one_browser.complaints()
    yield one_browser
    assert one_browser.complaints() == []


@pytest.fixture
def lone(one_browser):
    """The browser, pointed nowhere yet, its tab empty of keys."""
    yield one_browser
    one_browser.run("try { sessionStorage.clear(); } catch {}")
    one_browser.driver.get("about:blank")
    one_browser.complaints()
