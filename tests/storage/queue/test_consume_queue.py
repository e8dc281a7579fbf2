"""Plain queues: their units, where they end and begin, whatever a broker, a crash or a copy left behind."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from golden_store import GOLDEN
from oracles import Record, java_hash, packed, queue_unit, read_log
from queue_stores import PRE_BLANK_UNIT, directory_of, open_queues, plain_queue, write_units
from storage.files.open_files import OpenFiles
from storage.files.waiting import finish
from storage.queue.consume_queue_ext import ConsumeQueueExt, is_extension_address
from storage.queue.tag_search import offsets_with_tag
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


def written_offsets(writer: StoreWriter, queue_id: int = 0) -> list[int]:
    return [written.physical_offset for written in writer.written if written.queue_id == queue_id]


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


def test_filler_alone_is_an_empty_queue_that_starts_late(tmp_path: Path) -> None:
    make_store(tmp_path)
    write_units(directory_of(tmp_path, "T", 5), 0, [PRE_BLANK_UNIT] * 3, FILE_SIZE)
    queue = plain_queue(tmp_path, queue_id=5)
    assert (queue.min_offset, queue.max_offset) == (3, 3)


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


def test_a_long_queue_is_scanned_by_a_thread_that_may_wait(tmp_path: Path) -> None:
    make_store(tmp_path)
    path = directory_of(tmp_path) / f"{0:020d}"
    path.write_bytes(path.read_bytes() + bytes(20 * 60_000))  # zeros on the disk, not a hole
    (path.parent / f"{FILE_SIZE:020d}").unlink()
    queue = plain_queue(tmp_path)
    assert "long scan" in str(wait_of(queue.measured()))
    known = queue.max_offset
    assert at_once(queue.measured()).max_offset == known


BASE = -(1 << 63)
RECORDED: dict[str, Any] = json.loads((GOLDEN / "filter" / "tag-bloom-vectors.json").read_text())["consume_queue_ext"]


def write(directory: Path, content: bytes, start: int = 0) -> ConsumeQueueExt:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{start:020d}").write_bytes(content)
    return ConsumeQueueExt(directory, OpenFiles())


def test_the_recorded_units_are_read_at_the_recorded_addresses(tmp_path: Path) -> None:
    for name, content in RECORDED["files_hex"].items():
        (tmp_path / name).write_bytes(bytes.fromhex(content))
    extension = ConsumeQueueExt(tmp_path, OpenFiles())
    assert len(RECORDED["puts"]) == 5
    for put in RECORDED["puts"]:
        unit = finish(extension.unit_at(put["addr"]))
        assert unit is not None
        bitmap = "null" if unit.bitmap is None else str([byte - 256 if byte > 127 else byte for byte in unit.bitmap])
        bitmap_size = 0 if unit.bitmap is None else len(unit.bitmap)
        assert put["got"] == (
            f"CqExtUnit{{size={unit.size}, tagsCode={unit.tags_code}, msgStoreTime={unit.store_timestamp}, "
            f"bitMapSize={bitmap_size}, filterBitMap={bitmap}}}"
        )


@pytest.mark.parametrize("code", [0, 1, -1, -(1 << 31), (1 << 31) - 1, 1_700_000_000_000, (1 << 63) - 1])
def test_a_tags_code_is_no_address(code: int, tmp_path: Path) -> None:
    assert not is_extension_address(code)
    assert finish(write(tmp_path, packed(20, 2) + bytes(18)).unit_at(code)) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"\0", packed(20, 2) + bytes(17), packed(-1, 2) + bytes(30), bytes(40), packed(19, 2) + bytes(30),
     packed(25, 2) + bytes(16) + packed(5, 2) + bytes(4)],
)  # fmt: skip
def test_where_no_whole_unit_stands_there_is_none(content: bytes, tmp_path: Path) -> None:
    assert finish(write(tmp_path, content).unit_at(BASE)) is None


def test_a_file_that_cannot_be_opened_any_more_has_no_units(tmp_path: Path) -> None:
    extension = write(tmp_path, packed(20, 2) + bytes(18))
    (tmp_path / f"{0:020d}").unlink()
    assert finish(extension.unit_at(BASE)) is None
