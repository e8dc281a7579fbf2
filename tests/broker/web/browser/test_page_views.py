"""Each view as people see it: dark, light, on a phone, through assistive technology, and by the keyboard alone."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from broker_harness import service_of
from storage.store.message_store import MessageStore
from store_writer import StoreWriter
from web_browser import COLOUR_RULES, Browser
from web_questions import serving_page

VIEWS = {
    "topics": ({}, ".topics tbody .count:not(:empty)"),
    "find": ({"text": "hotkey"}, ".messages tbody tr"),
    "message": ({"offset": 0}, ".life li"),
    "topic": ({"topic": "TopicTest"}, ".histogram + details"),
    "tail": ({"topic": "TopicTest"}, ".messages tbody tr"),
    "search": ({"contains": "hot 1", "tag": "TagA"}, ".list .end"),
    "groups": ({}, ".stacked tbody tr"),
    "dead-letters": ({}, "main [role=status]"),
    "light-topics": ({}, ".end"),
    "pending": ({}, ".list .end"),
    "space": ({}, ".space-tables"),
    "health": ({}, ".picture"),
}
"""The parameters of each view, and what is there when it is drawn."""


WIDE, PHONE = (1400, 900), (375, 812)
SIZES = [WIDE, pytest.param(PHONE, marks=pytest.mark.soak)]
"""Windows in which the rules of accessibility are checked; that nothing sticks out is checked in both, always."""


def telling(names: Iterable[str], *always: str) -> list[Any]:
    """Parameters of a test: some names always, the others in `make soak`."""
    return [pytest.param(name, marks=[] if name in always else [pytest.mark.soak]) for name in names]


def fits(browser: Browser) -> bool:
    return bool(browser.run("return document.documentElement.scrollWidth <= innerWidth"))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", telling(VIEWS, "topic", "groups", "health"))
def test_a_view_can_be_used_in_both_colours_and_on_a_phone(browser: Browser, view: str, size: tuple[int, int]) -> None:
    parameters, selector = VIEWS[view]
    try:
        browser.driver.set_window_size(*size)
        browser.open(view, **parameters)
        browser.see(selector)
        # The themes differ in nothing but colours.
        for theme, rules in (("light", ()), ("dark", COLOUR_RULES)):
            browser.run(f"document.documentElement.dataset.theme = '{theme}'")
            assert browser.violations(*rules) == [], theme
            browser.keep(f"view-{view}-{theme}-{size[0]}")
        assert fits(browser)
        browser.driver.set_window_size(*PHONE)
        assert fits(browser)
    finally:
        browser.driver.set_window_size(*WIDE)


REACHED = """
    const wanted = [...document.querySelectorAll("main :is(a[href], button, input, select, summary, [tabindex='0'])")]
      .filter((each) => each.checkVisibility() && !each.disabled);
    return [wanted.length, wanted.filter((each) => each.tabIndex < 0).length];"""


@pytest.mark.parametrize("view", telling(VIEWS, "topic", "search", "space"))
def test_all_that_can_be_pressed_in_a_view_is_reached_by_the_keyboard(browser: Browser, view: str) -> None:
    parameters, selector = VIEWS[view]
    browser.open(view, **parameters)
    browser.see(selector)
    wanted, unreachable = browser.run(REACHED)
    assert wanted > 0
    assert unreachable == 0
    # The first stop leads past the head, and from there Tab goes on into the view.
    browser.run("document.activeElement.blur(); scrollTo(0, 0)")
    browser.run("document.querySelector('a.skip').focus()")
    assert browser.run("return document.activeElement.getBoundingClientRect().left >= 0")
    browser.press(Keys.ENTER)
    browser.until(lambda: browser.run("return document.activeElement.matches('main')"))
    browser.press(Keys.TAB)
    assert browser.run("return document.activeElement.closest('main') !== null")
    assert browser.run("return getComputedStyle(document.activeElement).outlineStyle") != "none"


ORDER = {"id": 4711, "customer": {"name": "Ada", "city": "Köln"}, "lines": [{"article": "a-1", "price": 1.1}] * 3}


@pytest.fixture(scope="module")
def varied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The origin of a page over a store with a body of each kind, by its place in the only queue of `orders`."""
    writer = StoreWriter(tmp_path_factory.mktemp("varied") / "store")
    for body in (json.dumps(ORDER).encode(), b"name=Ada\0city=Paris\0", bytes(range(256)) * 3, b""):
        writer.append("orders", body, keys="o-1", tags="paid")
    writer.close()
    with serving_page([service_of(MessageStore.open(writer.root))]) as origin:
        yield origin


def fold(browser: Browser) -> None:
    browser.click(".json-tree summary", '"customer"')
    browser.see(".json-tree", '"customer": { 2 fields },')


def pause(browser: Browser) -> None:
    browser.see(".messages tbody tr", "4711")
    browser.click("main button", "Pause")
    browser.see("main button", "Go on")


def refuse(browser: Browser) -> None:
    browser.see(".filters .time").send_keys("soon", Keys.ENTER)
    browser.see(".notice.error", '"soon" is not a time')


def choose(browser: Browser) -> None:
    browser.press("z")
    browser.until(lambda: len(browser.all("#zone option")) > 300)
    browser.press("Asia/Kat")
    browser.until(lambda: "zone=Asia%2FKat" in browser.place)
    browser.see(".topics tbody .count:not(:empty)", "4")


STATES = {
    "json-tree": ("message", {"offset": 0}, ".json-tree", fold),
    "nul": ("message", {"topic": "orders", "queueId": 0, "queueOffset": 1}, ".body-text", None),
    "binary": ("message", {"topic": "orders", "queueId": 0, "queueOffset": 2}, "pre.hex", None),
    "empty-body": ("message", {"topic": "orders", "queueId": 0, "queueOffset": 3}, ".body-text p", None),
    "tail-paused": ("tail", {"topic": "orders", "tag": "paid"}, ".messages", pause),
    "tail-refused": ("tail", {"topic": "orders", "sql": "a >"}, ".notice.error", None),
    "search-unfolded": ("search", {"minimumSize": 1, "zone": "Asia/Kathmandu"}, ".list .end", None),
    "wrong-time": ("topic", {"topic": "orders"}, ".messages tbody tr", refuse),
    "wrong-link": ("topics", {"from": "2026", "zone": "Mars"}, ".topics tbody tr", None),
    "nothing-found": ("find", {"text": "no such key"}, "main p.muted", None),
    "no-such-message": ("message", {"offset": 5}, ".notice.error", None),
    "zone": ("topics", {}, ".topics tbody .count:not(:empty)", choose),
}
"""A state that a view may come to: the view, its parameters, what is then there, and what a person does."""


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("state", telling(STATES, "json-tree", "wrong-time"))
def test_a_view_in_another_state_has_no_violation_either(
    one_browser: Browser, varied: str, state: str, size: tuple[int, int]
) -> None:
    view, parameters, selector, act = STATES[state]
    browser = one_browser
    browser.server = varied
    try:
        browser.driver.set_window_size(*size)
        browser.open(view, **parameters)
        browser.see(selector)
        if act is not None:
            act(browser)
        browser.run(f"document.documentElement.dataset.theme = '{'light' if size == WIDE else 'dark'}'")
        assert browser.violations() == []
        browser.keep(f"state-{state}-{size[0]}")
        assert fits(browser)
        browser.driver.set_window_size(*PHONE)
        assert fits(browser)
    finally:
        browser.run("localStorage.removeItem('zone')")
        browser.driver.set_window_size(*WIDE)
        browser.driver.get("about:blank")
        browser.complaints()
