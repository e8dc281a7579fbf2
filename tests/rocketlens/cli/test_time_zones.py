"""The zone of the times that commands show: the one that is asked for, and named above them."""

import re
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from command_line import rocketlens
from store_writer import StoreWriter

ZONE = ZoneInfo("Asia/Kathmandu")
"""Nobody's default, and no whole number of hours from UTC."""

UNIQUE_KEY = "FD000000000000000000000000000002708C30946E09687211CE0017"

TOPIC = ("--topic", "TopicTest")

COMMANDS = {
    "find": ("STORE", UNIQUE_KEY),
    "tail": ("STORE", *TOPIC, "-n", "1"),
    "life": ("STORE", "--unique-key", UNIQUE_KEY),
    "space": ("STORE", "--by", "hour"),
    "pending": ("WAITING",),
}
"""What shows times in columns."""


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    writer = StoreWriter(tmp_path_factory.mktemp("waiting") / "store")
    writer.append("SCHEDULE_TOPIC_XXXX", properties={"REAL_TOPIC": "B", "DELAY": "18"}, queue_id=17, unique_key="K5")
    writer.close()
    return writer.root


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_columns_of_times_name_the_zone_and_have_its_offset(g1_store: Path, waiting: Path, command: str) -> None:
    places = {"STORE": g1_store, "WAITING": waiting}
    arguments = [places.get(each, each) for each in COMMANDS[command]]
    text = rocketlens(command, *arguments, "--timezone", ZONE.key).text
    assert re.search(r"\b(STORED|TIME|DUE|HOUR) \(Asia/Kathmandu\)", text)
    assert re.search(r"\d\d:\d\d:\d\d\.\d{3}\+05:45\b", text)
    assert "+00:00" not in text
    shown = rocketlens(command, *arguments, "--timezone", "+08:00").text
    assert re.search(r"\b(STORED|TIME|DUE|HOUR) \(UTC\+08:00\)", shown)


def test_times_beside_names_have_the_offset(g1_store: Path) -> None:
    (message,) = rocketlens("find", g1_store, UNIQUE_KEY, "--json").messages
    stored = message["storeTimestamp"]
    moment = datetime.fromtimestamp(stored // 1000, UTC).astimezone(ZONE)
    expected = f"{moment:%Y-%m-%d %H:%M:%S}.{stored % 1000:03}+05:45 ({stored})"
    assert expected in rocketlens("find", g1_store, UNIQUE_KEY, "--full", "--timezone", ZONE.key).text
    assert "+05:45 (" in rocketlens("info", g1_store, "--timezone", ZONE.key).text


def test_the_picture_of_a_store_is_in_the_zone_that_its_first_line_names(g1_store: Path) -> None:
    first, *lines = rocketlens("doctor", g1_store, "--timezone", ZONE.key).text.splitlines()
    assert first.endswith("; times: Asia/Kathmandu")
    (times,) = (line for line in lines if line.startswith("time "))
    # g1 was recorded from 06:45:05 UTC on.
    assert times.split()[1:3] == ["2026-11-21", "12:30:05"]
