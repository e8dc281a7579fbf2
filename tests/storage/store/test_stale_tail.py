"""Intact records behind a running broker's end of the log, which a replica cut off: they are no new messages."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from command_line import rocketlens
from doctoring import only
from examples import examples
from golden_store import CASES, unpack
from growing_store import hurry
from protocol.question import KeyKind, Question
from storage.doctor.examine import examine
from storage.doctor.finding import Severity
from storage.log.commit_log import LEFT_OVER
from storage.store import store_state
from storage.store.message_store import MessageStore
from store_writer import START_TIMESTAMP, StoreWriter

STEP_MS = 5000


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


def test_once_it_has_stopped_they_are_messages_as_for_a_broker_that_starts_and_doctor_says_what_they_may_be(
    case,
) -> None:
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

    def write(self, count: int, *, dispatched: bool = True, later_ms: int = STEP_MS) -> None:
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
def test_what_was_cut_off_never_comes_back_while_the_broker_writes_over_it(
    data, old, is_refreshed, monkeypatch
) -> None:
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


def epochs_of(root: Path, *entries: str) -> None:
    """Write the epochs of controller mode, not checked, as Java's own example has them checked."""
    (root / "epochFileCheckpoint").write_text("\n".join([str(len(entries)), "0", *entries, ""]))


@settings(max_examples=examples(4), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), old=st.integers(4, 30), is_live=st.booleans(), has_epochs=st.booleans())
def test_without_queue_files_what_is_older_than_the_last_epoch_is_no_message_of_a_running_broker(
    data, old, is_live, has_epochs, monkeypatch
) -> None:
    """Its queues are in RocksDB; of a stopped one `doctor` says what they may be."""
    hurry(monkeypatch)
    monkeypatch.setattr(store_state, "_probe_lock", lambda _: (is_live, 1 if is_live else None))
    kept = data.draw(st.integers(1, old - 2))
    with tempfile.TemporaryDirectory() as directory:
        cut = CutStore(Path(directory), old, kept)
        begun = cut.end
        cut.write(data.draw(st.integers(1, old - kept - 1)))
        if has_epochs:
            epochs_of(cut.root, "1-0", f"3-{begun}")
        shutil.rmtree(cut.root / "consumequeue")
        (cut.root / "consumequeue_rocksdb").mkdir()
        (cut.root / "consumequeue_rocksdb" / "CURRENT").touch()
        is_cut = is_live and has_epochs
        store = MessageStore.open(cut.root)
        expected = {
            name: is_there or not (is_cut or int(name[1:]) < cut.count) for name, is_there in cut.expected(old).items()
        }
        assert found_in(store, expected) == expected
        assert store.commit_log.stale_from == (cut.end if is_cut else None)
        found = [
            each for each in examine(cut.root).findings if (each.check, each.physical_offset) == ("log-end", cut.end)
        ]
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
