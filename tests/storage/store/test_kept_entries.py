"""Index files of our own: what lies in their directory may be of another time, of another log, damaged or made up."""

import copy
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import oracles
from kept_store import OWN_SLOTS, SLOTS, Kept, append_some, assert_all_found, incomplete
from killing import Renames, every_kill
from protocol.checksum import crc32
from storage.store._manifest import MANIFEST, VERSION
from store_writer import StoreWriter

Change = Callable[[Kept, list[list[Any]]], object]


def noted(kept: Kept) -> list[list[Any]]:
    """The lines of the manifest."""
    content = msgpack.unpackb((kept.directory / MANIFEST).read_bytes())
    assert content["crc"] == crc32(content["files"])
    rows: list[list[Any]] = msgpack.unpackb(content["files"])
    return rows


def note(kept: Kept, rows: list[Any], **more: Any) -> None:
    """Write a manifest that is whole, whatever it says."""
    files = msgpack.packb(rows)
    content = {"version": VERSION, "crc": crc32(files), "files": files, **more}
    (kept.directory / MANIFEST).write_bytes(msgpack.packb(content))


def put(content: bytes) -> Change:
    return lambda kept, _: (kept.directory / MANIFEST).write_bytes(content)


def said_of_lines(change: Callable[[Any], object]) -> Change:
    def act(kept: Kept, before: list[list[Any]]) -> None:
        rows = copy.deepcopy(before)
        for row in rows:
            change(row)
        note(kept, rows)

    return act


MANIFESTS: list[Change] = [
    *(put(content) for content in (b"", b"garbage", b"\x91" * 3000, b"\x82\xa7version\x01\xa5files\x90")),
    lambda kept, before: note(kept, before, version=VERSION + 1),
    lambda kept, before: note(kept, before, crc=1),
]
CHANGES = [
    said_of_lines(lambda row: row.pop()),
    said_of_lines(lambda row: row.__setitem__(0, "../../../store/index")),
    said_of_lines(lambda row: row.__setitem__(1, [1, 2, 3])),
    said_of_lines(lambda row: row.__setitem__(2, 0)),
    said_of_lines(lambda row: row.__setitem__(4, [])),
    said_of_lines(lambda row: row.__setitem__(4, [[0, 1 << 63]])),
    said_of_lines(lambda row: row.__setitem__(4, [[-1, 5]])),
    said_of_lines(lambda row: row.__setitem__(4, [[0, 500], [400, 600]])),
    said_of_lines(lambda row: row.__setitem__(4, [[0, row[4][-1][1] + 3000]])),
    said_of_lines(lambda row: row.__setitem__(5, "mark")),
]


@pytest.mark.untraced
class TestDistrust:
    """What lies in the directory may be of another time, of another log, damaged or made up."""

    @pytest.mark.parametrize("is_whole", [False, True])
    def test_what_says_what_cannot_be_is_not_believed(self, kept: Kept, is_whole: bool) -> None:
        """A manifest that is none, and one of which each line was changed in one way."""
        kept.open()
        before = noted(kept)
        for change in CHANGES if is_whole else MANIFESTS:
            change(kept, before)
            store = kept.open(keeps=False, finish=False)
            assert store.snapshot.index.kept == ()
            assert "still to be scanned" in (incomplete(store) or "")
        store = kept.open()
        assert_all_found(store, kept.writer.records, kept.writer.records[::17])
        assert len(noted(kept)) == len(store.snapshot.index.kept) > 2

    @pytest.mark.parametrize("what", ["gone", "fifo", "cut", "of another"])
    def test_whatever_lies_in_the_place_of_a_file_is_not_taken_for_it(self, kept: Kept, what: str) -> None:
        kept.open()
        first, second, *_ = sorted(kept.directory.glob("0*"))
        content = second.read_bytes()
        first.unlink()
        {
            "gone": lambda: None,
            "fifo": lambda: os.mkfifo(first),
            "cut": lambda: first.write_bytes(content[:-500]),
            "of another": lambda: first.write_bytes(content),
        }[what]()
        store = kept.open()
        assert_all_found(store, kept.writer.records, kept.writer.records[::7])
        assert first.name not in {file.index.name for file in store.snapshot.index.kept}

    @settings(
        max_examples=settings.default.max_examples // 4, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(data=st.data())
    def test_a_damaged_file_of_our_own_hides_nothing(
        self, small: None, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        kept = Kept(tmp_path_factory.mktemp("damaged"), 110)
        kept.open()
        path = data.draw(st.sampled_from(sorted(kept.directory.glob("0*"))))
        status, content = path.stat(), bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.integers(40, len(content) - 1))
            assume(place < 164 or not 4 <= (place - 164) % 20 < 16)
            content[place] = data.draw(st.integers(0, 255))
        with path.open("r+b") as file:
            file.write(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # as if nobody had touched it
        store = kept.open(check_budget=data.draw(st.sampled_from([0, None])))
        assert_all_found(store, kept.writer.records)

    def test_files_of_another_log_are_not_believed(self, tmp_path: Path, small: None) -> None:
        mine, other = Kept(tmp_path / "mine", 150), Kept(tmp_path / "other", 1)
        for number in range(150):
            other.writer.append("T", b"x" * (number % 50), keys=f"other{number}", unique_key=f"v{number}", tags="t")
        other.writer.close()
        shutil.rmtree(other.writer.root / "index")
        mine.open()
        other.directory = mine.directory
        assert other.open(keeps=False, finish=False).snapshot.index.kept == ()
        store = other.open()
        assert len(store.snapshot.index.kept) > 2
        assert_all_found(store, other.writer.records)
        assert_all_found(mine.open(), mine.writer.records)

    @pytest.mark.parametrize("number", [120, 199])
    def test_keys_behind_the_last_record_with_keys_are_scanned_where_the_log_was_cut_there(
        self, tmp_path: Path, small: None, number: int
    ) -> None:
        """The last record with keys stands unchanged; what came behind it was written anew, and has keys now."""
        kept = Kept(tmp_path, 100)
        for _ in range(100):
            kept.writer.append("T", bytes(40))
        append_some(kept.writer, 20)
        kept.writer.flush()
        shutil.rmtree(kept.writer.root / "index")
        kept.open()
        cut(kept.writer, number)
        append_some(kept.writer, 30, keys="anew all0")
        kept.writer.flush()
        shutil.rmtree(kept.writer.root / "index")
        assert_all_found(kept.open(), kept.writer.records)

    def test_what_was_damaged_or_missing_when_they_were_made_is_scanned_at_the_next_start(self, kept: Kept) -> None:
        writer = kept.writer
        whole = {base: path.read_bytes() for base, path in writer.log.segments.items()}
        records = writer.records
        writer.overwrite(writer.written[40].physical_offset, bytes(writer.written[40].size))
        base = sorted(writer.log.segments)[2]
        writer.log.segments[base].unlink()
        store = kept.open()
        assert len(store.snapshot.index.kept) > 2
        for base, path in writer.log.segments.items():  # mended, say from a slave
            path.write_bytes(whole[base])
        store = kept.open()
        assert incomplete(store) is None
        assert_all_found(store, records)


def cut(writer: StoreWriter, number: int) -> None:
    """Cut the log before a message, as a broker that starts after a crash does."""
    start = writer.written[number].physical_offset
    for gone in writer.written[number:]:
        writer.overwrite(gone.physical_offset, bytes(gone.size))
    for base in [base for base in writer.log.segments if base > start]:
        writer.log.segments.pop(base).unlink()
    writer.log.end, writer.written = start, writer.written[:number]


class TestTidying:
    def test_files_that_the_stores_own_index_makes_needless_are_deleted(self, kept: Kept) -> None:
        store = kept.open()
        assert len(store.snapshot.index.kept) > 2
        index = kept.writer.root / "index"
        index.mkdir()
        for number, data in enumerate(oracles.build_index(kept.writer.records, SLOTS, 150)):
            (index / f"{20260101000000000 + number}").write_bytes(data)
        assert store.renew()
        store.finish_scan()
        assert kept.names == [MANIFEST]
        assert_all_found(store, kept.writer.records)
        assert store.renew()
        assert store.snapshot.index.kept == ()
        store.finish_scan()
        assert_all_found(store, kept.writer.records)

    def test_what_is_not_ours_is_left_alone(self, kept: Kept) -> None:
        kept.open()
        for name in ("thesis.txt", "20260101000000000", "00000000000000099.bak"):
            (kept.directory / name).write_bytes(b"a user's")
        (kept.directory / "folder").mkdir()
        store = kept.open()
        assert_all_found(store, kept.writer.records, kept.writer.records[::17])
        assert {"thesis.txt", "20260101000000000", "00000000000000099.bak", "folder"} < set(kept.names)

    def test_one_that_is_found_to_be_damaged_goes(self, kept: Kept) -> None:
        first = sorted(kept.open().snapshot.index.kept, key=lambda file: file.index.name)[0].index.file.path
        status, content = first.stat(), bytearray(first.read_bytes())
        content[40 + 4 * OWN_SLOTS + 20 * 50 + 3] ^= 1
        first.write_bytes(content)
        os.utime(first, ns=(status.st_atime_ns, status.st_mtime_ns))
        store = kept.open(check_budget=0)
        assert first.name not in {row[0] for row in noted(kept)}
        assert not first.exists()
        assert_all_found(store, kept.writer.records)

    def test_they_are_not_deleted_while_files_of_the_store_are_unchecked(self, kept: Kept) -> None:
        kept.open()
        before = kept.names
        index = kept.writer.root / "index"
        index.mkdir()
        for number, data in enumerate(oracles.build_index(kept.writer.records, SLOTS, 150)):
            (index / f"{20260101000000000 + number}").write_bytes(data)
        store = kept.open(finish=False, check_budget=0)
        steps = iter([False, True, True, True])
        store.finish_scan(lambda: next(steps))
        assert kept.names == before


@pytest.mark.untraced
@pytest.mark.parametrize(
    "each", [pytest.param(1, marks=pytest.mark.soak, id="each step"), pytest.param(3, id="some steps")]
)
def test_a_kill_at_any_step_leaves_nothing_that_is_wrong(tmp_path: Path, small: None, each: int) -> None:
    kept = Kept(tmp_path, 110)
    records = kept.writer.records
    kills = 0
    for _ in every_kill(kept.open, (), Renames.ALL, each=each):
        kills += each
        reader = kept.open(keeps=False)
        assert incomplete(reader) is None
        assert_all_found(reader, records, records[::9])
        keeper = kept.open()
        assert incomplete(keeper) is None
        assert_all_found(keeper, records, records[::9])
        assert kept.names == [row[0] for row in noted(kept)] + [MANIFEST]
        shutil.rmtree(kept.directory)
    assert kills >= 12
    assert noted(kept)
