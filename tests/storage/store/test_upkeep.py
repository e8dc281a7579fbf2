"""What a store finds out after it was opened, and the index files of our own that it keeps of keys beyond the index."""

import os
import shutil

import msgpack
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from kept_store import SLOTS, Kept, append_some, assert_all_found, incomplete, written
from killing import Renames, every_kill
from protocol.checksum import crc32
from protocol.question import Question
from storage.index import _index_coverage, index_examination
from storage.ranges import total_length
from storage.store import _upkeep
from storage.store._manifest import MANIFEST, VERSION
from storage.store.message_store import MessageStore, StoreOptions
from store_writer import StoreWriter


class TestChecks:
    def test_files_beyond_the_budget_are_checked_later_and_answers_say_so(self, tmp_path) -> None:
        writer = written(tmp_path)
        store = MessageStore.open(writer.root, StoreOptions(check_budget=0))
        files = len(writer.index_paths())
        assert incomplete(store) == f"{files} index files are still to be checked"
        assert len(store.snapshot.index.files) == files
        assert_all_found(store, writer.records)
        store.finish_scan()
        assert incomplete(store) is None
        whole = MessageStore.open(writer.root)
        files, right = store.snapshot.index.files, whole.snapshot.index.files
        assert [(file.index.shape, file.has_tags) for file in files] == [(f.index.shape, f.has_tags) for f in right]
        assert store.snapshot.tail.scope == whole.snapshot.tail.scope
        assert_all_found(store, writer.records)

    def test_damage_that_a_first_look_does_not_see_is_found_later(self, tmp_path) -> None:
        writer = written(tmp_path, 700, index_slots=97, index_entries=3000, segment_size=131072)
        path = writer.index_paths()[0]
        content = bytearray(path.read_bytes())
        content[40 + 4 * 97 + 20 * 1400 + 4] ^= 0x20  # an entry neither among the first nor among the last
        path.write_bytes(content)
        store = MessageStore.open(writer.root, StoreOptions(check_budget=0, scan_budget=0))
        assert "still to be checked" in (incomplete(store) or "")
        store.finish_scan()
        assert incomplete(store) is None
        assert any("scanned from the log" in problem for problem in store.problems)
        records = writer.records
        assert_all_found(store, records, records[340:360])

    def test_who_does_not_keep_the_state_reads_it(self, tmp_path, monkeypatch) -> None:
        writer = written(tmp_path)
        keeper = StoreOptions(check_budget=0, state_directory=tmp_path / "state")
        reader = StoreOptions(check_budget=0, state_directory=tmp_path / "state", keeps_state=False)
        store = MessageStore.open(writer.root, reader)
        assert not (tmp_path / "state").exists()
        MessageStore.open(writer.root, keeper).finish_scan()
        monkeypatch.setattr(index_examination, "determine_shape", None)
        store.finish_scan()
        assert store.snapshot.index.unchecked == ()
        assert_all_found(store, writer.records)

    @pytest.mark.untraced
    @settings(max_examples=examples(4), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_any_damaged_file_is_found_out_in_the_end(self, tmp_path_factory, data) -> None:
        writer = written(tmp_path_factory.mktemp("damaged"), 40)
        path = data.draw(st.sampled_from(writer.index_paths()))
        content = bytearray(path.read_bytes())
        places = [place for place in range(32, len(content)) if place < 68 or not 4 <= (place - 68) % 20 < 16]
        for place in data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=3)):
            content[place] = data.draw(st.integers(0, 255))
        path.write_bytes(content)
        store = MessageStore.open(writer.root, StoreOptions(check_budget=0))
        store.finish_scan()
        assert_all_found(store, writer.records)


class TestStrays:
    @pytest.fixture(autouse=True)
    def only_the_end_is_compared(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_index_coverage, "COMPARED_BYTES", 500)

    def written(self, root):
        """Messages of which each has one key of its own, whose entry is the last of its four."""
        with StoreWriter(root / "store", index_slots=97, index_entries=500, segment_size=65536) as writer:
            for number in range(400):
                keys = f"all all{number % 3} k{number}"
                writer.append("T", bytes(20), keys=keys, unique_key=f"u{number}")
        return writer

    def moved(self, writer: StoreWriter, number: int, by: int) -> None:
        """Let the last entry of a message point elsewhere: slots, pointers and order of its file do not show it."""
        wanted = writer.written[number].physical_offset
        for path in writer.index_paths():
            content = bytearray(path.read_bytes())
            for entry in range(40 + 4 * 97 + 20, len(content) - 19, 20):
                following = oracles.signed(content, entry + 24, 8) if entry + 32 <= len(content) else 0
                if oracles.signed(content, entry + 4, 8) == wanted < following:
                    content[entry + 4 : entry + 12] = oracles.packed(wanted + by, 8)
                    path.write_bytes(content)
                    return

    def test_a_file_whose_entry_points_into_a_message_covers_nothing_any_more(self, tmp_path) -> None:
        writer = self.written(tmp_path)
        self.moved(writer, 30, 4)
        options = StoreOptions(state_directory=tmp_path / "state")
        store = MessageStore.open(writer.root, options)
        assert not any("inside a message" in problem for problem in store.problems)
        assert list(store.query(Question("T", "k30")).physical_offsets) == [writer.written[30].physical_offset]
        assert any("inside a message" in problem for problem in store.problems)
        for each in (store, MessageStore.open(writer.root, options)):
            assert len(each.snapshot.index.files) == len(writer.index_paths()) - 1
            assert_all_found(each, writer.records, writer.records[20:50])


@pytest.fixture
def kept(tmp_path, small):
    return Kept(tmp_path)  # of more keys than a reader may hold


def all_bytes(store: MessageStore) -> int:
    return store.commit_log.end - store.commit_log.minimum


@pytest.mark.untraced
class TestKeptEntries:
    def test_keys_become_files_and_the_next_start_scans_only_what_stayed_in_memory(self, kept: Kept) -> None:
        before = sorted(kept.writer.root.rglob("*"))
        first = kept.open()
        assert first.snapshot.tail.entry_bytes <= _upkeep.MOST_IN_MEMORY
        assert len(first.snapshot.index.kept) >= 9
        assert incomplete(first) is None
        assert_all_found(first, kept.writer.records)
        assert sorted(kept.writer.root.rglob("*")) == before
        assert [name for name in kept.names if name != MANIFEST] == [f"{n:017d}" for n in range(1, len(kept.names))]
        stayed = total_length(first.snapshot.tail.scope)
        again = kept.open(finish=False)
        assert total_length(again.snapshot.tail.scope) <= stayed
        assert total_length(again.snapshot.tail.scope) < all_bytes(again) / 4
        again.finish_scan()
        assert_all_found(again, kept.writer.records)

    def test_another_process_reads_what_the_first_has_written(self, kept: Kept) -> None:
        keeper, reader = kept.open(finish=False), kept.open(keeps=False, finish=False)
        reader.finish_scan()
        assert reader.snapshot.tail.remaining  # it may hold no more, and waits
        assert "still to be scanned" in (incomplete(reader) or "")
        keeper.finish_scan()
        assert reader.renew()
        assert reader.snapshot.tail.entry_bytes < _upkeep.MOST_WAITING
        reader.finish_scan()
        assert incomplete(reader) is None
        assert len(reader.snapshot.index.kept) == len(keeper.snapshot.index.kept)
        assert_all_found(reader, kept.writer.records)

    def test_where_nothing_can_be_written_scanning_stops_and_it_is_said(self, kept: Kept) -> None:
        kept.directory.parent.mkdir()
        kept.directory.write_text("no directory")
        store = kept.open()
        assert len(store.snapshot.tail.remaining) > 0
        assert store.snapshot.tail.entry_bytes <= 2 * _upkeep.MOST_WAITING
        assert "still to be scanned" in (incomplete(store) or "")
        assert any("cannot be kept in" in problem for problem in store.problems)

    def test_where_there_is_no_room_nothing_is_written(self, kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_upkeep, "SPARE_BYTES", 1 << 62)
        store = kept.open()
        assert kept.names == []
        assert any("bytes are free there" in problem for problem in store.problems)
        monkeypatch.setattr(_upkeep, "SPARE_BYTES", 0)
        monkeypatch.setattr(_upkeep, "RETRY_SECONDS", 0.0)
        store.finish_scan()
        assert incomplete(store) is None
        assert not any("free" in problem for problem in store.problems)
        assert_all_found(store, kept.writer.records)


def noted(kept):
    content = msgpack.unpackb((kept.directory / MANIFEST).read_bytes())
    assert content["crc"] == crc32(content["files"])
    return msgpack.unpackb(content["files"])


def manifest(rows, **more):
    files = msgpack.packb(rows)
    return msgpack.packb({"version": VERSION, "crc": crc32(files), "files": files, **more})


BROKEN = (b"", b"garbage", b"\x91" * 3000, b"\x82\xa7version\x01\xa5files\x90")
MANIFESTS = [*(lambda _, content=content: content for content in BROKEN),
             lambda rows: manifest(rows, version=VERSION + 1), lambda rows: manifest(rows, crc=1)]  # fmt: skip
LINES = [
    lambda row: row[:-1],
    lambda row: ["../../../store/index", *row[1:]],
    lambda row: [row[0], [1, 2, 3], *row[2:]],
    lambda row: [*row[:2], 0, *row[3:]],
    *(
        lambda row, spans=spans: [*row[:4], spans, *row[5:]]
        for spans in ([], [[0, 1 << 63]], [[-1, 5]], [[0, 500], [400, 600]])
    ),
    lambda row: [*row[:4], [[0, row[4][-1][1] + 3000]], *row[5:]],
    lambda row: [*row[:5], "mark", *row[6:]],
]
CHANGES = [lambda rows, line=line: manifest([line(row) for row in rows]) for line in LINES]


@pytest.mark.untraced
class TestDistrust:
    """What lies in the directory may be of another time, of another log, damaged or made up."""

    @pytest.mark.parametrize("is_whole", [False, True])
    def test_what_says_what_cannot_be_is_not_believed(self, kept: Kept, is_whole: bool) -> None:
        """A manifest that is none, and one of which each line was changed in one way."""
        kept.open()
        before = noted(kept)
        for change in CHANGES if is_whole else MANIFESTS:
            (kept.directory / MANIFEST).write_bytes(change(before))
            store = kept.open(keeps=False, finish=False)
            assert store.snapshot.index.kept == ()
            assert "still to be scanned" in (incomplete(store) or "")
        store = kept.open()
        assert_all_found(store, kept.writer.records, kept.writer.records[::17])
        assert len(noted(kept)) == len(store.snapshot.index.kept) > 2

    @pytest.mark.parametrize("what", ["fifo", "of another"])
    def test_whatever_lies_in_the_place_of_a_file_is_not_taken_for_it(self, kept: Kept, what: str) -> None:
        kept.open()
        first, second, *_ = sorted(kept.directory.glob("0*"))
        content = second.read_bytes()
        first.unlink()
        os.mkfifo(first) if what == "fifo" else first.write_bytes(content)
        store = kept.open()
        assert_all_found(store, kept.writer.records, kept.writer.records[::7])
        assert first.name not in {file.index.name for file in store.snapshot.index.kept}

    @settings(max_examples=examples(3), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_a_damaged_file_of_our_own_hides_nothing(self, small, tmp_path_factory, data) -> None:
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

    def test_files_of_another_log_are_not_believed(self, tmp_path, small) -> None:
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

    def test_keys_behind_a_cut_are_scanned_though_the_last_record_stands(self, tmp_path, small) -> None:
        """The last record with keys stands unchanged; what came behind it was written anew, and has keys now."""
        kept = Kept(tmp_path, 100)
        for _ in range(100):
            kept.writer.append("T", bytes(40))
        append_some(kept.writer, 20)
        kept.writer.flush()
        shutil.rmtree(kept.writer.root / "index")
        kept.open()
        cut(kept.writer, 199)
        append_some(kept.writer, 30, keys="anew all0")
        kept.writer.flush()
        shutil.rmtree(kept.writer.root / "index")
        assert_all_found(kept.open(), kept.writer.records)


def cut(writer: StoreWriter, number: int) -> None:
    """Cut the log before a message, as a broker that starts after a crash does."""
    start = writer.written[number].physical_offset
    for gone in writer.written[number:]:
        writer.overwrite(gone.physical_offset, bytes(gone.size))
    for base in [base for base in writer.log.segments if base > start]:
        writer.log.segments.pop(base).unlink()
    writer.log.end, writer.written = start, writer.written[:number]


def test_files_that_the_stores_own_index_makes_needless_are_deleted(kept: Kept) -> None:
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


def test_what_is_not_ours_is_left_alone(kept: Kept) -> None:
    kept.open()
    for name in ("thesis.txt", "20260101000000000", "00000000000000099.bak"):
        (kept.directory / name).write_bytes(b"a user's")
    (kept.directory / "folder").mkdir()
    store = kept.open()
    assert_all_found(store, kept.writer.records, kept.writer.records[::17])
    assert {"thesis.txt", "20260101000000000", "00000000000000099.bak", "folder"} < set(kept.names)


@pytest.mark.untraced
@pytest.mark.parametrize(
    "each", [pytest.param(1, marks=pytest.mark.soak, id="each step"), pytest.param(5, id="some steps")]
)
def test_a_kill_at_any_step_leaves_nothing_that_is_wrong(tmp_path, small, each) -> None:
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
