"""The page where things are not as they should be, as a topic grows, and as people with other means see it."""

import re

import pytest
from selenium.webdriver.common.keys import Keys

from acl_file import ADMIN, ADMIN_SECRET, PLAIN_ACL, READER, READER_SECRET, write_accounts
from broker.config import HttpAuth
from broker.service.following_threads import FollowingThreads
from broker.service.long_polling import LongPolling
from broker_harness import service_of
from storage.store.message_store import MessageStore
from store_writer import StoreWriter
from web_browser import COLOUR_RULES
from web_questions import serving_page


def log_in(browser, access_key, secret) -> None:
    browser.see("#login input[name=access]").send_keys(access_key)
    browser.see("#login input[name=secret]").send_keys(secret, Keys.ENTER)


def test_the_page_asks_for_the_keys_that_clients_have(lone, g1_store, tmp_path) -> None:
    accounts = tmp_path / "plain_acl.yml"
    write_accounts(accounts)
    with serving_page([service_of(MessageStore.open(g1_store))], accounts) as lone.server:
        lone.open("topic", topic="TopicTest")
        lone.see("dialog.login", "This server requires keys")
        lone.keep("login")
        log_in(lone, READER, "wrong-secret")
        lone.see("dialog.login .notice.error", "is wrong")
        log_in(lone, READER, READER_SECRET)
        lone.see(".list .end", "50 messages shown")
        assert READER in lone.see("#keys").text
        # The keys are for this tab, and outlive a reload in it.
        lone.driver.refresh()
        lone.see(".list .end", "50 messages shown")
        assert READER_SECRET not in lone.driver.page_source
        assert READER_SECRET not in lone.driver.current_url
        lone.open("health")
        lone.see(".notice.error", "administrators")
        lone.click("#keys")
        lone.see("dialog.login")
        log_in(lone, ADMIN, ADMIN_SECRET)
        lone.open("health")
        lone.see(".chip.good", "nothing is wrong")


def test_each_of_several_stores_is_a_choice_away_and_stays_in_the_address(lone, tmp_path) -> None:
    services = []
    for name in ("broker-a", "broker-b"):
        writer = StoreWriter(tmp_path / name, broker_name=name)
        writer.append(f"topic-of-{name}", b"hello from " + name.encode(), keys="greeting")
        writer.close()
        services.append(service_of(MessageStore.open(tmp_path / name), broker_name=name))
    with serving_page(services) as lone.server:
        lone.open("")
        lone.see(".topics a.open", "topic-of-broker-a")
        lone.click("#broker option[value=broker-b]")
        lone.click(".topics a.open", "topic-of-broker-b")
        lone.see(".messages tbody tr", "hello from broker-b")
        assert "broker=broker-b" in lone.place
        lone.find("greeting")
        lone.click(".messages a.open")
        lone.see(".body-text pre", "hello from broker-b")
        lone.driver.refresh()
        lone.see(".body-text pre", "hello from broker-b")
        assert "broker-b" in lone.see("#store", "RocketLens").text
        assert lone.complaints() == []


NO_HEAD, WRONG_BYTE = 122320, 147803


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """A store whose log has 21 records without an intact head, and one with another byte in its body."""
    writer = StoreWriter(tmp_path_factory.mktemp("damaged") / "store", segment_size=65536)
    written = [writer.append("orders", b"order %d " % number * 40, keys=f"o{number}") for number in range(400)]
    for number in (*range(100, 120), 250):
        writer.overwrite(written[number].physical_offset + 4, b"\xff\xff\xff\xff")
    writer.overwrite(written[300].physical_offset + 120, b"!")
    for number in range(600):
        indexed = number < 200
        writer.append("orders", b"later %d " % number * 30, keys=f"l{number}", index=indexed, queue=number < 500)
    writer.close()
    assert (written[250].physical_offset, written[300].physical_offset) == (NO_HEAD, WRONG_BYTE)
    return writer.root


def test_damage_is_marked_in_the_picture_and_told_with_what_mends_it(lone, damaged) -> None:
    with serving_page([service_of(MessageStore.open(damaged))]) as lone.server:
        lone.open("health")
        lone.see(".chip.error", "error")
        assert lone.all(".lanes rect.damage")
        label = lone.see(".lanes svg").get_attribute("aria-label") or ""
        assert "damaged or missing" in label
        assert "Index: 100 %" not in label
        findings = lone.see("section[aria-label=Findings]").text
        assert "rocketlens rescue" in findings
        # Of the record with another byte in its body there is something to view, of those without an intact head not.
        assert re.findall(r"rocketlens find (\S+ \d+)", findings) == [f"{damaged} {WRONG_BYTE}"]
        # What can be copied is a command and nothing else.
        commands = lone.texts(".finding .command")
        assert all(each.startswith("rocketlens ") for each in commands)
        assert len(lone.all(".finding button.copy")) == len(commands)
        lone.keep("health-damaged")
        lone.click(f".finding a[href*='{NO_HEAD}']", "look there")
        lone.see("main", "no message there")
        lone.open("topic", topic="orders", order="oldest")
        lone.see("button.more")
        for shown in (100, 150):
            lone.click("button.more")
            lone.see(".list .end", f"{shown} messages shown")
        assert "cannot be read" in lone.see(".list .end").text


def test_a_search_shows_how_far_it_is_stops_and_goes_on(lone, damaged, monkeypatch) -> None:
    from broker.web.api.request_context import RequestContext

    with serving_page([service_of(MessageStore.open(damaged))]) as lone.server:
        with monkeypatch.context() as slow:  # each answer has the time for one piece of the log, of some hundred
            slow.setattr(RequestContext, "allow", lambda self, _milliseconds: setattr(self, "deadline", 0.0))
            slow.setattr("storage.search.plan.CHUNK_BYTES", 1500)
            lone.open("search", contains="later 599 ")
            lone.see(".work .progress-text", "searched ")
            lone.keep("search-progress")
            lone.click(".work button.stop")
            lone.see(".list .end", "Nothing found so far.")
        lone.click("button.more", "Go on")
        lone.see(".list .end", "1 message, all there are.")
        assert lone.texts("#status") == [""]
        assert "damaged and hold no intact record" in lone.see("main").text
        lone.keep("search-damaged")


@pytest.fixture
def asked(one_browser, g1_store, tmp_path):
    """The browser on a page that asks before anything is shown; on an origin of its own, for it keeps what it sent."""
    accounts = write_accounts(tmp_path / "plain_acl.yml", PLAIN_ACL)
    one_browser.complaints()
    with serving_page([service_of(MessageStore.open(g1_store))], accounts, auth=HttpAuth("basic")) as origin:
        one_browser.server = origin
        yield one_browser
        one_browser.driver.get("about:blank")
    one_browser.complaints()


def log_in_of_page_login(browser, secret) -> None:
    """Have the browser know the keys as it does once its own dialog was filled in, and open the page."""
    browser.driver.get(f"{browser.server.replace('://', f'://{READER}:{secret}@')}/page/icon.svg")
    browser.complaints()
    browser.open("topics")


def test_the_page_works_with_the_browsers_own_login(asked) -> None:
    log_in_of_page_login(asked, "a-wrong-secret")
    assert not asked.driver.find_elements("id", "main")
    log_in_of_page_login(asked, READER_SECRET)
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


class Live:
    polls: LongPolling
    """What waits at the server."""

    def __init__(self, browser, writer) -> None:
        self.browser, self.writer = browser, writer
        self.count = 0

    def add(self, count: int = 1, queues: int = 3) -> None:
        for number in range(self.count, self.count + count):
            self.writer.append("orders", b"body %d." % number, tags=f"T{number % 2}", queue_id=number % queues)
        self.count += count
        self.writer.flush()

    @property
    def bodies(self) -> list[str]:
        texts = self.browser.run("return [...document.querySelectorAll('.messages td.body')].map((e) => e.textContent)")
        return [str(each) for each in texts]


@pytest.fixture
def live(one_browser, tmp_path):
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


def telling(names, *always):
    return [pytest.param(name, marks=[] if name in always else [pytest.mark.soak]) for name in names]


def fits(browser) -> bool:
    return bool(browser.run("return document.documentElement.scrollWidth <= innerWidth"))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", telling(VIEWS, "topic", "groups", "health"))
def test_a_view_can_be_used_in_both_colours_and_on_a_phone(browser, view, size) -> None:
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
def test_all_that_can_be_pressed_in_a_view_is_reached_by_the_keyboard(browser, view) -> None:
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
