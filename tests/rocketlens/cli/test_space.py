"""`rocketlens space`: what an operator and a program see of what takes the disk."""

from pathlib import Path
from typing import Any

import pytest

from command_line import rocketlens
from oracles import read_log
from space_oracle import Rows, count
from store_writer import START_TIMESTAMP, StoreWriter

HOUR_MS = 3_600_000


def maps(output: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    found = [each for each in output if each["kind"] == kind]
    assert found
    return found


def by_bytes(rows: Rows) -> list[list[int]]:
    return sorted(rows.values(), key=lambda row: (-row[1], -row[0]))


def test_a_program_gets_every_count_as_the_oracle_has_it(g1_store: Path) -> None:
    outcome = rocketlens("space", g1_store, "--json", "--top", "10000")
    assert (outcome.code, outcome.errors) == (0, "")
    expected, records = count(read_log(g1_store / "commitlog")), read_log(g1_store / "commitlog")
    (total,) = maps(outcome.messages, "total")
    assert (total["messages"], total["bytes"]) == (len(records), sum(record.total_size for record in records))
    for kind, rows in (
        ("topic", expected.topics),
        ("queue", expected.queues),
        ("tag", expected.tags),
        ("host", expected.hosts),
    ):
        found = maps(outcome.messages, kind)
        assert [[each["messages"], each["bytes"]] for each in found] == by_bytes(rows)
        assert all(each["mostBytes"] == each["bytes"] for each in found)
    by_hour = {each["hourTimestamp"]: [each["messages"], each["bytes"]] for each in maps(outcome.messages, "hour")}
    assert by_hour == {int(str(hour)) * HOUR_MS: row for hour, row in expected.hours.items()}
    largest = [(each["bytes"], each["physicalOffset"]) for each in maps(outcome.messages, "largest")]
    assert largest == expected.largest[: len(largest)]
    assert len(largest) == 100
    (forecast,) = maps(outcome.messages, "forecast")
    assert forecast["assumed"] == ["diskMaxUsedSpaceRatio", "fileReservedTime"]


def test_times_narrow_every_count(where: tuple[object, ...], g1_store: Path) -> None:
    times = sorted(record.store_timestamp for record in read_log(g1_store / "commitlog"))
    first, last = times[len(times) // 4], times[len(times) // 2]
    records = [each for each in read_log(g1_store / "commitlog") if first <= each.store_timestamp <= last]
    outcome = rocketlens("space", *where, "--since", first, "--until", last, "--json", "--top", "10000")
    (total,) = maps(outcome.messages, "total")
    assert (total["messages"], total["bytes"]) == (len(records), sum(record.total_size for record in records))
    found = [[each["messages"], each["bytes"]] for each in maps(outcome.messages, "topic")]
    assert found == by_bytes(count(records).topics)
    assert "forecast" not in {each["kind"] for each in outcome.messages}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of two days, some of it damaged."""
    writer = StoreWriter(tmp_path_factory.mktemp("space") / "store", segment_size=8192)
    for hour in range(48):
        for number in range(1 + hour % 2):
            stamp = START_TIMESTAMP + hour * HOUR_MS + number
            writer.append(f"T{hour % 3}", b"x" * 200, tags="A" if hour % 2 else None, store_timestamp=stamp)
    writer.overwrite(writer.written[7].physical_offset + 4, b"\0\0\0\0")
    writer.close()
    return writer.root


def test_a_person_gets_tables_and_what_comes_first(store: Path) -> None:
    outcome = rocketlens("space", store, "--top", "2")
    assert outcome.code == 0
    for heading in ("TOPIC", "QUEUE ID", "TAG", "SENT FROM", "HOUR", "PHYSICAL"):
        assert heading in outcome.text
    assert "71 messages, " in outcome.text
    assert "… and 46 more" in outcome.text
    for said in ("growth: ", " a day, in the ", "disk of ", "75 % (assumed)", "retention of 72 h (assumed)"):
        assert said in outcome.text
    assert "in 1 place hold no intact record and are not counted" in outcome.errors


def test_one_kind_can_be_asked_for_with_the_brokers_own_limits(store: Path, tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("fileReservedTime=24\ndiskMaxUsedSpaceRatio=60\n")
    outcome = rocketlens("space", store, "--by", "topic", "--broker-config", tmp_path / "broker.conf")
    assert "TAG" not in outcome.text
    assert "retention of 24 h: " in outcome.text
    assert "60 % of the disk" in outcome.text


def test_wrong_input_is_a_sentence(store: Path, tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("fileReservedTime=soon\n")
    outcome = rocketlens("space", store, "--broker-config", tmp_path / "broker.conf")
    assert (outcome.code, outcome.output) == (2, b"")
    assert "fileReservedTime is 'soon', expected a number" in outcome.errors
