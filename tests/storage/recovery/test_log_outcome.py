"""What a start costs: bytes and messages behind the end that is put, and the segments that go."""

from pathlib import Path

import pytest

from storage.log.commit_log import CommitLog
from storage.recovery.log_outcome import LogForecast, LogOutcome, count_messages
from storage.recovery.start_place import Broker, StartFacts
from store_writer import StoreWriter, Written

SEGMENT = 8192
WHOLE_LOG = StartFacts(True, None, 0)


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    writer = StoreWriter(tmp_path, segment_size=SEGMENT)
    for number in range(200):
        writer.append("T", b"body" * 8, keys=f"k{number}")
    writer.crash()
    assert len(writer.log.segments) == 5
    return writer


def outcome(root: Path, facts: StartFacts = WHOLE_LOG, broker: Broker = Broker.FROM_5_5) -> LogOutcome:
    return LogForecast(CommitLog.open([root / "commitlog"]), [root / "commitlog"]).outcome(facts, broker)


def spoil(writer: StoreWriter, *numbers: int) -> Written:
    for number in numbers:
        writer.overwrite(writer.written[number].physical_offset, bytes(writer.written[number].size))
    return writer.written[numbers[0]]


def segments(writer: StoreWriter, *numbers: int) -> tuple[str, ...]:
    return tuple(str(writer.root / "commitlog" / f"{SEGMENT * number:020d}") for number in numbers)


def test_a_sound_log_loses_nothing_but_the_segment_made_in_advance(writer: StoreWriter) -> None:
    end = writer.written[-1].physical_offset + writer.written[-1].size
    expected = LogOutcome(Broker.FROM_5_5, 0, end, 0, 0, segments(writer, 4), True)
    assert outcome(writer.root) == expected


def test_all_behind_the_first_damage_goes_and_the_damaged_messages_are_not_counted(writer: StoreWriter) -> None:
    end = writer.written[-1].physical_offset + writer.written[-1].size
    first = spoil(writer, 60, 61, 130)
    found = outcome(writer.root)
    assert (found.start, found.end) == (0, first.physical_offset)
    assert found.cut_bytes == end - first.physical_offset
    assert found.cut_messages == 200 - 62 - 1
    assert found.deleted == segments(writer, *range(first.physical_offset // SEGMENT + 1, 5))


def test_a_start_that_does_not_come_by_the_damage_costs_nothing(writer: StoreWriter) -> None:
    spoil(writer, 60)
    end = writer.written[-1].physical_offset + writer.written[-1].size
    found = outcome(writer.root, StartFacts(False, None, end))
    assert (found.start, found.end, found.cut_bytes) == (3 * SEGMENT, end, 0)


def test_one_forecast_serves_all_brokers(writer: StoreWriter) -> None:
    spoil(writer, 60)
    directories = [writer.root / "commitlog"]
    forecast = LogForecast(CommitLog.open(directories), directories)
    assert [segment.valid_length for segment in forecast.segments][-1] == 0
    found = {broker: forecast.outcome(WHOLE_LOG, broker) for broker in Broker}
    assert {each.cut_messages for each in found.values()} == {139}


def test_many_messages_are_estimated_by_their_density(writer: StoreWriter) -> None:
    log = CommitLog.open([writer.root / "commitlog"])
    assert count_messages(log, 0) == 200
    assert count_messages(log, 0, SEGMENT) == pytest.approx(200, abs=3)
    assert count_messages(log, log.end) == 0


def test_behind_very_many_places_of_damage_messages_are_estimated(
    writer: StoreWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(writer, *range(0, 200, 2))
    log = CommitLog.open([writer.root / "commitlog"])
    assert count_messages(log, 0) == 100
    monkeypatch.setattr("storage.recovery.log_outcome.MOST_PLACES", 3)
    assert count_messages(log, 0) == pytest.approx(100, rel=0.4)
