"""Queues that only the log has: their units are those that a broker writes into files, whatever was read when."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_store import GOLDEN, unpack
from protocol.errors import BeingSearched, QueueBeingSearched
from storage.layout.delay_levels import parse_delay_levels
from storage.log.commit_log import CommitLog
from storage.query.get_message import get_message
from storage.queue import derived_queues as module
from storage.queue.consume_queue import ConsumeQueue
from storage.queue.derived_queues import DerivedQueues
from storage.queue.queue_store import QueueStore
from storage.store import _upkeep
from storage.store.message_store import MessageStore, StoreOptions
from store_kinds import with_rocksdb_queues
from store_writer import StoreWriter

Queues = dict[tuple[str, int], list[tuple[int, ...]]]


def units_of(queues: QueueStore) -> Queues:
    """The queue offset of the first unit and all units, of each plain queue."""
    return {
        (topic, queue.queue_id): [(queue.min_offset, queue.max_offset), *queue.units().tolist()]
        for topic in queues.all_topics()
        for queue in queues.queues_of(topic)
        if isinstance(queue, ConsumeQueue) and not queues.has_batches(topic)
    }


def opened(root: Path, **options: object) -> MessageStore:
    return MessageStore.open(root, StoreOptions(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["g2-queues", "g2-dledger-mixed", "g2-rocksdb-double", "g2-rocksdb-selective"])
def test_derived_units_are_those_that_a_broker_wrote_into_files(name: str, tmp_path: Path) -> None:
    recorded = GOLDEN / "g2" / name
    levels = json.loads((recorded / "store.json").read_text())["properties"]["messageDelayLevel"]
    root = unpack("store", tmp_path, archives=recorded)
    written = units_of(MessageStore.open(root).queues)
    batches = {path.name for path in (root / "batchconsumequeue").glob("*")}
    found = units_of(opened(with_rocksdb_queues(root), delay_levels=levels).queues)
    assert len(written) > 3
    if name == "g2-queues":  # the broker appended one message anew when it gave it up; the log says it is the first one
        given_up = written["%LMQ%alpha", 0].pop()
        assert given_up[0] == 28012
        written["%LMQ%alpha", 0][0] = (0, 11)
    assert {name: units for name, units in found.items() if name[0] not in batches} == written


def made(root: Path, count: int = 40) -> StoreWriter:
    """A store of several segments with queues of two topics and light ones."""
    writer = written(root, count)
    writer.close()
    return writer


def written(root: Path, count: int) -> StoreWriter:
    """A writer of such a store that is not closed yet."""
    writer = StoreWriter(root, segment_size=2048)
    for number in range(count):
        others = number - number // 3 - 1
        light = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": f"{number}"}
        if number % 3:
            light = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": f"{number},{others}"}
        writer.append(f"T{number % 2}", b"x" * number, queue_id=number % 3, tags=f"Tag{number % 4}", properties=light)
    return writer


def derived_of(root: Path, *, only_light: bool = False) -> DerivedQueues:
    return DerivedQueues(root / "consumequeue", parse_delay_levels("1s"), only_light=only_light)


@settings(max_examples=4, deadline=None)
@given(budgets=st.lists(st.integers(1, 3000), min_size=1, max_size=12), most=st.sampled_from([0, 500, 1 << 20]))
def test_pieces_of_any_size_lead_to_the_same_units(
    budgets: list[int], most: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("store")
    made(root, 20)
    expected = units_of(QueueStore(root, CommitLog.open([root / "commitlog"])))
    log = CommitLog.open([with_rocksdb_queues(root) / "commitlog"])
    derived = derived_of(root)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "LONG_SCAN", 1)
        patched.setattr(module, "MOST_MERGED", most)
        for budget in budgets:
            derived.scan(log, lambda: False, budget)
        derived.scan(log, lambda: False)
    assert units_of(QueueStore(root, log, derived=derived)) == expected
    shutil.rmtree(root)


def test_files_of_queues_that_were_left_behind_are_not_taken_for_whole(tmp_path: Path) -> None:
    writer = made(tmp_path, 20)
    older = tmp_path / "older"
    shutil.copytree(tmp_path / "consumequeue", older)
    writer.append("T0", b"later", queue_id=0)
    writer.close()
    expected = units_of(MessageStore.open(tmp_path).queues)
    shutil.rmtree(tmp_path / "consumequeue")
    shutil.move(older, tmp_path / "consumequeue")
    (tmp_path / "consumequeue" / "CURRENT").write_text("MANIFEST-000005\n")
    assert units_of(MessageStore.open(tmp_path).queues) == expected


def test_messages_that_come_are_in_their_queues_and_older_snapshots_stay(tmp_path: Path) -> None:
    writer = made(tmp_path, 10)
    store = MessageStore.open(with_rocksdb_queues(tmp_path))
    before = store.queues
    first = units_of(before)
    shutil.rmtree(tmp_path / "consumequeue")
    for number in range(30):
        writer.append("T0", b"came" * number, queue_id=number % 3)
    writer.append("New", b"new", queue_id=5)
    writer.close()
    expected = units_of(MessageStore.open(tmp_path).queues)
    with_rocksdb_queues(tmp_path)
    store.refresh()
    assert units_of(store.queues) == expected
    assert {name: units for name, units in units_of(before).items() if units[1:]} == first
    assert len(expected["T0", 0]) > len(first["T0", 0])


def test_after_retention_a_queue_begins_where_the_log_does_and_ended_ones_keep_their_offset(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, segment_size=1024)
    for _ in range(3):
        writer.append("Early", b"x" * 100)
    for number in range(30):
        writer.append("T0", b"x" * 100, queue_id=number % 2)
    writer.close()
    segments = sorted((tmp_path / "commitlog").iterdir())
    store = MessageStore.open(with_rocksdb_queues(tmp_path))
    assert units_of(store.queues)["Early", 0][0] == (0, 3)
    live = [each for each in writer.records if each.physical_offset >= int(segments[3].name)]
    for path in segments[:3]:
        path.unlink()
    store.refresh()
    for queue_id in (0, 1):
        offsets = [each.queue_offset for each in live if each.queue_id == queue_id]
        assert units_of(store.queues)["T0", queue_id][0] == (offsets[0], offsets[-1] + 1)
    assert units_of(store.queues)["Early", 0] == [(3, 3)]


def test_a_long_log_is_left_to_the_background_and_pulls_are_told_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path)
    expected = units_of(MessageStore.open(tmp_path).queues)
    monkeypatch.setattr(module, "SCANNED_AT_ONCE", 100)
    store = opened(with_rocksdb_queues(tmp_path), scan_budget=0)
    store.follower()
    with pytest.raises(QueueBeingSearched, match="are being derived from the log, 0% of which is read"):
        get_message(store.queues, "T0", 0, 0, 3, 1 << 20)
    with pytest.raises(BeingSearched):
        store.queues.all_topics()
    store.finish_scan()
    assert units_of(store.queues) == expected


class TestKept:
    """Units that were derived are found by the next start, unless the log is another one."""

    def kept(self, root: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> Queues:
        monkeypatch.setattr(_upkeep, "MOST_UNITS", 100)
        monkeypatch.setattr(_upkeep, "SPARE_BYTES", 0)
        store = opened(root, scan_budget=0, entries_directory=lambda _: state)
        store.keep_entries()
        store.finish_scan()
        return units_of(store.queues)

    def read_from(self, root: Path, state: Path) -> tuple[Queues, int]:
        """The queues by what is kept, and how much of the log had been read before any was asked for."""
        store = opened(root, scan_budget=0, entries_directory=lambda _: state, keeps_state=False)
        assert store.queues.derived is not None
        known = store.queues.derived.state.stop
        return units_of(store.queues), known

    def test_the_next_start_reads_none_of_the_log_again_unless_a_file_is_damaged(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writer = made(tmp_path / "store")
        expected = units_of(MessageStore.open(writer.root).queues)
        root, state = with_rocksdb_queues(writer.root), tmp_path / "state"
        assert self.kept(root, state, monkeypatch) == expected
        assert len(list((state / "queues").glob("*.units"))) >= 1
        found, known = self.read_from(root, state)
        assert found == expected
        assert known == writer.records[-1].physical_offset + writer.records[-1].total_size
        for cut in (100, 1, 0):
            for path in (state / "queues").glob("*.units"):
                path.write_bytes(path.read_bytes()[:cut])
            assert self.read_from(root, state)[0] == expected, "a damaged file is derived anew"

    def test_what_a_crash_cut_off_and_was_written_anew_is_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writer = made(tmp_path / "store", 30)
        shutil.copytree(writer.root, tmp_path / "before")
        self.kept(with_rocksdb_queues(writer.root), tmp_path / "state", monkeypatch)
        shutil.rmtree(writer.root)
        other = written(writer.root, 25)  # the same messages, but for the last ones
        for number in range(10):
            other.append("T1", b"anew" * number, queue_id=number % 2)
        other.close()
        expected = units_of(MessageStore.open(other.root).queues)
        assert self.read_from(with_rocksdb_queues(other.root), tmp_path / "state")[0] == expected

    def test_after_retention_what_is_kept_of_the_rest_serves_and_ended_queues_keep_their_offset(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writer = StoreWriter(tmp_path / "store", segment_size=1024)
        for _ in range(3):
            writer.append("Early", b"x" * 100)
        for number in range(60):
            writer.append("T0", b"x" * 100, queue_id=number % 2)
        writer.close()
        records = writer.records
        root, state = with_rocksdb_queues(writer.root), tmp_path / "state"
        monkeypatch.setattr(_upkeep, "DERIVED_AT_ONCE", 1024)
        monkeypatch.setattr(module, "LONG_SCAN", 1)
        self.kept(root, state, monkeypatch)
        files = sorted((state / "queues").glob("*.units"))
        assert len(files) > 3
        for segment in (root / "commitlog").iterdir():
            if int(segment.name) < int(files[2].name.split(".")[0]):
                segment.unlink()
        lowest = min(int(path.name) for path in (root / "commitlog").iterdir())
        live = [each for each in records if each.physical_offset >= lowest]
        found, known = self.read_from(root, state)
        assert known > 0
        assert found["Early", 0] == [(3, 3)]
        for queue_id in (0, 1):
            offsets = [each.queue_offset for each in live if each.queue_id == queue_id]
            assert found["T0", queue_id][0] == (offsets[0], offsets[-1] + 1)

    @pytest.mark.parametrize("is_there", [False, True])
    def test_a_segment_that_was_missing_or_damaged_and_comes_back_is_read(
        self, is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writer = made(tmp_path / "store")
        expected = units_of(MessageStore.open(writer.root).queues)
        root, state = with_rocksdb_queues(writer.root), tmp_path / "state"
        segment = sorted((root / "commitlog").iterdir())[1]
        shutil.move(segment, tmp_path / segment.name)
        if is_there:
            content = bytearray((tmp_path / segment.name).read_bytes())
            content[300:400] = bytes(100)
            segment.write_bytes(content)
        lacking = self.kept(root, state, monkeypatch)
        assert lacking != expected
        found, known = self.read_from(root, state)
        assert found == lacking
        assert known > 0
        segment.unlink(missing_ok=True)
        shutil.move(tmp_path / segment.name, segment)
        assert self.read_from(root, state)[0] == expected


def test_a_topic_that_was_made_anew_begins_with_its_later_messages(tmp_path: Path) -> None:
    first, again = StoreWriter(tmp_path / "a"), StoreWriter(tmp_path / "b")
    for number in range(6):
        first.append("T", b"x" * number)
    for number in range(3):
        again.append("T", b"y" * number)
    first.close()
    again.close()
    log = CommitLog.open([tmp_path / "a" / "commitlog"])
    derived = derived_of(tmp_path)
    derived.scan(log, lambda: False)
    (run,) = derived.state.runs
    np.testing.assert_array_equal(run.part.rows["first"], [0])
    for record in again.records:
        first.append_record(record, index=False, queue=False)
    first.close()
    log = CommitLog.open([tmp_path / "a" / "commitlog"])
    derived.scan(log, lambda: False)
    queue = QueueStore(tmp_path, log, derived=derived).queue("T", 0)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (0, 3)


def test_a_topic_is_not_called_absent_before_its_queues_were_derived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path)
    root = with_rocksdb_queues(tmp_path)
    assert opened(root, scan_budget=0).queues.absence_of("T0") == ()
    assert opened(root, scan_budget=0).queues.absence_of("None") == ("the store has no queue of topic None",)
    monkeypatch.setattr(module, "SCANNED_AT_ONCE", 100)
    store = opened(root, scan_budget=0)
    store.follower()  # a server, whose background scan reads the log
    (sentence,) = store.queues.absence_of("T0")
    assert "0% of which is read" in sentence
