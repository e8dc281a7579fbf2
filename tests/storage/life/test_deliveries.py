"""Messages that waited: drawn deliveries, and numbers of the broker that are right, behind or ahead."""

import struct
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from storage.life.message_life import find_life
from storage.store.message_store import MessageStore
from store_writer import START_TIMESTAMP, StoreWriter

SCHEDULE, TIMER = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
COUNT = 4
DUE = START_TIMESTAMP + 5_000


def life_notes(store: MessageStore) -> list[str]:
    """The note of the first record of each message."""
    return [find_life(store, f"K{number}").events[0].note for number in range(COUNT)]


@settings(deadline=None, max_examples=examples(12))
@given(delivered=st.sets(st.integers(0, COUNT - 1)), next_offset=st.none() | st.integers(0, 2 * COUNT))
def test_a_delayed_message_is_delivered_where_its_delivery_is_stored(
    delivered: set[int], next_offset: int | None
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        writer = StoreWriter(Path(directory) / "store")
        for number in range(COUNT):
            writer.append(SCHEDULE, unique_key=f"K{number}", properties={"REAL_TOPIC": "T"}, queue_id=2)
        for number in sorted(delivered):
            writer.append("T", unique_key=f"K{number}", born_timestamp=START_TIMESTAMP + number)
        writer.close()
        if next_offset is not None:
            writer.write_config("delayOffset.json", {"offsetTable": {3: next_offset}})
        for number, note in enumerate(life_notes(MessageStore.open(writer.root))):
            assert ("level 3, delivered" in note) == (number in delivered)
            if number in delivered:
                continue
            if next_offset is None:
                assert note == "delay level 3"
            elif next_offset > COUNT:
                assert f"delayOffset.json is ahead of the level's queue ({next_offset} > {COUNT})" in note
            elif next_offset > number:
                assert note.endswith("counted as delivered, but no record of its delivery is there")
            else:
                assert note == "delay level 3, not delivered yet"


@settings(deadline=None, max_examples=examples(12))
@given(
    delivered=st.sets(st.integers(0, COUNT - 1)),
    check=st.none() | st.tuples(st.sampled_from([DUE - 1000, DUE + 1000]), st.integers(0, 2 * COUNT)),
)
def test_a_timer_message_is_delivered_where_its_delivery_is_stored(
    delivered: set[int], check: tuple[int, int] | None
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        writer = StoreWriter(Path(directory) / "store")
        for number in range(COUNT):
            writer.append(TIMER, unique_key=f"K{number}", properties={"REAL_TOPIC": "T", "TIMER_OUT_MS": str(DUE)})
        for number in sorted(delivered):
            writer.append("T", unique_key=f"K{number}", born_timestamp=START_TIMESTAMP + number)
        writer.close()
        if check is not None:
            config = writer.root / "config"
            config.mkdir(exist_ok=True)
            (config / "timercheck").write_bytes(struct.pack(">qqqqqqq", check[0], 0, check[1], 0, 0, 0, 0).ljust(4096))
        for number, note in enumerate(life_notes(MessageStore.open(writer.root))):
            assert (note == "delivered") == (number in delivered)
            if number in delivered:
                continue
            if check is None:
                assert note == ""
            elif check[1] > COUNT:
                assert f"timercheck is ahead of the timer's queue ({check[1]} > {COUNT})" in note
            elif check[0] > DUE and check[1] > number:
                assert note == "cancelled, or counted as delivered: no record of its delivery is there"
            else:
                assert note == "not delivered yet"


def test_a_timer_message_whose_time_is_far_is_stored_again(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    far = {"REAL_TOPIC": "T", "TIMER_OUT_MS": str(DUE)}
    for more in ({}, {"TIMER_ROLL_TIMES": "1"}, {"TIMER_ROLL_TIMES": "2"}):
        writer.append(TIMER, unique_key="K0", properties={**far, **more}, born_timestamp=START_TIMESTAMP)
    writer.append("T", unique_key="K0", born_timestamp=START_TIMESTAMP)
    writer.close()
    again = "stored again, for its time is far"
    notes = [event.note for event in find_life(MessageStore.open(writer.root), "K0").events]
    assert notes == [again, again, "delivered", ""]
