"""Damage of whole pages, files and directories: what is whole is answered, and the doctor names the place.

Where a message's unit is gone with its file, nothing but a rebuild brings it back into its queue: such messages are
answered by offset and by key.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from damage_cases import ENTRIES, INDEX_HEADER, SEGMENT, SLOTS, write_store
from damage_oracle import Disk
from damaged_answers import check_by_key, check_by_offset, check_by_queue
from storage.doctor.examine import examine
from storage.store.message_store import MessageStore, StoreOptions
from store_writer import StoreWriter, Written

ARABIC = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
FIRST_ENTRY = INDEX_HEADER + 4 * SLOTS


def soak(*values: int) -> list[Any]:
    """Values of a parameter that are left to `make soak`."""
    return [pytest.param(value, marks=pytest.mark.soak) for value in values]


@dataclass(frozen=True)
class Damaged:
    """A copy of a store, to be damaged: `log`, `queue` and `index` are files in order."""

    writer: StoreWriter
    root: Path
    directories: tuple[Path, ...]

    @property
    def log(self) -> list[Path]:
        return sorted((self.root / "commitlog").iterdir())

    @property
    def queue(self) -> list[Path]:
        return sorted((self.root / "consumequeue" / "A" / "0").iterdir())

    @property
    def index(self) -> list[Path]:
        return sorted((self.root / "index").iterdir())

    def written_in(self, path: Path) -> list[Written]:
        """Messages whose units are in a file of the queue A 0."""
        first = int(path.name) // 20
        return [
            each for each in self.writer.written
            if (each.topic, each.queue_id) == ("A", 0) and first <= each.queue_offset < first + 10
        ]  # fmt: skip


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> StoreWriter:
    return write_store(tmp_path_factory.mktemp("structure") / "store")


@pytest.fixture
def store(writer: StoreWriter, tmp_path: Path) -> Damaged:
    shutil.copytree(writer.root, tmp_path / "store")
    return Damaged(writer, tmp_path / "store", (tmp_path / "store" / "commitlog", tmp_path / "other"))


def check(store: Damaged, *, without_units: Iterable[Written] = (), names: str | Path = "") -> None:
    """All that is whole is answered in all ways; the doctor names a place, if one is expected."""
    directories = tuple(path for path in store.directories if path.exists())
    opened = MessageStore.open(store.root, StoreOptions(commit_log_directories=directories))
    disk = Disk.of(directories)
    missing = [each.physical_offset for each in without_units]
    check_by_offset(opened, disk, store.writer.written)
    check_by_key(opened, disk, store.writer.written)
    check_by_queue(opened, disk, store.writer.written, missing=missing)
    findings = examine(store.root, directories).findings
    if names:
        assert any(str(names) in finding.where for finding in findings), [finding.where for finding in findings]


def put(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


class TestLog:
    @pytest.mark.parametrize("number", [1, -1, *soak(0)])
    @pytest.mark.parametrize("size", [39, SEGMENT + 1, *soak(0, 8, 40, 41, 91, SEGMENT - 1)])
    def test_a_segment_of_any_size(self, store: Damaged, number: int, size: int) -> None:
        cut(store.log[number], size)
        check(store, names=store.log[number])

    @pytest.mark.parametrize("number", [-1, *soak(1)])
    def test_a_segment_cut_at_every_kind_of_boundary(self, store: Damaged, number: int) -> None:
        path = store.log[number]
        base, content = int(path.name), path.read_bytes()
        inside = [each for each in store.writer.written if base <= each.physical_offset < base + SEGMENT]
        for each in (inside[0], inside[-1]):
            for offset in (0, 4, 40, 88, each.size - 1, each.size):
                path.write_bytes(content[: each.physical_offset - base + offset])
                check(store, names=path if offset else "")
        path.write_bytes(content)

    @pytest.mark.parametrize("length", [40, *soak(1, 8, 91, 512, 1024, 2048)])
    def test_zeros_anywhere(self, store: Damaged, length: int) -> None:
        for path in (store.log[0], store.log[-1]):
            content = path.read_bytes()
            for position in range(0, SEGMENT - length, 640):
                put(path, position, bytes(length))
                matters = position > 0 and length > 8 and any(content[position : position + length])
                # Where no record follows, zeros may look like a clean end; then queues and index know of more.
                behind = int(path.name) + position + length
                is_inside = any(
                    behind <= each.physical_offset < int(path.name) + SEGMENT for each in store.writer.written
                )
                check(store, names="" if not matters else path if is_inside else store.root)
                path.write_bytes(content)

    @pytest.mark.parametrize("number", [0, 1, -1])
    def test_a_missing_segment(self, store: Damaged, number: int) -> None:
        store.log[number].unlink()
        check(store, names="commitlog" if number == 1 else "")

    def test_foreign_files(self, store: Damaged) -> None:
        for directory in (store.log[0].parent, store.queue[0].parent, store.index[0].parent, store.root / "config"):
            (directory / "lost+found").mkdir()
            (directory / "notes.txt").write_text("x")
            (directory / ("9" * 20)).write_bytes(b"\xff" * 100)
            (directory / "00000000000000004096.bak").write_bytes(store.log[1].read_bytes())
        check(store, names="commitlog/notes.txt")

    def test_names_in_other_digits(self, store: Damaged) -> None:
        for path in [*store.log, *store.queue, *store.index]:
            path.rename(path.with_name(path.name.translate(ARABIC)))
        check(store)
        assert examine(store.root).is_clean

    @pytest.mark.parametrize("size", [100, *soak(0, SEGMENT)])
    def test_segments_that_lie_in_two_paths(self, store: Damaged, size: int) -> None:
        other = store.directories[1]
        other.mkdir()
        for path in store.log[1:3]:
            (other / path.name).write_bytes(path.read_bytes()[:size])
        check(store, names=other / store.log[1].name)

    @pytest.mark.parametrize("keep", [5, *soak(1, 9)])
    def test_what_was_cut_off_and_not_overwritten_is_old(self, store: Damaged, keep: int) -> None:
        """New records over old ones, by a broker that cut its log: the old ones behind are not answered."""
        path, base = store.log[-1], int(store.log[-1].name)
        inside = [each for each in store.writer.written if each.physical_offset >= base]
        place = inside[keep].physical_offset
        again = StoreWriter(store.root.parent / "new", segment_size=SEGMENT, start=base)
        again.log.end = place
        new = again.append("A", b"written after the cut" * 5, queue_offset=99, store_timestamp=1_700_000_900_000)
        put(path, place - base, new.record)
        opened = MessageStore.open(store.root)
        assert opened.commit_log.end == place + new.size
        assert bytes(opened.record_at(place) or b"") == new.record
        assert inside[keep + 1 :]
        for each in inside[keep + 1 :]:
            assert opened.record_at(each.physical_offset) is None


class TestQueues:
    @pytest.mark.parametrize("number", [0, -1])
    @pytest.mark.parametrize("size", [19, 40, *soak(0, 1, 20, 21, 39, 41, 199, 201, 400)])
    def test_a_file_of_any_size(self, store: Damaged, number: int, size: int) -> None:
        path = store.queue[number]
        lost = [each for each in store.written_in(path) if each.queue_offset % 10 >= size // 20]
        cut(path, size)
        check(store, without_units=lost, names=path)

    @pytest.mark.parametrize("fill", [b"\xff", b"\x7f"])
    def test_a_whole_file_of_garbage(self, store: Damaged, fill: bytes) -> None:
        store.queue[0].write_bytes(fill * 200)
        check(store, names="A/0")

    def test_phantom_units_behind_the_end_are_none(self, store: Damaged) -> None:
        """A cut queue is not zeroed: units that point beyond the log, into it, and to messages of others."""
        path = store.queue[-1]
        content = path.read_bytes()
        end = len(content.rstrip(b"\0")) // 20 * 20 + 20
        others = [each for each in store.writer.written if each.topic == "B"]
        for places in ([10**9], [others[0].physical_offset, others[1].physical_offset], [17], [10**9, 17, 5]):
            units = b"".join(place.to_bytes(8, "big") + (200).to_bytes(4, "big") + bytes(8) for place in places)
            put(path, end, units[: len(content) - end])
            check(store, names=path)
            path.write_bytes(content)

    def test_a_directory_that_is_a_file_is_a_queue_that_is_lost(self, store: Damaged) -> None:
        shutil.rmtree(store.root / "consumequeue" / "A" / "0")
        (store.root / "consumequeue" / "A" / "0").write_text("x")
        check(store, names="A/0")

    def test_zeroed_units_of_batches(self, store: Damaged) -> None:
        path = sorted((store.root / "batchconsumequeue" / "Bat" / "0").iterdir())[0]
        content = path.read_bytes()
        for number in range(4):
            put(path, 46 * number, bytes(46))
            check(store)
            path.write_bytes(content)


def boundaries() -> Iterator[int]:
    """Sizes at every kind of boundary of an index file, and beside it."""
    whole = FIRST_ENTRY + 20 * ENTRIES
    for size in (0, INDEX_HEADER, INDEX_HEADER + 4, FIRST_ENTRY, FIRST_ENTRY + 20, FIRST_ENTRY + 60, whole // 2, whole):
        yield from (around for around in (size - 1, size) if around >= 0)


class TestIndex:
    @pytest.mark.parametrize("number", [-1, *soak(0)])
    def test_a_file_of_any_size(self, store: Damaged, number: int) -> None:
        path = store.index[number]
        content = path.read_bytes()
        for size in boundaries():
            cut(path, size)
            check(store, names=path if size < FIRST_ENTRY else "")
            path.write_bytes(content)

    @pytest.mark.parametrize("length", [20, *soak(4, 512)])
    def test_zeros_anywhere(self, store: Damaged, length: int) -> None:
        path = store.index[1]
        content = path.read_bytes()
        for position in range(0, len(content) - length, 160):
            put(path, position, bytes(length))
            check(store)
            path.write_bytes(content)
