"""Half messages: drawn transactions, whose ends a plain list of what the broker did tells."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from storage.life.message_life import find_life
from storage.life.transactions import endings
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

HALF, OPERATIONS, DISCARDED = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
BORN = 1_700_000_000_500


@dataclass
class Half:
    """A half message that was written, and what became of it, in order."""

    physical_offset: int
    queue_offset: int
    checks: int
    done: list[str] = field(default_factory=list)
    commits: int = 0
    is_rolled_back: bool = False


class Broker:
    """Writes what a broker stores of the transactions of some messages."""

    def __init__(self, writer: StoreWriter) -> None:
        self.writer = writer
        self.halves: dict[str, list[Half]] = {}

    def _append(self, topic: str, key: str, checks: int, **more: int) -> tuple[int, int]:
        properties = {"TRANSACTION_CHECK_TIMES": str(checks)} if checks else {}
        if topic != "T":
            properties["REAL_TOPIC"] = "T"
        born = BORN + sum(map(ord, key))
        written = self.writer.append(
            topic, key.encode(), unique_key=key, properties=properties, born_timestamp=born, **more
        )
        return written.physical_offset, written.queue_offset

    def prepare(self, key: str, checks: int = 0) -> None:
        half = Half(*self._append(HALF, key, checks), checks)
        self.halves.setdefault(key, []).append(half)

    def put_back(self, key: str) -> None:
        last = self.halves[key][-1]
        self.prepare(key, last.checks + 1)
        last.done.append(f"put back for check {last.checks + 1} ({self.halves[key][-1].physical_offset})")

    def commit(self, key: str, half: Half) -> None:
        self._append("T", key, half.checks, sys_flag=8, prepared_transaction_offset=half.physical_offset)
        self._operate(half)
        half.commits += 1

    def roll_back(self, half: Half) -> None:
        self._operate(half)
        half.is_rolled_back = True

    def _operate(self, half: Half) -> None:
        self.writer.append(OPERATIONS, f"{half.queue_offset},".encode(), tags="d")

    def discard(self, key: str) -> None:
        last = self.halves[key][-1]
        place, _ = self._append(DISCARDED, key, last.checks)
        times = f"checked {last.checks} time{'s' * (last.checks != 1)}, " if last.checks else ""
        last.done.append(f"{times}given up ({place})")


STEPS = st.lists(
    st.tuples(
        st.sampled_from("AB"), st.sampled_from(["put back", "commit", "roll back", "discard"]), st.integers(0, 9)
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=examples(20))
@given(STEPS)
def test_a_half_message_says_all_that_became_of_it(steps: list[tuple[str, str, int]]) -> None:
    """The producer may answer for a half that was put back since, commit twice, or come when it was given up."""
    with tempfile.TemporaryDirectory() as directory:
        writer = StoreWriter(Path(directory) / "store")
        broker = Broker(writer)
        for key in "AB":
            broker.prepare(key)
        given_up = set()
        for key, step, number in steps:
            half = broker.halves[key][number % len(broker.halves[key])]
            if step == "commit":
                broker.commit(key, half)
            elif step == "roll back" and not half.commits:
                broker.roll_back(half)
            elif step == "put back" and key not in given_up:
                broker.put_back(key)
            elif step == "discard" and key not in given_up:
                broker.discard(key)
                given_up.add(key)
        writer.close()
        store = MessageStore.open(Path(directory) / "store")
        for key in "AB":
            life = find_life(store, key)
            notes = {event.message.physical_offset: event.note for event in life.events if event.message}
            for half in broker.halves[key]:
                assert sorted(notes[half.physical_offset].split(", ")) == sorted(expected(half).split(", "))
            said = life.stories[0].transaction or ""
            commits = sum(half.commits for half in broker.halves[key])
            words = {0: "", 1: "committed", **{count: f"committed {count} times" for count in range(2, 20)}}[commits]
            assert said.split(", ")[0] == words or not commits
            assert ("discarded" in said) == (key in given_up)
            assert ("rolled back" in said) == any(
                each.is_rolled_back and not each.commits for each in broker.halves[key]
            )


def expected(half: Half) -> str:
    said = list(half.done)
    if half.commits:
        said.append("committed" if half.commits == 1 else f"committed {half.commits} times")
    elif half.is_rolled_back:
        said.append("rolled back")
    return ", ".join(said) or "not ended"


def test_what_only_operations_tell_is_left_out_without_them(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    broker = Broker(writer)
    for key in "ABC":
        broker.prepare(key)
    broker.roll_back(broker.halves["A"][0])
    broker.commit("B", broker.halves["B"][0])
    writer.close()
    store = MessageStore.open(tmp_path / "store")
    for key, alone, whole in (("A", None, "rolled back"), ("B", "committed", "committed"), ("C", None, "not ended")):
        records = [event.message for event in find_life(store, key).events if event.message]
        place = broker.halves[key][0].physical_offset
        found = endings(None, records)
        assert (found[place].text if place in found else None) == alone
        assert endings(store, records)[place].text == whole


def test_it_is_said_where_not_all_operations_were_searched(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    broker = Broker(writer)
    broker.prepare("A")
    for number in range(1, 5):
        writer.append(OPERATIONS, f"{number},".encode(), tags="d")
    broker.roll_back(broker.halves["A"][0])
    writer.close()
    store = MessageStore.open(tmp_path / "store")
    records = [event.message for event in find_life(store, "A").events if event.message]
    assert [each.text for each in endings(store, records, 4).values()] == [
        "how it ended is not known: 4 operations were searched"
    ]
    assert [each.text for each in endings(store, records, 5).values()] == ["rolled back"]


def test_a_half_that_its_producer_wants_left_alone_is_put_back_unchecked(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    immune = {"REAL_TOPIC": "T", "CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}
    more = {"TRANSACTION_CHECK_TIMES": "1", "TRAN_PREPARED_QUEUE_OFFSET": "0"}
    for properties in (immune, immune | more):
        writer.append(HALF, b"A", unique_key="A", properties=properties, born_timestamp=BORN)
    writer.close()
    notes = [event.note for event in find_life(MessageStore.open(tmp_path / "store"), "A").events]
    assert notes == [f"put back unchecked ({writer.written[1].physical_offset})", "not ended"]
