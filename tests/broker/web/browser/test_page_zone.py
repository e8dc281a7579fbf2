"""Times in another time zone, shown and typed."""

import json
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

import pytest
from selenium.webdriver.common.keys import Keys

from storage.times import parse_time
from web_browser import Browser

ZONES = ("UTC", "Asia/Shanghai", "America/New_York", "Asia/Kathmandu")
CHANGES = (1_761_440_400_000, 1_762_063_200_000, 1_772_953_200_000, 1_774_746_000_000)
"""When the clocks of Europe and of New York were set back, and then set on."""


@pytest.fixture
def zoned(browser: Browser) -> Iterator[Browser]:
    yield browser
    browser.run("localStorage.removeItem('zone')")


def shown_in(zone: str, timestamp: int) -> str:
    """A time as the page shows it, by Python's own zones."""
    moment = datetime.fromtimestamp(timestamp / 1000, UTC).astimezone(ZoneInfo(zone))
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp % 1000:03}"


def first_timestamp(browser: Browser) -> int:
    """When the first message of TopicTest was stored."""
    with urllib.request.urlopen(f"{browser.server}/api/v1/messages?topic=TopicTest&limit=1", timeout=60) as answer:
        return int(json.load(answer)["messages"][0]["storeTimestamp"])


def test_times_are_shown_and_typed_in_the_zone_that_was_chosen(zoned: Browser) -> None:
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


def test_times_around_a_change_of_clocks_are_those_of_the_zone(zoned: Browser) -> None:
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


FROM_NOW = (
    "now", "-1h", "+90s", "now-1d12h", "-2w250ms", "yesterday 14:00", "yesterday", "today", "today  1:30:05.25",
    "tomorrow 9:30", "14:00", "2:15", "23:59:59,999",
    "20240531083000", "20240531083000123", "202405310830", "2024053108", "20241231240000", "20240531", "202405",
    "2024152", "2024", "2023365", "1717144200", "1717144200000", "20240531083", "5", "9999999999999",
)  # fmt: skip


def test_times_counted_from_now_are_those_that_commands_read(zoned: Browser) -> None:
    zoned.open("topics", zone="UTC")
    zoned.see(".topics a.open", "TopicTest")
    script = """
        const [zone, now, texts, done] = arguments, clock = Date.now;
        import('/page/format.js').then((format) => {
          format.setZone(zone);
          Date.now = () => now;
          const read = texts.map((text) => { try { return format.parseTime(text); } catch (error) { return null; } });
          Date.now = clock;
          done(read);
        });"""
    wrong = (
        "25:00",
        "yesterday 7",
        "-1y",
        "-",
        "nowish",
        "+",
        "14:60",
        "someday",
        "20241331083000",
        "20240230",
        "202413",
        "2023366",
        "202405312430",
        "1717144200000000",
    )
    for zone in (*ZONES, "Europe/Berlin"):
        for now in (CHANGES[0] - 40_000_000, CHANGES[1] + 30_000_007, CHANGES[3] + 5_000_000):
            found = zoned.driver.execute_async_script(script, zone, now, [*FROM_NOW, *wrong])
            assert found[: len(FROM_NOW)] == [parse_time(text, ZoneInfo(zone), now) for text in FROM_NOW], (zone, now)
            assert found[len(FROM_NOW) :] == [None] * len(wrong)
