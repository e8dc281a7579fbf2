"""Where the next start of a broker goes on, and how far its recovery walks."""

import os
from pathlib import Path

import pytest

from doctoring import put
from oracles import BLANK_MAGIC, packed
from protocol.errors import StoreError
from storage.layout.checkpoint import Checkpoint
from storage.layout.store_layout import recognise_store
from storage.log.commit_log import CommitLog
from storage.recovery._broker_walk import RULES, BrokerWalk
from storage.recovery.log_outcome import LogForecast, LogOutcome
from storage.recovery.queue_ends import recovered_queues, recovered_queues_end
from storage.recovery.queue_outcome import QueueOutcome, doomed_index_files, queue_outcomes
from storage.recovery.start_place import Broker, SegmentHead, StartFacts, recovery_start
from storage.recovery.start_refusals import EVERY, FROM_5, foretell_refusals
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

NEWER = (Broker.FROM_5_5, Broker.FROM_5_3_1)
HEADS = [SegmentHead(base, 10_000 + base) for base in (0, 1000, 2000, 3000)]


def start(heads, *, crashed, queues_end=10**9, brokers=NEWER, **checkpoint):
    fields = dict.fromkeys(Checkpoint.__dataclass_fields__, 0) | checkpoint
    return recovery_start(heads, StartFacts(crashed, Checkpoint(**fields), queues_end), brokers)


def test_a_start_begins_where_queues_and_checkpoint_say() -> None:
    # After a clean stop it is the last segment that the queues reach.
    assert start(HEADS, crashed=False) == 3000
    assert start(HEADS, crashed=False, queues_end=3000) == 3000
    assert start(HEADS, crashed=False, queues_end=2999) == 2000
    # A segment without a first record is stepped over.
    assert start([*HEADS[:3], SegmentHead(3000, 0)], crashed=False) == 2000
    # After a crash the checkpoint of an older broker counts less three seconds.
    times = {"physic_msg_timestamp": 15_000, "logics_msg_timestamp": 15_000}
    assert start(HEADS, crashed=True, **times) == 2000
    assert start(HEADS, crashed=True, physic_msg_timestamp=14_999, logics_msg_timestamp=20_000) == 1000
    # After a crash the offset of a newer checkpoint counts if it is the earlier place.
    times = {"physic_msg_timestamp": 99_000, "logics_msg_timestamp": 99_000}
    assert start(HEADS, crashed=True, logics_physical_offset=2500, **times) == 2000
    assert start(HEADS, crashed=True, logics_physical_offset=999, **times) == 0
    # After a crash a checkpoint of zeros means the whole log.
    assert start(HEADS, crashed=True) == 0
    assert recovery_start(HEADS, StartFacts(True, None, 0), NEWER) == 0


@pytest.mark.parametrize(("count", "first"), [(10, 0), (11, 1)])
@pytest.mark.parametrize("crashed", [True, False])
def test_brokers_from_5_5_on_walk_ten_segments_at_most(count: int, first: int, crashed: bool) -> None:
    heads = [SegmentHead(1000 * number, 99) for number in range(count)]
    assert start(heads, crashed=crashed, queues_end=-1, brokers=(Broker.FROM_5_5,)) == 1000 * first
    assert start(heads, crashed=crashed, queues_end=-1, brokers=(Broker.FROM_5_3_1,)) == 0


@pytest.mark.parametrize(("count", "first"), [(3, 0), (4, 1)])
def test_brokers_up_to_5_3_0_walk_the_last_three_segments_after_a_clean_stop(count: int, first: int) -> None:
    heads = [SegmentHead(1000 * number, 99) for number in range(count)]
    assert start(heads, crashed=False, brokers=(Broker.FROM_5_0, Broker.UP_TO_4_9)) == 1000 * first


QUEUE_FILE = 100
OLD = (Broker.UP_TO_4_9,)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with StoreWriter(
        tmp_path / "store", queue_file_size=QUEUE_FILE, batch_queue_file_size=92, segment_size=4096
    ) as writer:
        for _ in range(40):
            writer.append("T", b"x" * 200)
            writer.append_inner_batch("B", [(b"one", {}), (b"two", {})])
    return writer.root


def refusals(root):
    return foretell_refusals(recognise_store(root), lambda topic: topic == "B")


def refused_by(root: Path) -> dict[str, tuple[Broker, ...]]:
    return {str(each.path.relative_to(root)): each.brokers for each in refusals(root)}


@pytest.mark.parametrize("directory", ["commitlog", "consumequeue/T/0", "batchconsumequeue/B/0"])
def test_an_empty_file_is_refused_unless_it_is_the_last_which_newer_brokers_delete(root: Path, directory: str) -> None:
    first, *_, last = sorted((root / directory).iterdir())
    knows_batches = EVERY if "batch" not in directory else FROM_5
    last.write_bytes(b"")
    assert refused_by(root) == ({f"{directory}/{last.name}": OLD} if knows_batches is EVERY else {})
    first.write_bytes(b"")
    assert refused_by(root)[f"{directory}/{first.name}"] == knows_batches


@pytest.mark.parametrize("directory", ["commitlog", "consumequeue/T/0"])
def test_a_file_of_another_size_and_a_name_that_is_no_number_are_refused_by_all(root: Path, directory: str) -> None:
    first, *_ = sorted((root / directory).iterdir())
    first.write_bytes(first.read_bytes()[:-1])
    (root / directory / "notes").write_bytes(bytes(4096 if directory == "commitlog" else QUEUE_FILE))
    assert refused_by(root) == {f"{directory}/{first.name}": EVERY, f"{directory}/notes": EVERY}


def test_a_directory_is_refused_among_the_files_of_a_queue_by_old_brokers_and_in_the_index_by_newer(root: Path) -> None:
    (root / "consumequeue" / "T" / "0" / "lost+found").mkdir()
    (root / "consumequeue" / "T" / "x").mkdir()
    for name in ("20260101000000999", "20260101000000001000", "notes"):  # the second is no number of 64 bits
        (root / "index" / name).mkdir(parents=True)
    assert refused_by(root) == {"consumequeue/T/0/lost+found": OLD, "index/20260101000000999": FROM_5}


def test_a_file_of_config_is_refused_where_its_backup_does_not_parse_either(root: Path) -> None:
    config = root / "config"
    (config / "consumerOffset.json").write_bytes(bytes(10))
    assert refusals(root) == []  # without a backup a broker starts as if nothing had been in it
    (config / "consumerOffset.json.bak").write_bytes(b"")
    assert refusals(root) == []
    (config / "consumerOffset.json.bak").write_text("{")
    (config / "consumerOrderInfo.json.bak").write_text("{")
    assert refused_by(root) == {"config/consumerOffset.json": EVERY, "config/consumerOrderInfo.json": FROM_5}
    (config / "consumerOffset.json").write_text("{}")
    assert refused_by(root) == {"config/consumerOrderInfo.json": FROM_5}


UNIT = 20
IN_FILE = 10
COUNT = 58


@pytest.fixture
def queued(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def written(queued):
    with StoreWriter(queued, queue_file_size=UNIT * IN_FILE, index_slots=7, index_entries=40) as writer:
        found = [writer.append("T", b"body", keys=f"k{number}") for number in range(COUNT)]
    return found


def file_of(queued: Path, number: int) -> Path:
    return queued / "consumequeue" / "T" / "0" / f"{number // IN_FILE * IN_FILE * UNIT:020d}"


def outcomes(queued: Path, log_end: int, dispatched_from: int) -> list[QueueOutcome]:
    log = MessageStore.open(queued).commit_log
    return list(queue_outcomes(recovered_queues(queued), log, log_end, dispatched_from))


@pytest.mark.parametrize("number", [31, 40, 56])
def test_behind_damage_in_the_last_three_files_all_units_go(queued, written, number) -> None:
    put(file_of(queued, number), number % IN_FILE * UNIT, bytes(UNIT))
    after = number + 1 if number % IN_FILE else number + IN_FILE
    number += IN_FILE * (number % IN_FILE == 0)  # of a file that is the last one the first unit is not looked at
    end = written[-1].physical_offset + written[-1].size
    first = (number + IN_FILE - 1) // IN_FILE * IN_FILE
    deleted = tuple(str(file_of(queued, each)) for each in range(first, COUNT, IN_FILE))
    path = str(queued / "consumequeue" / "T" / "0")
    assert outcomes(queued, end, end) == [QueueOutcome(path, "T", 0, number, COUNT - after, deleted)]
    place = written[52].physical_offset  # from there on all is put into its queues again
    left = max(52 - after, 0)
    expected = [QueueOutcome(path, "T", 0, number, left, deleted)] if left or deleted else []
    assert outcomes(queued, end, place) == expected


@pytest.mark.parametrize("number", [1, 20, 57])
def test_what_leads_behind_the_end_of_the_log_is_cut_and_nothing_before_it_lost(queued, written, number) -> None:
    (queue,) = recovered_queues(queued)
    cut = queue.cut_at(written[number].physical_offset)
    assert cut.end == number * UNIT
    kept = (number + IN_FILE - 1) // IN_FILE
    assert [path for _, path in cut.files] == [file_of(queued, IN_FILE * each) for each in range(kept)]
    assert set(cut.deleted) == {file_of(queued, IN_FILE * each) for each in range(kept, 6)}
    assert all(each.lost == 0 for each in outcomes(queued, written[number].physical_offset, 1 << 40))


def test_index_files_that_the_checkpoint_does_not_know_go_after_a_crash(queued, written) -> None:
    files = sorted((queued / "index").iterdir())
    assert len(files) > 1
    assert doomed_index_files(queued / "index", None) == files
    first_end = int.from_bytes(files[0].read_bytes()[8:16])
    assert doomed_index_files(queued / "index", Checkpoint(0, 0, first_end, 0, 0, 0)) == files[1:]
    files[1].write_bytes(b"short")  # a broker extends it with zeros
    assert doomed_index_files(queued / "index", None) == [files[0], *files[2:]]
    assert doomed_index_files(queued / "nowhere", None) == []


@pytest.fixture
def queues(tmp_path: Path) -> Path:
    with StoreWriter(tmp_path / "store") as writer:
        for number in range(6):
            writer.append(f"T{number % 2}", b"x", queue_id=number % 3)
    return writer.root / "consumequeue"


@pytest.mark.parametrize("below", ["", "T1/2"])
def test_a_directory_that_cannot_be_listed_is_no_empty_one(queues, below, monkeypatch) -> None:
    refused, scandir = queues / below, os.scandir

    def refuse(path="."):
        if Path(path) == refused:
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(StoreError, match="Permission denied") as caught:
        recovered_queues_end(queues.parent)
    assert str(refused) in str(caught.value)


SEGMENT = 8192


def walk(root, broker=Broker.FROM_5_5, most_bytes=1 << 30):
    return BrokerWalk(CommitLog.open([root / "commitlog"]).segments, most_bytes, RULES[broker])


@pytest.fixture
def writer(tmp_path):
    with StoreWriter(tmp_path, segment_size=SEGMENT) as writer:
        for number in range(200):
            writer.append("T", b"body" * 8, keys=f"k{number}", property_crc=number % 9 == 3)
    assert len(writer.log.segments) == 4
    return writer


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
    with StoreWriter(tmp_path, segment_size=SEGMENT) as writer:
        for _ in range(0 if is_first else 3):
            writer.append("T", b"before")
        delayed = writer.append("SCHEDULE_TOPIC_XXXX", b"x", properties={"DELAY": "1" * len(level)})
        value = delayed.record.index(b"DELAY") + len(b"DELAY\x01")
        writer.overwrite(delayed.physical_offset + value, level.encode())
        writer.append("T", b"behind")
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
    assert walk(writer.root, broker).end_from(0) == (writer.log.end if goes_on else damaged.physical_offset)


def test_a_broker_of_4_x_parses_delays_and_no_numbers_of_batches(tmp_path) -> None:
    with StoreWriter(tmp_path, segment_size=SEGMENT) as writer:
        writer.append("T", b"first")
        batch = writer.append("T", b"x", properties={"INNER_NUM": "many", "INNER_BASE": "0"})
        delayed = writer.append("SCHEDULE_TOPIC_XXXX", b"x", properties={"DELAY": "1"})
        writer.append("T", b"last")
    writer.overwrite(delayed.physical_offset + delayed.record.index(b"DELAY\x01") + len("DELAY "), b"x")
    assert walk(tmp_path, Broker.FROM_5_0).end_from(0) == batch.physical_offset
    assert walk(tmp_path, Broker.UP_TO_4_9).end_from(0) == delayed.physical_offset


@pytest.fixture
def crashed(tmp_path):
    crashed = StoreWriter(tmp_path, segment_size=SEGMENT)
    for number in range(200):
        crashed.append("T", b"body" * 8, keys=f"k{number}")
    crashed.crash()
    assert len(crashed.log.segments) == 5
    return crashed


def outcome(root):
    forecast = LogForecast(CommitLog.open([root / "commitlog"]), [root / "commitlog"])
    return forecast.outcome(StartFacts(True, None, 0), Broker.FROM_5_5)


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
    assert (found.cut_bytes, found.cut_messages) == (end - first.physical_offset, 200 - 62 - 1)
    assert found.deleted == segments(crashed, *range(first.physical_offset // SEGMENT + 1, 5))


def test_what_is_not_read_is_taken_for_sound_and_said_to_be_unread(writer: StoreWriter) -> None:
    damaged = in_segment(writer, 2)[4]
    writer.overwrite(damaged.physical_offset, bytes(8))
    walked = walk(writer.root, most_bytes=2 * SEGMENT)
    walked.end_from(0)
    assert not walked.is_complete
    walked = walk(writer.root, most_bytes=3 * SEGMENT)
    assert walked.end_from(0) == damaged.physical_offset
    assert walked.is_complete
