"""A log that grows, is cut, and is written again; what is left over behind its end."""

import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from command_line import rocketlens
from doctoring import only
from examples import examples
from golden_store import CASES, unpack
from growing_store import Followed, hurry
from oracles import BLANK_MAGIC, packed
from protocol.question import KeyKind, Question
from storage.doctor.examine import examine
from storage.doctor.finding import Severity
from storage.log import segment_end
from storage.log.commit_log import LEFT_OVER, CommitLog
from storage.store import _log_follower, store_state
from storage.store._log_follower import DAMAGED_SECONDS, LogFollower
from storage.store.message_store import MessageStore
from store_files import LEDGER_HEAD
from store_writer import START_TIMESTAMP, StoreWriter


@pytest.fixture(params=[False, True], ids=["plain", "ledger"])
def followed(tmp_path, hurried, request):
    return Followed(tmp_path / "store", is_ledger=request.param, segment_size=4096)


def start_of(followed, written):
    return written.physical_offset - (LEDGER_HEAD if followed.growing.log.is_ledger else 0)


class TestTornRecords:
    def test_half_a_record_is_no_record_and_the_rest_makes_it_one(self, followed, monkeypatch) -> None:
        monkeypatch.setattr(_log_follower, "DAMAGED_SECONDS", 1000.0)
        written = followed.growing.add_torn(0.1, body=b"x" * 200)
        followed.poll(4)
        assert followed.store.record_at(written.physical_offset) is None
        assert followed.store.commit_log.end == start_of(followed, written)
        followed.growing.mend()
        followed.growing.flush()
        followed.settle()
        assert followed.found(f"u{1}", KeyKind.UNIQUE) == [written.physical_offset]
        followed.check()

    def test_properties_that_are_not_there_yet_are_waited_for(self, followed, monkeypatch) -> None:
        """The body's checksum holds while topic and properties, which are copied last, are still zeros."""
        monkeypatch.setattr(_log_follower, "DAMAGED_SECONDS", 1000.0)
        whole = followed.growing.add(keys="late", unique_key=None, tags=None)
        zeros = bytes(len("late") + 1)
        followed.growing.writer.overwrite(whole.physical_offset + whole.size - len(zeros), zeros)
        followed.poll(5)
        assert followed.store.commit_log.end == start_of(followed, whole)
        followed.growing.writer.overwrite(whole.physical_offset, whole.record)
        followed.poll(3)
        assert followed.found("late") == [whole.physical_offset]

    def test_a_record_that_stays_torn_ends_the_log_and_is_told_of(self, followed: Followed) -> None:
        written = followed.growing.add_torn(0.5)
        followed.poll(4)
        fresh = MessageStore.open(followed.growing.root)
        assert followed.store.problems == fresh.problems
        assert any(f"at physical offset {start_of(followed, written)}" in problem for problem in fresh.problems)
        followed.growing.mend()
        followed.growing.flush()
        followed.settle()
        assert not any("damaged" in problem for problem in followed.store.problems)
        followed.check()


def test_a_log_that_is_cut_before_its_end_is_opened_anew(followed: Followed) -> None:
    followed.growing.add()
    followed.growing.flush()
    followed.settle()
    last = followed.growing.writer.written[-1]
    os.truncate(followed.store.commit_log.segments[-1].file.path, last.physical_offset + 64)
    followed.settle()
    assert followed.store.commit_log.end == start_of(followed, last)
    assert followed.store.record_at(last.physical_offset) is None


def test_a_log_that_is_gone_is_no_log(followed: Followed) -> None:
    os.truncate(followed.store.commit_log.segments[-1].file.path, 0)
    followed.settle()
    assert followed.store.commit_log.segments == ()
    assert any("is empty" in problem for problem in followed.store.problems)


def cut(followed, kept):
    """Damage one message of several of one size; the broker will go on in its place."""
    old = [followed.growing.add(keys=f"o{number}", unique_key=f"u{number:04}") for number in range(8)]
    followed.growing.flush()
    writer = followed.growing.writer
    writer.overwrite(old[kept].physical_offset + 40, b"\xff" * 8)
    writer.overwrite(old[kept].physical_offset + 90, b"\xff" * 8)
    followed.open()
    assert followed.store.commit_log.end == old[-1].physical_offset + old[-1].size, "nothing was cut yet"
    followed.poll(3)
    writer.log.end = start_of(followed, old[kept])
    writer.written = writer.written[: 1 + kept]
    return old


def test_old_records_behind_the_new_end_are_not_taken_for_new(followed: Followed) -> None:
    old = cut(followed, 3)
    new = []
    for number in range(3):
        new.append(followed.growing.add(keys=f"n{number}", unique_key=f"v{number:04}", index=False, queue=False))
        assert new[-1].physical_offset == old[3 + number].physical_offset
        followed.poll(4)
        assert followed.store.commit_log.end == new[-1].physical_offset + new[-1].size
    for number, written in enumerate(new):
        assert followed.found(f"n{number}") == [written.physical_offset]
    assert followed.store.record_at(old[6].physical_offset) is None


@pytest.mark.usefixtures("hurried")
def test_it_grows_over_segments_elections_and_changes_of_the_group(tmp_path) -> None:
    ledger = Followed(tmp_path / "store", is_ledger=True)
    for number in range(40):
        ledger.growing.add(body=b"x" * (number % 7 * 40))
        if number % 9 == 0:
            ledger.growing.log.write_empty_entry()
        if number % 11 == 0:
            ledger.growing.log.write_empty_entry(3, b"n0-127.0.0.1:40911;n1-127.0.0.1:40912")
        ledger.growing.flush()
        if number % 5 == 0:
            ledger.settle()
            ledger.check()
    ledger.settle()
    ledger.check()
    assert len(ledger.store.commit_log.segments) > 3
    assert ledger.store.problems == []


SEGMENT = 1024
MAGIC = BLANK_MAGIC.to_bytes(4, "big")


class Growing:
    def __init__(self, root) -> None:
        self.now, self.directory = 100.0, root / "followed"
        self.directory.mkdir(parents=True)
        for base in range(0, 3 * SEGMENT, SEGMENT):
            (self.directory / f"{base:020d}").write_bytes(bytes(SEGMENT))
        self.log = CommitLog.open([self.directory])
        self.follower = LogFollower([self.directory])

    def write(self, physical_offset: int, data: bytes) -> None:
        base = physical_offset // SEGMENT * SEGMENT
        descriptor = os.open(self.directory / f"{base:020d}", os.O_WRONLY)
        os.pwrite(descriptor, data, physical_offset - base)
        os.close(descriptor)

    def look(self, seconds=0.0):
        growths = []
        for wait in (0.0, seconds):
            self.now += wait
            growth = self.follower.look(self.log, lambda *_: False)
            if growth is not None:
                self.log = growth.commit_log
                growths.append(growth)
        return growths[-1] if growths else None


@pytest.fixture
def growing(tmp_path, monkeypatch):
    growing = Growing(tmp_path)
    monkeypatch.setattr(_log_follower, "time", SimpleNamespace(monotonic=lambda: growing.now))
    return growing


def written_log(root):
    with StoreWriter(root, segment_size=SEGMENT) as writer:
        written = [writer.append("T", b"x" * (40 + number), keys=f"k{number}") for number in range(8)]
    assert SEGMENT < writer.log.end < 2 * SEGMENT
    return writer, written


def test_no_beginning_of_anything_is_taken_for_damage_or_for_an_end(growing, tmp_path) -> None:
    writer, written = written_log(tmp_path / "written")
    closed = max(each.physical_offset + each.size for each in written if each.physical_offset < SEGMENT)
    pieces = [(each.physical_offset, each.record) for each in written]
    pieces.append((closed, packed(SEGMENT - closed, 4) + MAGIC))
    for start, data in sorted(pieces):
        for number, byte in enumerate(data):
            growing.write(start + number, bytes([byte]))
            # However long a writer stands still within the first eight bytes.
            growing.look(10 * DAMAGED_SECONDS if number < 8 else 0.0)
            assert (growing.log.torn_end, growing.log.damage) == (None, ())
            assert growing.log.end <= max(start, closed if start < SEGMENT else start) or number == len(data) - 1
        growing.look(0.05)
    assert growing.log.end == writer.log.end
    assert [growing.log.record_at(each.physical_offset) for each in written] == [each.record for each in written]


def test_a_blank_of_a_wrong_size_is_damage_once_the_log_goes_on(growing, tmp_path) -> None:
    _, written = written_log(tmp_path / "written")
    behind = next(each for each in written if each.physical_offset == SEGMENT)
    growing.write(0, written[0].record)
    growing.look(0.05)
    end = growing.log.end
    growing.write(end, packed(8, 4) + MAGIC)
    growing.look(10 * DAMAGED_SECONDS)
    assert (growing.log.end, growing.log.torn_end) == (end, None)
    growing.write(SEGMENT, behind.record)
    for _ in range(3):
        growing.look(2 * DAMAGED_SECONDS)
    assert (growing.log.record_at(SEGMENT), growing.log.record_at(0)) == (behind.record, written[0].record)


def test_what_was_searched_in_vain_is_not_searched_again(growing, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(_log_follower, "LOOK_AHEAD_BYTES", 400)
    monkeypatch.setattr(segment_end, "CHUNK", 50)
    _, written = written_log(tmp_path / "written")
    growing.write(0, b"\xff" * 100)
    for _ in range(3):
        growing.look(2 * DAMAGED_SECONDS)
    assert growing.log.torn_end is not None
    growing.write(written[2].physical_offset, written[2].record)
    for _ in range(3):
        growing.look(2 * DAMAGED_SECONDS)
    assert growing.log.record_at(written[2].physical_offset) == written[2].record


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_state, "_probe_lock", lambda _: (True, 1))


@pytest.fixture
def case(tmp_path: Path) -> Path:
    return unpack("store", tmp_path, archives=CASES / "B10-stale-tail")


@pytest.mark.usefixtures("live")
def test_of_a_recorded_running_broker_what_it_cut_off_is_neither_found_nor_counted(case: Path) -> None:
    for key, code in (("a8", 1), ("a9", 1), ("b7", 0), ("a5", 0)):
        assert rocketlens("find", case, key).code == code
    store = MessageStore.open(case)
    assert store.commit_log.end == 1352
    assert any(LEFT_OVER in problem for problem in store.problems)
    found = only(case, "log-end")
    assert (found.severity, found.physical_offset, found.found) == (Severity.INFO, 1352, LEFT_OVER)


def test_once_it_has_stopped_they_are_messages_and_doctor_says_what_they_may_be(case) -> None:
    assert [rocketlens("find", case, key).code for key in ("a8", "a9", "b7")] == [0, 0, 0]
    found = only(case, "queue-reach")
    assert "from message 1352 on, which were stored 99000 ms before the one in front of them" in found.found
    assert "left over from another history" in found.meaning
    assert found.remedy.startswith("no command decides this")
    assert "nothing to do" not in found.remedy


class CutStore:
    """A store of a running broker that had `old` messages, cut all but `kept`, and has written others since."""

    def __init__(self, root: Path, old: int, kept: int) -> None:
        self.root = root / "live"
        self._written = StoreWriter(root / "written", segment_size=1 << 16)
        before = StoreWriter(self.root, segment_size=1 << 16)
        for number in range(old):
            time = START_TIMESTAMP + number
            if number < kept:
                self._append("a", number, time)
            before.append("T", b"body", keys=f"a{number:03}", store_timestamp=time)
        before.flush()
        self.kept, self.count = kept, kept

    def _append(self, letter: str, number: int, time: int) -> None:
        written = self._written.append("T", b"body", keys=f"{letter}{number:03}", store_timestamp=time)
        self.end = written.physical_offset + written.size

    def write(self, count: int, *, dispatched: bool = True, later_ms: int = 5000) -> None:
        """Write messages over what was cut off, and into queues as they are when a broker has written them."""
        for _ in range(count):
            self._append("b", self.count, START_TIMESTAMP + later_ms + self.count)
            self.count += 1
        self._written.flush()
        for path in self._written.root.rglob("*"):
            if path.is_file() and (dispatched or "consumequeue" not in path.parts):
                target = self.root / path.relative_to(self._written.root)
                target.parent.mkdir(parents=True, exist_ok=True)
                content = path.read_bytes()[: self.end if "commitlog" in path.parts else None]
                with target.open("r+b" if target.exists() else "wb") as file:
                    file.write(content)

    def expected(self, old: int) -> dict[str, bool]:
        names = [f"a{number:03}" for number in range(old)]
        return {name: int(name[1:]) < self.kept for name in names} | {
            f"b{number:03}": True for number in range(self.kept, self.count)
        }


def found_in(store: MessageStore, names: dict[str, bool]) -> dict[str, bool]:
    return {name: store.query(Question("T", name, KeyKind.KEY, maximum=9)).count > 0 for name in names}


@pytest.mark.usefixtures("live")
@settings(max_examples=examples(4), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), old=st.integers(4, 30), is_refreshed=st.booleans())
def test_what_was_cut_off_never_comes_back(data, old, is_refreshed, monkeypatch) -> None:
    hurry(monkeypatch)
    kept = data.draw(st.integers(1, old - 2))
    with tempfile.TemporaryDirectory() as directory:
        cut = CutStore(Path(directory), old, kept)
        cut.write(data.draw(st.integers(1, old - kept - 1)))
        store = MessageStore.open(cut.root)
        assert found_in(store, cut.expected(old)) == cut.expected(old)
        follower = store.follower()
        for _ in range(2):
            cut.write(data.draw(st.integers(1, 4)))
            if is_refreshed:
                store.refresh()
            else:
                for _ in range(12):
                    follower.poll()
                follower.watch()
            assert found_in(store, cut.expected(old)) == cut.expected(old)


@settings(max_examples=examples(4), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), old=st.integers(4, 30), is_live=st.booleans(), has_epochs=st.booleans())
def test_without_queues_what_is_older_than_the_last_epoch_is_none(data, old, is_live, has_epochs, monkeypatch) -> None:
    """Its queues are in RocksDB; of a stopped one `doctor` says what they may be."""
    hurry(monkeypatch)
    monkeypatch.setattr(store_state, "_probe_lock", lambda _: (is_live, 1 if is_live else None))
    kept = data.draw(st.integers(1, old - 2))
    with tempfile.TemporaryDirectory() as directory:
        cut = CutStore(Path(directory), old, kept)
        begun = cut.end
        cut.write(data.draw(st.integers(1, old - kept - 1)))
        if has_epochs:
            (cut.root / "epochFileCheckpoint").write_text(f"2\n0\n1-0\n3-{begun}\n")  # not checked
        shutil.rmtree(cut.root / "consumequeue")
        (cut.root / "consumequeue_rocksdb").mkdir()
        (cut.root / "consumequeue_rocksdb" / "CURRENT").touch()
        is_cut = is_live and has_epochs
        store = MessageStore.open(cut.root)
        there = cut.expected(old).items()
        expected = {name: is_there or not (is_cut or int(name[1:]) < cut.count) for name, is_there in there}
        assert found_in(store, expected) == expected
        assert store.commit_log.stale_from == (cut.end if is_cut else None)
        findings = examine(cut.root).findings
        found = [each for each in findings if (each.check, each.physical_offset) == ("log-end", cut.end)]
        assert [each.severity for each in found] == [Severity.INFO if is_live else Severity.WARNING] * has_epochs
        if found and not is_live:
            assert f"older than epoch 3, which began before them, at {begun}" in found[0].found
        if is_cut:
            follower = store.follower()
            cut.write(1, dispatched=False)
            for _ in range(12):
                follower.poll()
            expected = {name: there and (name[0] == "b" or int(name[1:]) < kept) for name, there in expected.items()}
            expected |= {name: True for name in cut.expected(old) if name[0] == "b"}
            assert found_in(store, expected) == expected


@pytest.mark.usefixtures("live")
def test_a_message_that_was_taken_for_old_counts_once_its_queue_has_it(tmp_path, monkeypatch) -> None:
    """The clock was set back, and the queues were late, when the store was opened."""
    hurry(monkeypatch)
    cut = CutStore(tmp_path, 6, 5)
    cut.write(1)
    cut.write(2, dispatched=False, later_ms=0)
    store = MessageStore.open(cut.root)
    assert [name for name, there in found_in(store, cut.expected(6)).items() if there][-1] == "b005"
    follower = store.follower()
    cut.write(1)
    for _ in range(12):
        follower.poll()
    follower.watch()
    for _ in range(12):
        follower.poll()
    assert found_in(store, cut.expected(6)) == cut.expected(6)
