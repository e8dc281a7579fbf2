"""The page where things are not as they should be: keys, several stores, damage, long work that is stopped."""

import json
import re
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from acl_file import ADMIN, ADMIN_SECRET, READER, READER_SECRET, write_accounts
from broker_harness import service_of
from golden_store import GOLDEN, unpack
from storage.store.message_store import MessageStore
from store_writer import StoreWriter
from web_browser import Browser
from web_questions import serving_page


def log_in(browser: Browser, access_key: str, secret: str) -> None:
    browser.see("#login input[name=access]").send_keys(access_key)
    browser.see("#login input[name=secret]").send_keys(secret, Keys.ENTER)


def test_the_page_asks_for_the_keys_that_clients_have(lone: Browser, g1_store: Path, tmp_path: Path) -> None:
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


def test_each_of_several_stores_is_a_choice_away_and_stays_in_the_address(lone: Browser, tmp_path: Path) -> None:
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
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def test_damage_is_marked_in_the_picture_and_told_with_what_mends_it(lone: Browser, damaged: Path) -> None:
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


def test_a_search_shows_how_far_it_is_stops_and_goes_on(
    lone: Browser, damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_topic_or_queue_that_is_not_there_is_no_empty_one_and_what_was_meant_is_a_click_away(
    lone: Browser, damaged: Path
) -> None:
    with serving_page([service_of(MessageStore.open(damaged))]) as lone.server:
        lone.open("topic", topic="orders", queueId=7)
        lone.see(".notice.error", "topic orders has no queue 7")
        lone.see(".chips a", "All queues of this topic")
        assert not lone.all(".histogram, .filters, .list, details")
        lone.keep("no-such-topic")
        lone.open("tail", topic="ordrs")
        lone.see(".notice.error", "the store has no topic ordrs; did you mean orders?")
        lone.click(".chips a", "orders")
        lone.see(".messages tbody tr")
        assert "/tail?topic=orders" in lone.place
        lone.open("find", text="ordrs")
        lone.click(".chips a", "orders")
        lone.see(".histogram")


def test_what_waits_is_counted_listed_and_narrowed(lone: Browser, tmp_path: Path) -> None:
    store = unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-queues")
    with serving_page([service_of(MessageStore.open(store))]) as lone.server:
        lone.open("pending")
        lone.see(".list .end", "1 message shown, all there are.")
        assert lone.see(".topics tbody tr").text.split()[:5] == ["TimerTopic", "1", "0", "0", "0"]
        assert "timer-far" in lone.see(".pending tbody tr").text
        lone.see(".bar .muted", "are delivered")
        lone.keep("pending")
        lone.open("pending", topic="TimrTopic")
        lone.see(".list .end", "No message waits. The topic that may be meant: TimerTopic")
        lone.click(".end a", "TimerTopic")
        lone.see(".list .end", "1 message shown, all there are.")


def test_what_takes_the_disk_is_counted_in_tables_with_its_largest_messages(lone: Browser, damaged: Path) -> None:
    with serving_page([service_of(MessageStore.open(damaged))]) as lone.server:
        lone.open("topics")
        lone.see(".topics tbody tr", "orders")
        lone.press("u")
        lone.see(".bar .muted", "messages, ")
        assert "hold no intact record and are not counted" in lone.see(".notice.warning").text
        for title in ("By topic", "By queue", "By tag", "By sender", "By hour, the newest first", "Largest messages"):
            assert lone.see(f"section[aria-label='{title}'] tbody tr")
        assert "(assumed)" in lone.see("section[aria-label='Growth and room']").text
        large = "section[aria-label='Largest messages'] a.open"
        assert len(lone.all(large)) == 10
        lone.click("button.more", "Show more of each")
        lone.until(lambda: len(lone.all(large)) == 100)
        lone.keep("space")
        lone.press("j", Keys.ENTER)
        lone.see(".facts", "orders")
        assert lone.complaints() == []


@pytest.fixture(scope="module")
def given_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A message that one group gave up after 16 retries, that one is beyond, and that one has not come to."""
    writer = StoreWriter(tmp_path_factory.mktemp("given-up") / "store")
    writer.append("orders", b"lost order", unique_key="7F01", keys="o-1")
    back = {"RETRY_TOPIC": "orders"}
    writer.append("%RETRY%billing", b"lost order", unique_key="7F01", properties=back, reconsume_times=16)
    writer.append("%DLQ%billing", b"lost order", unique_key="7F01", properties=back, reconsume_times=17)
    writer.close()
    config = writer.root / "config"
    config.mkdir(exist_ok=True)
    offsets = {"orders@billing": 1, "orders@mailing": 1, "orders@late": 0, "%RETRY%billing@billing": 1}
    table = {name: {"0": offset} for name, offset in {**offsets, "%DLQ%billing@billing": 1}.items()}
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    return writer.root


def test_who_consumed_it_is_the_verdict_of_its_life_on_each_of_its_records(lone: Browser, given_up: Path) -> None:
    store = MessageStore.open(given_up)
    with serving_page([service_of(store)]) as lone.server:
        gave_up = "gave up after 16 retries → DLQ"
        for topic in ("orders", "%RETRY%billing", "%DLQ%billing"):
            lone.open("message", topic=topic, queueId=0, queueOffset=0)
            lone.see(".consumed .chip.error", gave_up)
            told = {row.split()[0]: row for row in lone.texts(".consumed tbody tr")}
            assert gave_up in told["billing"]
            assert "is beyond it" in told["mailing"]
            assert "not yet" in told["late"]
            assert not lone.all(".consumed .chip.good")
            assert gave_up in lone.see(".life li", "dead letter").text
        lone.keep("given-up")
        assert lone.complaints() == []
