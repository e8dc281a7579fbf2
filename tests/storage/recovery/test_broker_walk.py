"""Where a broker's recovery ends the log, and what that costs (store-format §2.8, §6.3)."""

import pytest

from oracles import BLANK_MAGIC, packed
from storage.log.commit_log import CommitLog
from storage.recovery._broker_walk import RULES, BrokerWalk
from storage.recovery.log_outcome import LogForecast, LogOutcome
from storage.recovery.start_place import Broker, SegmentHead, StartFacts
from store_writer import StoreWriter

SEGMENT = 8192


def walk(root, most_bytes=1 << 30):
    return BrokerWalk(CommitLog.open([root / "commitlog"]).segments, most_bytes)


@pytest.fixture
def writer(tmp_path):
    writer = StoreWriter(tmp_path, segment_size=SEGMENT)
    for number in range(200):
        writer.append("T", b"body" * 8, keys=f"k{number}", property_crc=number % 9 == 3)
    writer.close()
    assert len(writer.log.segments) == 4
    return writer


def walk_of(root, broker):
    return BrokerWalk(CommitLog.open([root / "commitlog"]).segments, 1 << 30, RULES[broker])


def in_segment(writer, number):
    return [each for each in writer.written if each.physical_offset // SEGMENT == number]


@pytest.mark.parametrize("number", [0, 3])
def test_zeros_end_it_for_a_walk_that_starts_before_them(writer: StoreWriter, number: int) -> None:
    damaged = in_segment(writer, number)[2]
    writer.overwrite(damaged.physical_offset, bytes(damaged.size))
    walked = walk(writer.root)
    ends = [walked.end_from(start) for start in range(4)]
    assert ends == [damaged.physical_offset] * (number + 1) + [writer.log.end] * (3 - number)


@pytest.mark.parametrize(("level", "is_number"), [("99", True), ("99999999999", False)])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_property_that_must_be_a_number_ends_it_where_it_is_none(tmp_path, level, is_number, is_first) -> None:
    writer = StoreWriter(tmp_path, segment_size=SEGMENT)
    for _ in range(0 if is_first else 3):
        writer.append("T", b"before")
    delayed = writer.append("SCHEDULE_TOPIC_XXXX", b"x", properties={"DELAY": "1" * len(level)})
    value = delayed.record.index(b"DELAY") + len(b"DELAY\x01")
    writer.overwrite(delayed.physical_offset + value, level.encode())
    writer.append("T", b"behind")
    writer.close()
    walked = walk(tmp_path)
    assert walked.end_from(0) == (writer.log.end if is_number else delayed.physical_offset)
    if is_first:
        assert walked.head(0).timestamp == (delayed.store_timestamp if is_number else 0)


def test_heads_are_checked_as_each_broker_checks_them(writer: StoreWriter) -> None:
    first = in_segment(writer, 1)[0]
    assert walk(writer.root).head(1) == SegmentHead(SEGMENT, first.store_timestamp)
    writer.overwrite(first.physical_offset + 90, b"\xff")
    assert walk(writer.root).head(1) == SegmentHead(SEGMENT, 0)
    assert walk(writer.root).head(1, is_checked=False) == SegmentHead(SEGMENT, first.store_timestamp)
    writer.overwrite(first.physical_offset + 4, b"\xff")
    assert walk(writer.root).head(1, is_checked=False) == SegmentHead(SEGMENT, 0)


def test_no_more_doubtful_records_are_looked_at_than_take_no_time(writer, monkeypatch) -> None:
    monkeypatch.setattr("storage.recovery._broker_walk.MOST_DOUBTFUL", 3)
    for each in in_segment(writer, 1)[:5]:
        writer.overwrite(each.physical_offset + 28, packed(-1, 8))
    walked = walk(writer.root)
    assert walked.end_from(0) >= writer.log.end
    assert not walked.is_complete


@pytest.mark.parametrize(("broker", "goes_on"), [(Broker.FROM_5_5, False), (Broker.FROM_5_0, True)])
def test_old_brokers_believe_a_blank_that_reaches_beyond_its_file(writer, broker, goes_on) -> None:
    damaged = in_segment(writer, 1)[4]
    writer.overwrite(damaged.physical_offset, packed(2**31 - 1, 4) + BLANK_MAGIC.to_bytes(4, "big"))
    assert walk_of(writer.root, broker).end_from(0) == (writer.log.end if goes_on else damaged.physical_offset)


def test_a_broker_of_4_x_parses_delays_and_no_numbers_of_batches(tmp_path) -> None:
    writer = StoreWriter(tmp_path, segment_size=SEGMENT)
    writer.append("T", b"first")
    batch = writer.append("T", b"x", properties={"INNER_NUM": "many", "INNER_BASE": "0"})
    delayed = writer.append("SCHEDULE_TOPIC_XXXX", b"x", properties={"DELAY": "1"})
    writer.append("T", b"last")
    writer.close()
    writer.overwrite(delayed.physical_offset + delayed.record.index(b"DELAY\x01") + len("DELAY "), b"x")
    assert walk_of(tmp_path, Broker.FROM_5_0).end_from(0) == batch.physical_offset
    assert walk_of(tmp_path, Broker.UP_TO_4_9).end_from(0) == delayed.physical_offset


WHOLE_LOG = StartFacts(True, None, 0)


@pytest.fixture
def crashed(tmp_path):
    crashed = StoreWriter(tmp_path, segment_size=SEGMENT)
    for number in range(200):
        crashed.append("T", b"body" * 8, keys=f"k{number}")
    crashed.crash()
    assert len(crashed.log.segments) == 5
    return crashed


def outcome(root, facts=WHOLE_LOG, broker=Broker.FROM_5_5):
    return LogForecast(CommitLog.open([root / "commitlog"]), [root / "commitlog"]).outcome(facts, broker)


def spoil(crashed, *numbers):
    for number in numbers:
        crashed.overwrite(crashed.written[number].physical_offset, bytes(crashed.written[number].size))
    return crashed.written[numbers[0]]


def segments(crashed: StoreWriter, *numbers: int) -> tuple[str, ...]:
    return tuple(str(crashed.root / "commitlog" / f"{SEGMENT * number:020d}") for number in numbers)


def test_a_sound_log_loses_nothing_but_the_segment_made_in_advance(crashed: StoreWriter) -> None:
    end = crashed.written[-1].physical_offset + crashed.written[-1].size
    expected = LogOutcome(Broker.FROM_5_5, 0, end, 0, 0, segments(crashed, 4), True)
    assert outcome(crashed.root) == expected


def test_all_behind_the_first_damage_goes_and_the_damaged_messages_are_not_counted(crashed) -> None:
    end = crashed.written[-1].physical_offset + crashed.written[-1].size
    first = spoil(crashed, 60, 61, 130)
    found = outcome(crashed.root)
    assert (found.start, found.end) == (0, first.physical_offset)
    assert found.cut_bytes == end - first.physical_offset
    assert found.cut_messages == 200 - 62 - 1
    assert found.deleted == segments(crashed, *range(first.physical_offset // SEGMENT + 1, 5))


def test_what_is_not_read_is_taken_for_sound_and_said_to_be_unread(writer: StoreWriter) -> None:
    damaged = in_segment(writer, 2)[4]
    writer.overwrite(damaged.physical_offset, bytes(8))
    walked = walk(writer.root, 2 * SEGMENT)
    walked.end_from(0)
    assert not walked.is_complete
    walked = walk(writer.root, 3 * SEGMENT)
    assert walked.end_from(0) == damaged.physical_offset
    assert walked.is_complete
