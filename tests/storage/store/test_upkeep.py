"""What a store finds out after it was opened: index files that were only looked over, keys beyond the index."""

import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from kept_store import (
    Kept,
    answers,
    append_some,
    assert_all_found,
    incomplete,
    written,
)
from protocol.question import Question
from storage.index import _index_coverage, index_examination
from storage.ranges import total_length
from storage.store import _upkeep
from storage.store._manifest import MANIFEST
from storage.store._store_watch import StoreWatch
from storage.store.message_store import MessageStore, StoreOptions
from storage.store.snapshot import with_index
from store_writer import StoreWriter

# --- files that were only looked over -------------------------------------------------------------------------------


class TestChecks:
    def test_files_beyond_the_budget_are_checked_later_and_answers_say_so(self, tmp_path: Path) -> None:
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

    def test_the_newest_files_are_checked_first(self, tmp_path: Path) -> None:
        writer = written(tmp_path)
        sizes = [path.stat().st_size for path in writer.index_paths()]
        store = MessageStore.open(writer.root, StoreOptions(check_budget=sum(sizes[-3:])))
        unchecked = [found.file.path.name for found in store.snapshot.index.unchecked]
        assert unchecked == [path.name for path in writer.index_paths()[-4::-1]]

    @pytest.mark.parametrize("field", ["slot", "offset"])
    def test_damage_that_a_first_look_does_not_see_is_found_later(self, tmp_path: Path, field: str) -> None:
        writer = written(tmp_path, 700, index_slots=97, index_entries=3000, segment_size=131072)
        path = writer.index_paths()[0]
        content = bytearray(path.read_bytes())
        entry = 40 + 4 * 97 + 20 * 1400  # neither among the first nor among the last
        place = {"slot": 40 + 4 * 50 + 2, "offset": entry + 4}[field]
        content[place] ^= 0x20
        path.write_bytes(content)
        store = MessageStore.open(writer.root, StoreOptions(check_budget=0, scan_budget=0))
        assert "still to be checked" in (incomplete(store) or "")
        store.finish_scan()
        assert incomplete(store) is None
        assert any("scanned from the log" in problem for problem in store.problems)
        records = writer.records
        assert_all_found(store, records, records[340:360])

    def test_a_file_that_leaves_a_doubt_covers_nothing_until_it_is_checked(self, tmp_path: Path) -> None:
        writer = written(tmp_path)
        path = writer.index_paths()[4]
        content = bytearray(path.read_bytes())
        content[36:40] = oracles.packed(3, 4)  # the header counts fewer entries than there are
        path.write_bytes(content)
        store = MessageStore.open(writer.root, StoreOptions(check_budget=0, scan_budget=0))
        assert_all_found_but_for(store, writer)
        store.finish_scan()
        assert len(store.snapshot.index.files) == len(writer.index_paths())
        assert_all_found(store, writer.records)

    def test_who_does_not_keep_the_state_reads_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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

    def test_it_stops_when_it_is_told_to(self, tmp_path: Path) -> None:
        writer = written(tmp_path)
        store = MessageStore.open(writer.root, StoreOptions(check_budget=0))
        steps = iter([False, False, True, True])
        store.finish_scan(lambda: next(steps))
        assert len(store.snapshot.index.unchecked) == len(writer.index_paths()) - 2

    def test_a_file_that_comes_while_it_is_served_is_looked_over_and_checked(self, tmp_path: Path) -> None:
        writer = written(tmp_path)
        aside = writer.index_paths()[-1].rename(tmp_path / "aside")
        store = MessageStore.open(writer.root, StoreOptions(check_budget=0))
        store.finish_scan()
        aside.rename(writer.index_paths()[-1])
        assert store.renew()
        assert len(store.snapshot.index.unchecked) == 1
        store.finish_scan()
        assert store.snapshot.index.unchecked == ()
        assert_all_found(store, writer.records)

    @pytest.mark.untraced
    @settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_any_damaged_file_is_found_out_in_the_end(
        self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
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


def assert_all_found_but_for(store: MessageStore, writer: StoreWriter) -> None:
    """Nothing that is found is wrong, and what may be missing is said to be."""
    assert incomplete(store)
    for _, offsets, right in answers(store, writer.records):
        assert set(offsets) <= set(right)


# --- entries that lead nowhere --------------------------------------------------------------------------------------


class TestStrays:
    @pytest.fixture(autouse=True)
    def only_the_end_is_compared(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_index_coverage, "COMPARED_BYTES", 500)

    def written(self, root: Path) -> StoreWriter:
        """Messages of which each has one key of its own, whose entry is the last of its four."""
        writer = StoreWriter(root / "store", index_slots=97, index_entries=500, segment_size=65536)
        for number in range(400):
            keys = f"all all{number % 3} k{number}"
            writer.append("T", bytes(20), keys=keys, unique_key=f"u{number}")
        writer.close()
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

    def test_a_file_whose_entry_points_into_a_message_covers_nothing_any_more(self, tmp_path: Path) -> None:
        writer = self.written(tmp_path)
        self.moved(writer, 30, 4)
        store = MessageStore.open(writer.root)
        files = len(store.snapshot.index.files)
        assert not any("inside a message" in problem for problem in store.problems)
        assert list(store.query(Question("T", "k30")).physical_offsets) == [writer.written[30].physical_offset]
        assert len(store.snapshot.index.files) == files - 1
        assert any("inside a message" in problem for problem in store.problems)
        assert_all_found(store, writer.records, writer.records[20:50])

    def test_it_is_not_trusted_at_the_next_start_either(self, tmp_path: Path) -> None:
        writer = self.written(tmp_path)
        self.moved(writer, 30, 4)
        options = StoreOptions(state_directory=tmp_path / "state")
        MessageStore.open(writer.root, options).query(Question("T", "k30"))
        again = MessageStore.open(writer.root, options)
        assert len(again.snapshot.index.files) == len(writer.index_paths()) - 1
        assert_all_found(again, writer.records, writer.records[20:50])

    def test_where_the_log_is_damaged_its_index_is_not_to_blame(self, tmp_path: Path) -> None:
        writer = self.written(tmp_path)
        writer.overwrite(writer.written[30].physical_offset + 4, bytes(4))
        store = MessageStore.open(writer.root)
        files = len(store.snapshot.index.files)
        for _ in range(2):
            assert store.query(Question("T", "k30")).count == 0
        assert store.snapshot.damage == (writer.written[30].physical_offset,)
        assert len(store.snapshot.index.files) == files
        assert_all_found(store, writer.records, writer.records[20:50])


# --- keys that become files -----------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path, small: None) -> Kept:
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

    def test_they_are_not_missed_when_the_index_changes_while_they_are_looked_at(self, kept: Kept) -> None:
        reader = kept.open(keeps=False, finish=False)
        watch = StoreWatch(kept.writer.root, StoreOptions())
        kept.open()
        late = watch.look(reader.snapshot)
        assert late is not None
        meanwhile = with_index(reader.snapshot, reader.snapshot.index.with_kept(None, []))
        assert late(meanwhile) is None
        again = watch.look(meanwhile)
        assert again is not None
        after = again(meanwhile)
        assert after is not None
        assert len(after.index.kept) >= 9

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

    def test_keys_of_what_a_broker_goes_on_writing_are_moved_too(self, kept: Kept) -> None:
        store = kept.open()
        before = len(store.snapshot.index.kept)
        kept.writer.index.files.clear()  # its index is switched off
        append_some(kept.writer, 200, index=False)
        kept.writer.flush()
        shutil.rmtree(kept.writer.root / "index", ignore_errors=True)
        follower = store.follower()
        while follower.poll() is not None:
            pass
        assert store.renew()
        store.finish_scan()
        assert len(store.snapshot.index.kept) > before
        assert store.snapshot.tail.entry_bytes <= _upkeep.MOST_IN_MEMORY
        assert_all_found(store, kept.writer.records)

    def test_holes_of_an_index_are_kept_range_by_range(self, tmp_path: Path, small: None) -> None:
        writer = written(tmp_path, 260)
        for number, path in enumerate(writer.index_paths()):
            if 3 < number % 12 < 11:
                path.unlink()
        store = MessageStore.open(
            writer.root, StoreOptions(scan_budget=0, entries_directory=lambda _: tmp_path / "entries")
        )
        store.keep_entries()
        store.finish_scan()
        assert len(store.snapshot.index.kept) > 3
        assert any(len(file.ranges or ()) > 1 for file in store.snapshot.index.kept)
        assert_all_found(store, writer.records)
        again = MessageStore.open(writer.root, StoreOptions(entries_directory=lambda _: tmp_path / "entries"))
        assert_all_found(again, writer.records)


@pytest.mark.untraced
def test_two_threads_that_finish_do_it_once(tmp_path: Path, small: None) -> None:
    kept = Kept(tmp_path)
    store = kept.open(finish=False)
    threads = [threading.Thread(target=store.finish_scan) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert incomplete(store) is None
    assert store.snapshot.tail.entry_bytes <= _upkeep.MOST_IN_MEMORY
    assert_all_found(store, kept.writer.records)
