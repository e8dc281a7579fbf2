"""The page in a real browser, over the recorded store: finding, browsing, addresses, bodies, zones, lists."""

import csv
import io
import json
import re
import shutil
import urllib.request
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

import pytest
from selenium.webdriver.common.keys import Keys

from broker_harness import service_of
from golden_store import G1
from spark_jobs.export.export_formats import without_formula
from storage.store.message_store import MessageStore
from store_writer import StoreWriter, appended, closed_store
from web_questions import serving_page

PRODUCED = [line.split("\t") for line in (G1 / "produced.tsv").read_text("utf-8").splitlines() if line]
PLAIN = PRODUCED[0]
UNIQUE_KEY, OFFSET_ID = PLAIN[2], PLAIN[3]


def test_the_first_view_lists_the_topics_with_their_messages(browser) -> None:
    browser.open("")
    row = browser.until(lambda: [one for one in browser.texts(".topics tr") if "TopicTest" in one and "52" in one])
    assert re.search(r"TopicTest 4 52 2026-11-2\d", row[0].replace("\n", " "))
    assert browser.driver.title == "Topics · RocketLens"
    assert "broker-a · DefaultCluster" in browser.see("#store", "RocketLens").text
    browser.keep("topics")


def test_a_message_is_found_by_its_key_and_by_both_its_ids(browser) -> None:
    browser.open("")
    for text, by in (("OrderID188", "key"), (UNIQUE_KEY, "unique key"), (OFFSET_ID, "offset message id")):
        browser.find(text)
        browser.see(".messages tbody tr", f"by {by}")
    line = browser.see(".messages tbody tr", "Hello world")
    assert "TopicTest" in line.text
    # The first line has the focus: Enter opens it.
    browser.until(lambda: "open" in (browser.driver.switch_to.active_element.get_attribute("class") or ""))
    browser.press(Keys.ENTER)
    assert "Hello world" in browser.see(".body-text pre").text
    facts = browser.see(".facts").text
    for told in ("TopicTest", "OrderID188", "TagA", UNIQUE_KEY, OFFSET_ID):
        assert told in facts
    assert browser.place == "/message?offset=0"
    browser.see(".life li", "delivered")
    browser.keep("message")


def test_a_topic_is_browsed_by_queue_and_goes_on_by_cursor(browser) -> None:
    browser.open("topic", topic="TopicTest", order="oldest")
    browser.see(".list .end", "50 messages shown; there may be more.")
    browser.click("button.more")
    browser.see(".list .end", "52 messages, all there are.")
    browser.see(".histogram + details table", "CG_TAG")
    browser.keep("topic")
    browser.click("details a", "Queue 2")
    browser.see(".list .end", "13 messages, all there are.")
    assert set(browser.texts(".messages td.queue")) == {"2"}
    assert parse_qs(urlsplit(browser.place).query)["queueId"] == ["2"]
    assert browser.texts(".messages td.offset") == [str(number) for number in range(12, -1, -1)]


def test_a_bar_of_the_histogram_takes_its_time_by_mouse_and_by_keyboard(browser) -> None:
    browser.open("topic", topic="TopicTest")
    browser.see(".histogram .said", "52 messages")
    bars = browser.until(lambda: browser.all(".histogram rect.target"))
    browser.run("document.querySelector('.histogram svg').focus()")
    browser.press(Keys.ARROW_RIGHT, Keys.ENTER)
    browser.see(".list .end", "1 message, all there are.")
    whole = parse_qs(urlsplit(browser.place).query)
    assert whole["begin"] == ["1795243505450"]
    browser.click("button", "All times")
    browser.see(".list .end", "50 messages shown")
    browser.until(lambda: len(browser.all(".histogram rect.target")) == len(bars))
    targets, drawn = browser.all(".histogram rect.target"), browser.all(".histogram rect.bar")
    filled = [bar for bar, one in zip(targets, drawn, strict=True) if float(one.get_attribute("height") or 0)]
    filled[-1].click()
    browser.until(lambda: "begin=1795243506320" in browser.place)
    browser.see(".list .end", "1 message, all there are.")


def test_a_filter_tells_how_many_pass_and_lists_them_or_what_is_wrong_with_it(browser) -> None:
    browser.open("topic", topic="TopicTest")
    browser.click(".filters select option[value=sql]")
    browser.see(".filters .wide").send_keys("a >")
    browser.click("button", "How many pass?")
    assert "^" in browser.see(".notice.error", "a >").text
    assert "status of 400" in "".join(browser.complaints())
    browser.see(".filters .wide").send_keys(" 10 AND a <= 30 AND region = 'hz'")
    browser.click("button", "How many pass?")
    browser.see(".preview", "10 of 52 messages (19 %) pass.")
    browser.keep("filter")
    browser.see(".filters .wide").send_keys(Keys.ENTER)
    browser.see(".list .end", "10 messages, all there are.")
    assert "sql=a" in browser.place


def test_health_is_a_picture_with_findings_over_offsets_and_over_time(browser) -> None:
    browser.open("health")
    browser.see(".chip.good", "nothing is wrong")
    assert browser.see(".lanes svg").get_attribute("aria-label") == "Log: 100 %; Queues: 100 %; Index: 100 %"
    assert "156,014" in browser.see(".axis").text
    browser.keep("health")
    browser.click(".picture button", "over time")
    assert "06:45:45" in browser.see(".axis").text


def test_the_keyboard_alone_is_enough(browser) -> None:
    browser.open("")
    browser.see(".topics a.open", "TopicTest")
    browser.press("?")
    browser.see("dialog.help", "next and previous line")
    browser.keep("help")
    browser.press(Keys.ESCAPE)
    browser.until(lambda: not browser.all("dialog[open]"))
    browser.press("/")
    assert browser.driver.switch_to.active_element.get_attribute("id") == "text"
    browser.press("hotkey", Keys.ENTER)
    browser.see(".list .end", "40 messages")
    browser.press("j")
    browser.press("j")
    browser.press("k")
    second = browser.all(".messages a.open")[1]
    assert browser.driver.switch_to.active_element == second
    browser.press(Keys.ENTER)
    browser.see(".body-text pre", "hot 38")
    browser.press(Keys.ESCAPE)
    browser.see(".list .end", "40 messages")
    # Back is where it was left.
    assert browser.driver.switch_to.active_element == browser.all(".messages a.open")[1]
    browser.press("h")
    browser.see("h1", "Health")
    browser.see(".picture")
    browser.press("t")
    browser.see("h1", "Topics")
    browser.see(".topics tbody tr", "52")
    for _ in range(4):  # and back never leads out of the page
        browser.press(Keys.ESCAPE)
    browser.see(".topics tbody tr", "TopicTest")
    browser.until(lambda: browser.place == "/")


CATCH = """
    URL.createObjectURL = (blob) => { blob.arrayBuffer().then((data) => {
      window.savedText = new TextDecoder('utf-8', {ignoreBOM: true}).decode(data); }); return '#'; };
    HTMLAnchorElement.prototype.click = function () { window.savedAs = this.download; };
"""


def shown(browser, selector) -> list[str]:
    return [str(each.get_attribute("name")) for each in browser.all(selector) if each.is_displayed()]


def test_a_search_starts_with_two_fields_and_unfolds_where_it_has_more(browser) -> None:
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


@pytest.fixture(scope="module")
def hostile_root(tmp_path_factory):
    writer = StoreWriter(tmp_path_factory.mktemp("hostile") / "store")
    for key, body in (("=1+1", b'say "hi", twice\r\nand go'), ("+31", b"@SUM(A1)"), ("plain", "größe".encode())):
        writer.append("orders", body, keys=key, tags="-tag")
    writer.close()
    return writer.root


def test_a_list_is_saved_as_json_as_the_api_gave_it_and_as_csv_that_runs_nothing(lone, hostile_root) -> None:
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
            messages = json.load(answer)["messages"]
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


VIEWS = ("topics", "find", "message", "topic", "search", "groups", "dead-letters", "pending", "space", "health")
VIEWS += ("light-topics", "tail")


def test_what_a_view_cannot_use_of_its_address_is_reported(browser) -> None:
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
def small_root(tmp_path):
    return closed_store(tmp_path / "store", appended("orders", b"body")).root


def test_a_server_that_is_away_is_said_alike_on_every_view_and_mended_by_itself(lone, small_root) -> None:
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


@pytest.mark.parametrize("views", [("search",), pytest.param(VIEWS, marks=pytest.mark.soak)], ids=["one", "all"])
def test_a_store_that_is_gone_is_said_on_every_view(lone, small_root, views) -> None:
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


def test_json_is_a_tree_that_folds_and_keeps_every_number_as_it_is_written(lone, tmp_path) -> None:
    body = '{"id":12345678901234567890,"price":1.10,"lines":[{"a":1},{"b":[]}],"text":"{","none":{}}'
    closed_store(tmp_path / "store", appended("orders", body.encode()))
    with serving_page([service_of(MessageStore.open(tmp_path / "store"))]) as lone.server:
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
        lone.click("button", "Fold all")
        lone.until(lambda: lone.all(".json-tree details[open]") == lone.all(".json-tree > details"))
        lone.keep("json-folded")
        lone.click("button", "Unfold all")
        lone.until(lambda: json.loads(lone.see(".json-tree").text) == json.loads(body))
        assert lone.complaints() == []


ZONES = ("UTC", "Asia/Shanghai", "America/New_York", "Asia/Kathmandu")
CHANGES = (1_761_440_400_000, 1_762_063_200_000, 1_772_953_200_000, 1_774_746_000_000)
"""When the clocks of Europe and of New York were set back, and then set on."""


@pytest.fixture
def zoned(browser):
    yield browser
    browser.run("localStorage.removeItem('zone')")


def shown_in(zone: str, timestamp: int) -> str:
    moment = datetime.fromtimestamp(timestamp / 1000, UTC).astimezone(ZoneInfo(zone))
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp % 1000:03}"


def first_timestamp(browser) -> int:
    with urllib.request.urlopen(f"{browser.server}/api/v1/messages?topic=TopicTest&limit=1", timeout=60) as answer:
        return int(json.load(answer)["messages"][0]["storeTimestamp"])


def test_times_are_shown_and_typed_in_the_zone_that_was_chosen(zoned) -> None:
    first = first_timestamp(zoned)
    zoned.open("topic", topic="TopicTest", order="oldest")
    zoned.see(".messages tbody tr", shown_in("UTC", first))
    zoned.run("document.getElementById('zone').focus()")
    zoned.until(lambda: len(zoned.all("#zone option")) > 300)
    zoned.click("#zone option[value='Asia/Shanghai']")
    zoned.see(".messages tbody tr", shown_in("Asia/Shanghai", first))
    zoned.see(".messages th.stored", "Stored (Asia/Shanghai)")
    assert parse_qs(urlsplit(zoned.place).query)["zone"] == ["Asia/Shanghai"]
    zoned.keep("zone")
    # What is typed is of the zone, and what is followed stays in it.
    zoned.see(".filters .time").send_keys("2026-11-21 14:45:06.300", Keys.ENTER)
    zoned.until(lambda: "begin=1795243506300" in zoned.place)
    zoned.see(".list .end", "7 messages, all there are.")
    assert "zone=Asia%2FShanghai" in zoned.place
    zoned.click(".messages a.open")
    zoned.see(".facts", "2026-11-21 14:45:06")
    # A choice holds for the views before, too.
    zoned.press("z")
    zoned.click("#zone option[value='Asia/Tokyo']")
    zoned.see(".facts", "2026-11-21 15:45:06")
    zoned.driver.back()
    zoned.see(".messages th.stored", "Stored (Asia/Tokyo)")
    assert zoned.see(".filters .time").get_attribute("value") == "2026-11-21 15:45:06.300"
    zoned.press("z")
    zoned.click("#zone option[value='Asia/Shanghai']")
    zoned.see(".messages th.stored", "Stored (Asia/Shanghai)")
    # Also without it in the address, until another is chosen.
    zoned.open("topic", topic="TopicTest", order="oldest")
    zoned.see(".messages tbody tr", shown_in("Asia/Shanghai", first))
    assert "zone=Asia%2FShanghai" in zoned.place
    zoned.click("#zone option[value=UTC]")
    zoned.see(".messages tbody tr", shown_in("UTC", first))
    assert "zone" not in zoned.place


def test_times_around_a_change_of_clocks_are_those_of_the_zone(zoned) -> None:
    stamps = [change + quarter * 900_000 + 7 for change in CHANGES for quarter in range(-24, 25)]
    zoned.open("topics", zone="UTC")
    zoned.see(".topics a.open", "TopicTest")
    script = """
        const [zone, stamps, walls, done] = arguments;
        import('/page/format.js').then((format) => {
          format.setZone(zone);
          const shown = stamps.map((each) => format.time(each));
          const kept = shown.map((text, at) => format.parseTime(text, stamps[at]));
          done([shown, kept, walls.map((text) => format.parseTime(text))]);
        });"""
    for zone in (*ZONES, "Europe/Berlin"):
        # Times of day that clocks showed twice, and some that they left out.
        walls = [datetime.fromtimestamp(each / 1000, UTC).replace(tzinfo=None) for each in stamps]
        texts = [f"{wall:%Y-%m-%d %H:%M}" for wall in walls]
        read = [int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 1000 for text in texts]
        shown, kept, parsed = zoned.driver.execute_async_script(script, zone, stamps, texts)
        assert shown == [shown_in(zone, each) for each in stamps]
        assert kept == stamps
        assert parsed == read, zone
