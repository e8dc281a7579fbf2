"""Plain queues: their units, where they end and begin, whatever a broker, a crash or a copy left behind."""

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from golden_frames import sessions, value_of
from lookups import at_once, wait_of
from oracles import Record, java_hash, queue_unit, read_log
from protocol.codes import RequestCode
from queue_stores import PRE_BLANK_UNIT, open_queues, unit_bytes, write_units
from storage.queue.consume_queue import UNIT, UNIT_DTYPE, ConsumeQueue
from storage.queue.queue import ConsumeQueueEntry, Queue
from store_files import write_file
from store_writer import StoreWriter

FILE_SIZE = 100  # five units a file


def make_store(root: Path, messages: int = 12, topic: str = "T", **options: object) -> StoreWriter:
    """A store of one topic with two queues, messages by turns; queue 0 gets the even ones."""
    writer = StoreWriter(root, queue_file_size=FILE_SIZE, **options)  # type: ignore[arg-type]
    for number in range(messages):
        writer.append(topic, b"body %d" % number, queue_id=number % 2, tags=f"Tag{number % 3}")
    writer.flush()
    return writer


def queue_of(root: Path, topic: str = "T", queue_id: int = 0) -> ConsumeQueue:
    queue = open_queues(root)[0].queue(topic, queue_id)
    assert isinstance(queue, ConsumeQueue)
    return queue


def directory_of(root: Path, topic: str = "T", queue_id: int = 0) -> Path:
    return root / "consumequeue" / topic / str(queue_id)


def offsets(queue: Queue) -> list[int]:
    return [entry.physical_offset for entry in queue.entries(queue.min_offset, 10_000)]


def written_offsets(writer: StoreWriter, queue_id: int = 0) -> list[int]:
    return [written.physical_offset for written in writer.written if written.queue_id == queue_id]


# --- what a broker recorded -------------------------------------------------------------------------------------------


def queues_by_oracle(root: Path) -> dict[tuple[str, int], list[Record]]:
    found: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for record in read_log(root / "commitlog"):
        if record.sys_flag & 0xC in (0, 8):
            found[record.topic, record.queue_id].append(record)
    return found


@pytest.mark.parametrize("store", ["g1_store", "g1_crashed_store"])
def test_the_recorded_queues_hold_a_unit_for_each_message_of_the_log(
    store: str, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(store)
    store_queues, _ = open_queues(root)
    expected = queues_by_oracle(root)
    assert {(topic, number) for topic in store_queues.topics() for number in store_queues.queue_ids(topic)} == set(
        expected
    )
    assert len(expected) == 17
    for (topic, number), records in expected.items():
        queue = queue_of(root, topic, number)
        assert (queue.min_offset, queue.max_offset) == (0, len(records))
        assert queue.units().tobytes() == b"".join(map(queue_unit, records))
        assert [entry.queue_offset for entry in queue.entries(0, 1000)] == list(range(len(records)))


def test_the_recorded_answer_to_query_cq_is_what_the_queue_holds(g1_store: Path) -> None:
    exchange = next(
        exchange
        for session in sessions()
        for exchange in session.exchanges()
        if exchange.code == RequestCode.QUERY_CONSUME_QUEUE
    )
    assert exchange.recorded is not None
    recorded = value_of(exchange.recorded.body)
    fields = exchange.ext_fields
    queue = queue_of(g1_store, fields["topic"], int(fields["queueId"]))
    assert (queue.min_offset, queue.max_offset) == (recorded["minQueueIndex"], recorded["maxQueueIndex"])
    entries = queue.entries(int(fields["index"]), int(fields["count"]))
    assert [(entry.physical_offset, entry.size, entry.tags_code) for entry in entries] == [
        (unit["physicOffset"], unit["physicSize"], unit["tagsCode"]) for unit in recorded["queueData"]
    ]


@pytest.mark.parametrize(
    ("code", "bound"), [(RequestCode.GET_MAX_OFFSET, "max_offset"), (RequestCode.GET_MIN_OFFSET, "min_offset")]
)
def test_the_recorded_bounds_are_the_queues(code: int, bound: str, g1_store: Path) -> None:
    exchanges = [found for found in sessions()[0].exchanges() if found.code == code]
    assert len(exchanges) == 10
    for exchange in exchanges:
        assert exchange.recorded is not None
        fields = exchange.ext_fields
        queue = open_queues(g1_store)[0].queue(fields["topic"], int(fields["queueId"]))
        assert str(0 if queue is None else getattr(queue, bound)) == exchange.recorded.ext_fields["offset"]


def test_the_recorded_topic_status_bounds_are_the_queues(g1_store: Path) -> None:
    exchange = next(found for found in sessions()[0].exchanges() if found.code == RequestCode.GET_TOPIC_STATS_INFO)
    assert exchange.recorded is not None
    for name, bounds in value_of(exchange.recorded.body)["offsetTable"].items():
        place = json.loads(name)
        queue = open_queues(g1_store)[0].queue(place["topic"], place["queueId"])
        found = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
        assert found == (bounds["minOffset"], bounds["maxOffset"])


# --- entries ----------------------------------------------------------------------------------------------------------


def test_entries_run_on_across_files(tmp_path: Path) -> None:
    writer = make_store(tmp_path, 24)
    queue = queue_of(tmp_path)
    assert offsets(queue) == written_offsets(writer)
    assert [entry.queue_offset for entry in queue.entries(3, 4)] == [3, 4, 5, 6]
    assert queue.entry_at(7) == ConsumeQueueEntry(
        7, written_offsets(writer)[7], writer.written[14].size, java_hash("Tag2")
    )


@pytest.mark.parametrize("queue_offset", [-1, 6, 7, 1 << 62, -(1 << 63)])
def test_outside_its_bounds_a_queue_has_no_entry(queue_offset: int, tmp_path: Path) -> None:
    make_store(tmp_path)
    queue = queue_of(tmp_path)
    assert queue.entry_at(queue_offset) is None
    assert queue.entries(queue_offset, 5) == []
    assert at_once(queue.walk(queue_offset, 5)) is None
    assert queue.store_timestamp_at(queue_offset) == -1


def test_a_walk_ends_with_the_file(tmp_path: Path) -> None:
    make_store(tmp_path, 24)
    queue = queue_of(tmp_path)
    walked = at_once(queue.walk(3, 100))
    assert walked is not None
    assert [unit[:2] for unit in walked] == [(3, 4), (4, 5)]


def test_the_store_time_of_an_entry_is_its_records(tmp_path: Path) -> None:
    writer = make_store(tmp_path)
    queue = queue_of(tmp_path, queue_id=1)
    expected = [written.store_timestamp for written in writer.written if written.queue_id == 1]
    assert [queue.store_timestamp_at(number) for number in range(6)] == expected


def test_the_dtype_reads_what_the_struct_packs() -> None:
    units = np.frombuffer(UNIT.pack(1 << 40, 300, -5) + unit_bytes(2, 3, 4), UNIT_DTYPE)
    assert [tuple(int(value) for value in unit) for unit in units] == [(1 << 40, 300, -5), (2, 3, 4)]


# --- where a queue ends -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("messages", [2, 8, 10, 12, 20, 22, 30, 32])
def test_a_queue_ends_behind_its_last_unit(messages: int, tmp_path: Path) -> None:
    make_store(tmp_path, messages)
    assert queue_of(tmp_path).max_offset == messages // 2


def test_an_empty_directory_is_an_empty_queue(tmp_path: Path) -> None:
    make_store(tmp_path)
    directory_of(tmp_path, "T", 5).mkdir()
    queue = queue_of(tmp_path, queue_id=5)
    assert (queue.min_offset, queue.max_offset, at_once(queue.newest_physical_offset())) == (0, 0, -1)
    assert queue.entries(0, 5) == []
    assert queue.units().size == 0


def test_a_file_of_zeros_is_an_empty_queue(tmp_path: Path) -> None:
    make_store(tmp_path)
    write_units(directory_of(tmp_path, "T", 5), 0, [], FILE_SIZE)
    assert (queue_of(tmp_path, queue_id=5).min_offset, queue_of(tmp_path, queue_id=5).max_offset) == (0, 0)


def test_a_file_of_zeros_behind_full_ones_changes_nothing(tmp_path: Path) -> None:
    make_store(tmp_path, 20)
    write_units(directory_of(tmp_path), 2 * FILE_SIZE, [], FILE_SIZE)
    assert queue_of(tmp_path).max_offset == 10


def test_foreign_names_empty_files_and_directories_are_ignored(tmp_path: Path) -> None:
    make_store(tmp_path)
    directory = directory_of(tmp_path)
    (directory / "00000000000000000400").touch()
    (directory / "notes.txt").write_text("units?")
    (directory / "00000000000000000200").mkdir()
    (directory / "0000000000000000300").write_bytes(b"\1" * FILE_SIZE)
    (directory / "00000000000000000207").write_bytes(b"\1" * FILE_SIZE)
    assert queue_of(tmp_path).max_offset == 6


@pytest.mark.parametrize("size", [20, 40, 139, 1000])
def test_the_size_of_a_queues_files_is_read_off_them(size: int, tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, queue_file_size=size - size % 20)
    for number in range(120):
        writer.append("T", b"%d" % number)
    writer.flush()
    for path in directory_of(tmp_path).iterdir():
        write_file(path, path.stat().st_size + size % 20, {})
    assert offsets(queue_of(tmp_path)) == written_offsets(writer)


def test_a_file_cut_short_ends_there_and_the_next_goes_on(tmp_path: Path) -> None:
    writer = make_store(tmp_path, 24)
    with (directory_of(tmp_path) / f"{FILE_SIZE:020d}").open("r+b") as file:
        file.truncate(45)
    queue = queue_of(tmp_path)
    assert queue.max_offset == 12
    assert queue.entry_at(6) is not None
    assert queue.entry_at(7) is None
    assert at_once(queue.walk(8, 5)) is None
    hole = queue.hole_at(8)
    assert (hole.first, hole.stop, hole.lost) == (7, 10, 0)
    assert [queue.message_in_log(number) for number in (7, 8, 9)] == written_offsets(writer)[7:10]
    assert queue.entries(10, 9)[1].physical_offset == written_offsets(writer)[11]


@pytest.mark.parametrize("lost", [1, 2, 5])
def test_lost_units_do_not_end_the_queue_where_later_ones_hold(tmp_path: Path, lost: int) -> None:
    writer = make_store(tmp_path, 50)
    write_file(directory_of(tmp_path) / f"{3 * FILE_SIZE:020d}", FILE_SIZE, {40: bytes(20 * min(lost, 3))})
    queue = queue_of(tmp_path)
    assert queue.max_offset == 25
    found = [queue.message_in_log(number) for number in range(17, 17 + min(lost, 3))]
    assert found == written_offsets(writer)[17 : 17 + min(lost, 3)]


def test_messages_of_the_last_units_are_found_in_the_log_where_these_are_damaged(tmp_path: Path) -> None:
    writer = make_store(tmp_path, 50)
    phantom = unit_bytes(10**9, 100, 7)
    path = directory_of(tmp_path) / f"{3 * FILE_SIZE:020d}"
    write_file(path, FILE_SIZE, {40: bytes(20) + phantom * 2 + bytes(FILE_SIZE - 100)})
    (path.parent / f"{4 * FILE_SIZE:020d}").unlink()
    queue = queue_of(tmp_path)
    assert queue.max_offset == 25
    assert [queue.message_in_log(number) for number in range(17, 25)] == written_offsets(writer)[17:25]


def test_units_of_which_the_log_has_no_message_do_not_lengthen_the_queue(tmp_path: Path) -> None:
    make_store(tmp_path, 24)
    path = directory_of(tmp_path) / f"{2 * FILE_SIZE:020d}"
    write_file(path, FILE_SIZE, {40: unit_bytes(10**9, 100, 7) + unit_bytes(3, 100, 7)})
    assert queue_of(tmp_path).max_offset == 12


def test_an_invalid_unit_before_the_last_three_files_ends_nothing(tmp_path: Path) -> None:
    make_store(tmp_path, 50)
    write_file(directory_of(tmp_path) / f"{FILE_SIZE:020d}", FILE_SIZE, {40: bytes(20)})
    assert queue_of(tmp_path).max_offset == 25


def test_units_beyond_the_end_of_the_log_are_left_out(tmp_path: Path) -> None:
    writer = make_store(tmp_path, 24)
    last = written_offsets(writer)[9]
    writer.overwrite(last, bytes(writer.log.end - last))  # the log ends here
    queue = queue_of(tmp_path)
    assert queue.max_offset == 9
    assert at_once(queue.newest_physical_offset()) == written_offsets(writer)[8]


def test_stale_units_that_point_to_another_queues_records_are_left_out(tmp_path: Path) -> None:
    writer = make_store(tmp_path, 12)
    own, other = written_offsets(writer), written_offsets(writer, 1)
    sizes = {written.physical_offset: written.size for written in writer.written}
    stale = [(place, sizes[place], 7) for place in other[-2:]]
    write_file(directory_of(tmp_path) / f"{FILE_SIZE:020d}", FILE_SIZE, {20: b"".join(unit_bytes(*u) for u in stale)})
    assert offsets(queue_of(tmp_path)) == own


def test_stale_units_that_repeat_a_message_of_the_queue_are_left_out(tmp_path: Path) -> None:
    writer = make_store(tmp_path, 12)
    own = written_offsets(writer)
    again = b"".join(unit_bytes(place, writer.written[0].size, 7) for place in own[2:4])
    write_file(directory_of(tmp_path) / f"{FILE_SIZE:020d}", FILE_SIZE, {20: again})
    assert offsets(queue_of(tmp_path)) == own


@pytest.mark.parametrize("shift", [1, 40])
def test_stale_units_that_point_into_the_middle_of_records_are_left_out(shift: int, tmp_path: Path) -> None:
    writer = make_store(tmp_path, 12)
    own = written_offsets(writer)
    stale = unit_bytes(own[-1] + shift, 100, 0)
    write_file(directory_of(tmp_path) / f"{FILE_SIZE:020d}", FILE_SIZE, {20: stale})
    assert offsets(queue_of(tmp_path)) == own


def test_units_whose_size_runs_out_of_the_log_are_left_out(tmp_path: Path) -> None:
    writer = make_store(tmp_path, 12)
    own = written_offsets(writer)
    write_file(directory_of(tmp_path) / f"{FILE_SIZE:020d}", FILE_SIZE, {20: unit_bytes(own[-1], 1 << 30, 0)})
    assert offsets(queue_of(tmp_path)) == own


def test_behind_a_lost_unit_the_rest_stay_although_their_records_count_otherwise(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, queue_file_size=FILE_SIZE)
    for number in range(8):
        writer.append("T", b"%d" % number, queue=number != 3)
    writer.flush()
    queue = queue_of(tmp_path)
    expected = [place for number, place in enumerate(written_offsets(writer)) if number != 3]
    assert (queue.max_offset, offsets(queue)) == (7, expected)


def test_a_damaged_last_message_keeps_its_unit(tmp_path: Path) -> None:
    writer = make_store(tmp_path, 12)
    writer.roll()
    writer.append("T", b"sound", queue_id=1)
    writer.flush()
    place = written_offsets(writer)[-1]
    writer.overwrite(place + 88, b"X")  # in the body: the CRC does not fit any more
    assert queue_of(tmp_path).max_offset == 6


def test_light_queues_end_where_their_names_in_the_records_say(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, queue_file_size=FILE_SIZE)
    for number in range(7):
        properties = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": f"{number},{number + 3}"}
        writer.append("T", b"%d" % number, queue_id=2, properties=properties)
    writer.flush()
    assert offsets(queue_of(tmp_path, "%LMQ%a")) == [written.physical_offset for written in writer.written]
    assert (queue_of(tmp_path, "%LMQ%b").min_offset, queue_of(tmp_path, "%LMQ%b").max_offset) == (3, 10)


# --- where a queue begins ---------------------------------------------------------------------------------------------


def test_filler_units_are_no_messages(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, queue_file_size=FILE_SIZE)
    for queue_offset in range(8, 14):
        writer.append("T", b"late", queue_offset=queue_offset)
    writer.flush()
    queue = queue_of(tmp_path)
    assert (queue.min_offset, queue.max_offset) == (8, 14)
    assert queue.entry_at(7) is None
    assert offsets(queue) == [written.physical_offset for written in writer.written]


def test_filler_alone_is_an_empty_queue_that_starts_late(tmp_path: Path) -> None:
    make_store(tmp_path)
    write_units(directory_of(tmp_path, "T", 5), 0, [PRE_BLANK_UNIT] * 3, FILE_SIZE)
    queue = queue_of(tmp_path, queue_id=5)
    assert (queue.min_offset, queue.max_offset) == (3, 3)


@pytest.mark.parametrize("expired", [1, 2, 5, 6, 7, 11])
def test_a_queue_begins_with_the_first_message_that_the_log_still_has(expired: int, tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, queue_file_size=FILE_SIZE, segment_size=256)
    for number in range(24):
        writer.append("T", bytes(100), queue_id=number % 2)  # one message a segment
    writer.flush()
    for path in sorted((tmp_path / "commitlog").iterdir())[: 2 * expired]:
        path.unlink()
    queue = queue_of(tmp_path)
    assert (queue.min_offset, queue.max_offset) == (expired, 12)
    assert offsets(queue) == written_offsets(writer)[expired:]


def test_a_queue_whose_messages_all_expired_is_empty_at_its_end(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, queue_file_size=FILE_SIZE, segment_size=256)
    for number in range(12):
        writer.append("T", bytes(100), queue_id=number // 6)
    writer.flush()
    for path in sorted((tmp_path / "commitlog").iterdir())[:6]:
        path.unlink()
    queue = queue_of(tmp_path)
    assert (queue.min_offset, queue.max_offset) == (6, 6)
    assert queue.entries(0, 9) == []


def test_files_that_were_removed_from_the_front_leave_the_offsets_of_the_rest(tmp_path: Path) -> None:
    writer = make_store(tmp_path, 24, segment_size=256)
    (directory_of(tmp_path) / f"{0:020d}").unlink()
    queue = queue_of(tmp_path)
    assert (queue.min_offset, queue.max_offset) == (0, 12), "the log has the messages of the file that is gone"
    assert [queue.message_in_log(number) for number in range(12)] == written_offsets(writer)[:12]
    expired = [
        path for path in (tmp_path / "commitlog").iterdir() if int(path.name) + 256 <= written_offsets(writer)[5]
    ]
    for path in expired:
        path.unlink()
    live = [place for place in written_offsets(writer) if place >= 256 * len(expired)]
    queue = queue_of(tmp_path)
    assert (queue.min_offset, queue.max_offset) == (12 - len(live), 12)
    assert 5 in (queue.min_offset, queue.min_offset + 1)
    assert offsets(queue)[-7:] == written_offsets(writer)[5:]


def test_a_hole_in_the_log_ends_no_queue(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, queue_file_size=FILE_SIZE, segment_size=256)
    for number in range(6):
        writer.append("T", bytes(100), queue_id=number % 2)
    writer.flush()
    sorted((tmp_path / "commitlog").iterdir())[4].unlink()
    assert queue_of(tmp_path).max_offset == 3


# --- tags -------------------------------------------------------------------------------------------------------------


def test_messages_with_a_tag_are_found_in_a_range_of_the_log(tmp_path: Path) -> None:
    writer = make_store(tmp_path, 30)
    expected = [w.physical_offset for n, w in enumerate(writer.written) if n % 3 == 1 and n % 2 == 0]
    queue = queue_of(tmp_path)
    assert queue.offsets_with_tag(java_hash("Tag1"), 0, 1 << 62).tolist() == expected
    assert queue.offsets_with_tag(java_hash("Tag1"), expected[1], expected[3]).tolist() == expected[1:3]
    assert queue.offsets_with_tag(java_hash("nosuch"), 0, 1 << 62).size == 0


def test_a_hash_of_either_sign_is_found(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    tag = "polygenelubricants"  # hash −2³¹
    place = writer.append("T", b"", tags=tag).physical_offset
    writer.flush()
    for code in (java_hash(tag), java_hash(tag) + (1 << 32)):
        assert queue_of(tmp_path).offsets_with_tag(code, 0, 1 << 62).tolist() == [place]


def test_tags_are_found_through_the_extension(tmp_path: Path) -> None:
    writer = make_store(tmp_path, 30, ext_bit_map=bytes(14), ext_file_size=300)
    expected = [w.physical_offset for n, w in enumerate(writer.written) if n % 3 == 1 and n % 2 == 0]
    queue = queue_of(tmp_path)
    assert queue.offsets_with_tag(java_hash("Tag1"), 0, 1 << 62).tolist() == expected
    entry = queue.entry_at(2)
    assert entry is not None
    assert entry.extension is not None
    assert (entry.tags_code, entry.valid_tags_code) == (java_hash("Tag1"), java_hash("Tag1"))
    assert entry.extension.bitmap == bytes(14)
    assert entry.extension.store_timestamp == writer.written[4].store_timestamp


def test_a_message_whose_extension_is_lost_may_have_any_tag(tmp_path: Path) -> None:
    writer = make_store(tmp_path, 12, ext_bit_map=bytes(14), ext_file_size=100)
    (tmp_path / "consumequeue_ext" / "T" / "0" / f"{0:020d}").unlink()
    queue = queue_of(tmp_path)
    found = queue.offsets_with_tag(java_hash("nosuch"), 0, 1 << 62).tolist()
    assert found == written_offsets(writer)[:2]
    entry = queue.entry_at(0)
    assert entry is not None
    assert (entry.extension, entry.valid_tags_code) == (None, None)


# --- what a look-up waits for -----------------------------------------------------------------------------------------


def test_a_long_queue_is_scanned_by_a_thread_that_may_wait(tmp_path: Path) -> None:
    make_store(tmp_path)
    path = directory_of(tmp_path) / f"{0:020d}"
    path.write_bytes(path.read_bytes() + bytes(20 * 60_000))  # zeros on the disk, not a hole
    (path.parent / f"{FILE_SIZE:020d}").unlink()
    queue = queue_of(tmp_path)
    assert "long scan" in str(wait_of(queue.measured()))
    known = queue.max_offset
    assert at_once(queue.measured()).max_offset == known


def test_unit_blocks_are_one_a_file(tmp_path: Path) -> None:
    make_store(tmp_path, 24)
    blocks = list(queue_of(tmp_path).unit_blocks())
    assert [first for first, _ in blocks] == [0, 5, 10]
    assert all(len(units) == after - first for (first, units), (after, _) in pairwise(blocks))
