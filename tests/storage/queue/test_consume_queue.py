"""Plain queues: their units, where they end and begin, whatever a broker, a crash or a copy left behind."""

from collections import defaultdict
from pathlib import Path

import pytest

from oracles import Record, java_hash, queue_unit, read_log
from queue_stores import PRE_BLANK_UNIT, directory_of, open_queues, plain_queue, write_units
from storage.queue.queue import Queue
from storage.queue.tag_search import offsets_with_tag
from store_files import write_file
from store_queries import at_once, wait_of
from store_writer import StoreWriter

FILE_SIZE = 100  # five units a file


def make_store(root: Path, messages: int = 12, topic: str = "T", **options: object) -> StoreWriter:
    """A store of one topic with two queues, messages by turns; queue 0 gets the even ones."""
    writer = StoreWriter(root, queue_file_size=FILE_SIZE, **options)  # type: ignore[arg-type]
    for number in range(messages):
        writer.append(topic, b"body %d" % number, queue_id=number % 2, tags=f"Tag{number % 3}")
    writer.flush()
    return writer


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
        queue = plain_queue(root, topic, number)
        assert (queue.min_offset, queue.max_offset) == (0, len(records))
        assert queue.units().tobytes() == b"".join(map(queue_unit, records))
        assert [entry.queue_offset for entry in queue.entries(0, 1000)] == list(range(len(records)))


# --- entries ----------------------------------------------------------------------------------------------------------


def test_outside_its_bounds_a_queue_has_no_entry(tmp_path: Path) -> None:
    make_store(tmp_path)
    queue = plain_queue(tmp_path)
    for queue_offset in (-1, 6, 7, 1 << 62, -(1 << 63)):
        assert queue.entry_at(queue_offset) is None
        assert queue.entries(queue_offset, 5) == []
        assert at_once(queue.walk(queue_offset, 5)) is None
        assert queue.store_timestamp_at(queue_offset) == -1


# --- where a queue ends -----------------------------------------------------------------------------------------------


def test_foreign_names_empty_files_and_directories_are_ignored(tmp_path: Path) -> None:
    make_store(tmp_path)
    directory = directory_of(tmp_path)
    (directory / "00000000000000000400").touch()
    (directory / "notes.txt").write_text("units?")
    (directory / "00000000000000000200").mkdir()
    (directory / "0000000000000000300").write_bytes(b"\1" * FILE_SIZE)
    (directory / "00000000000000000207").write_bytes(b"\1" * FILE_SIZE)
    assert plain_queue(tmp_path).max_offset == 6


@pytest.mark.parametrize("size", [40, 139])
def test_the_size_of_a_queues_files_is_read_off_them(size: int, tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, queue_file_size=size - size % 20)
    for number in range(120):
        writer.append("T", b"%d" % number)
    writer.flush()
    for path in directory_of(tmp_path).iterdir():
        write_file(path, path.stat().st_size + size % 20, {})
    assert offsets(plain_queue(tmp_path)) == written_offsets(writer)


def test_behind_a_lost_unit_the_rest_stay_although_their_records_count_otherwise(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, queue_file_size=FILE_SIZE)
    for number in range(8):
        writer.append("T", b"%d" % number, queue=number != 3)
    writer.flush()
    queue = plain_queue(tmp_path)
    expected = [place for number, place in enumerate(written_offsets(writer)) if number != 3]
    assert (queue.max_offset, offsets(queue)) == (7, expected)


def test_light_queues_end_where_their_names_in_the_records_say(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, queue_file_size=FILE_SIZE)
    for number in range(7):
        properties = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": f"{number},{number + 3}"}
        writer.append("T", b"%d" % number, queue_id=2, properties=properties)
    writer.flush()
    assert offsets(plain_queue(tmp_path, "%LMQ%a")) == [written.physical_offset for written in writer.written]
    assert (plain_queue(tmp_path, "%LMQ%b").min_offset, plain_queue(tmp_path, "%LMQ%b").max_offset) == (3, 10)


# --- where a queue begins ---------------------------------------------------------------------------------------------


def test_filler_units_are_no_messages(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, queue_file_size=FILE_SIZE)
    for queue_offset in range(8, 14):
        writer.append("T", b"late", queue_offset=queue_offset)
    writer.flush()
    queue = plain_queue(tmp_path)
    assert (queue.min_offset, queue.max_offset) == (8, 14)
    assert queue.entry_at(7) is None
    assert offsets(queue) == [written.physical_offset for written in writer.written]


def test_filler_alone_is_an_empty_queue_that_starts_late(tmp_path: Path) -> None:
    make_store(tmp_path)
    write_units(directory_of(tmp_path, "T", 5), 0, [PRE_BLANK_UNIT] * 3, FILE_SIZE)
    queue = plain_queue(tmp_path, queue_id=5)
    assert (queue.min_offset, queue.max_offset) == (3, 3)


def test_a_queue_whose_messages_all_expired_is_empty_at_its_end(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, queue_file_size=FILE_SIZE, segment_size=256)
    for number in range(12):
        writer.append("T", bytes(100), queue_id=number // 6)
    writer.flush()
    for path in sorted((tmp_path / "commitlog").iterdir())[:6]:
        path.unlink()
    queue = plain_queue(tmp_path)
    assert (queue.min_offset, queue.max_offset) == (6, 6)
    assert queue.entries(0, 9) == []


# --- tags -------------------------------------------------------------------------------------------------------------


def test_a_hash_of_either_sign_is_found(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    tag = "polygenelubricants"  # hash −2³¹
    place = writer.append("T", b"", tags=tag).physical_offset
    writer.flush()
    for code in (java_hash(tag), java_hash(tag) + (1 << 32)):
        assert offsets_with_tag(plain_queue(tmp_path), code, 0, 1 << 62).tolist() == [place]


def test_tags_are_found_through_the_extension(tmp_path: Path) -> None:
    writer = make_store(tmp_path, 30, ext_bit_map=bytes(14), ext_file_size=300)
    expected = [w.physical_offset for n, w in enumerate(writer.written) if n % 3 == 1 and n % 2 == 0]
    queue = plain_queue(tmp_path)
    assert offsets_with_tag(queue, java_hash("Tag1"), 0, 1 << 62).tolist() == expected
    entry = queue.entry_at(2)
    assert entry is not None
    assert entry.extension is not None
    assert (entry.tags_code, entry.valid_tags_code) == (java_hash("Tag1"), java_hash("Tag1"))
    assert entry.extension.bitmap == bytes(14)
    assert entry.extension.store_timestamp == writer.written[4].store_timestamp


def test_a_message_whose_extension_is_lost_may_have_any_tag(tmp_path: Path) -> None:
    writer = make_store(tmp_path, 12, ext_bit_map=bytes(14), ext_file_size=100)
    (tmp_path / "consumequeue_ext" / "T" / "0" / f"{0:020d}").unlink()
    queue = plain_queue(tmp_path)
    found = offsets_with_tag(queue, java_hash("nosuch"), 0, 1 << 62).tolist()
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
    queue = plain_queue(tmp_path)
    assert "long scan" in str(wait_of(queue.measured()))
    known = queue.max_offset
    assert at_once(queue.measured()).max_offset == known
