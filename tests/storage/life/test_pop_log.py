"""Popped messages: drawn pops, whose ends a plain model of the broker tells."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from popping import PoppingBroker
from storage.life import pop_log
from storage.life.message_life import find_life
from storage.life.pending import Pending, PendingState
from storage.life.pop_log import PopLog
from storage.life.verdicts import Ending, Passage
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

KEYS = "ABC"
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["pop", "pop retry", "acknowledge", "acknowledge all", "extend", "wait", "revive"]),
        st.integers(0, 7),
        st.sampled_from([0, 900, 2_500, 60_000]),
    ),
    max_size=16,
)


def played(directory: Path, steps: list[tuple[str, int, int]], *, has_origin: bool) -> PoppingBroker:
    broker = PoppingBroker(StoreWriter(directory / "store"), has_origin=has_origin)
    for key in KEYS:
        broker.send(key)
    for step, number, milliseconds in steps:
        records = broker.records()
        record = records[number % len(records)]
        if step == "pop":
            broker.pop(broker.topic, number % 3 + 1, milliseconds)
        elif step == "pop retry":
            broker.pop(broker.retry_topic, number % 3 + 1, milliseconds)
        elif step == "acknowledge":
            broker.acknowledge([record])
        elif step == "acknowledge all":
            broker.acknowledge(records)
        elif step == "extend":
            broker.extend(record, milliseconds)
        elif step == "wait":
            broker.pass_time(milliseconds)
        else:
            broker.revive()
    broker.close()
    return broker


@settings(deadline=None, max_examples=examples(10))
@given(STEPS, st.booleans())
def test_what_a_group_has_is_what_a_plain_model_of_the_broker_says(steps, has_origin) -> None:
    with tempfile.TemporaryDirectory() as directory:
        broker = played(Path(directory), steps, has_origin=has_origin)
        store = MessageStore.open(Path(directory) / "store")
        out = {(each.topic, each.queue_offset, each.revive_timestamp, each.group) for each in PopLog(store).all_out()}
        assert out == {
            (each.topic, each.queue_offset, each.until, "g") for each in broker.records() if each.state == "out"
        }
        with Pending(store) as pending:
            assert pending.incomplete is None
            waiting = list(pending.messages())
            assert sum(topic.popped for topic in pending.topics()) == len(out)
        assert {each.state for each in waiting} <= {PendingState.POPPED}
        assert {each.topic for each in waiting} <= {"T"}
        assert out == {
            (each.message.topic, each.message.queue_offset, each.due_timestamp, each.group or "") for each in waiting
        }
        for key in KEYS:
            life = find_life(store, key)
            assert life.incomplete is None
            assert len(life.stories) == 1
            record = broker.last(key)
            states = {
                "unread": (Ending.RETRYING if record.retries else Ending.NOT_YET, None),
                "out": (Ending.POPPED, Passage.POPPED),
                "acknowledged": (Ending.PASSED, Passage.ACKNOWLEDGED),
            }
            if not broker.next and not broker.queues[broker.retry_topic]:
                assert life.verdicts == ()
                continue
            (verdict,) = life.verdicts
            ending, passage = states[record.state]
            assert (verdict.group, verdict.ending, verdict.retries) == ("g", ending, record.retries)
            assert passage is None or verdict.passage is passage
            assert verdict.until_timestamp == record.until


def test_where_not_all_notes_are_read_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played(tmp_path, [("pop", 0, 60_000), ("pop", 0, 60_000), ("pop", 0, 60_000)], has_origin=True)
    store = MessageStore.open(tmp_path / "store")
    monkeypatch.setattr(pop_log, "MOST_NOTES", 2)
    assert [each.queue_offset for each in PopLog(store).all_out()] == [1, 2]  # the newest
    assert "there are more" in (find_life(store, "A").incomplete or "")
    monkeypatch.setattr(pop_log, "MOST_NOTES", 3)
    assert PopLog(store).note is None


def written(directory: Path, offsets: dict[str, dict[str, int]]) -> MessageStore:
    writer = StoreWriter(directory / "store")
    writer.append("T", b"A", unique_key="A")
    writer.close()
    config = writer.root / "config"
    config.mkdir(exist_ok=True)
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return MessageStore.open(writer.root)


@pytest.mark.parametrize("separator", "_+")
def test_of_a_group_that_popped_and_left_no_note_it_is_not_known(tmp_path: Path, separator: str) -> None:
    store = written(tmp_path, {"T@g": {"0": 1}, f"%RETRY%g{separator}T@g": {"0": 0}})
    (verdict,) = find_life(store, "A").verdicts
    assert (verdict.ending, verdict.text) == (Ending.UNKNOWN, "POP: read; whether it was acknowledged is not known")
    ((progress,),) = (event.groups for event in find_life(store, "A").events)
    assert not progress.has_passed


def test_where_notes_are_in_a_database_it_is_not_known_of_groups_that_may_pop(tmp_path: Path) -> None:
    store = written(tmp_path, {"T@pops": {"0": 1}, "T@pulls": {"0": 1}, "%RETRY%pulls@pulls": {"0": 0}})
    assert {each.group: each.ending for each in find_life(store, "A").verdicts} == {
        "pops": Ending.PASSED,
        "pulls": Ending.PASSED,
    }
    (tmp_path / "store" / "kvStore").mkdir()
    (tmp_path / "store" / "kvStore" / "CURRENT").write_text("MANIFEST-000004\n")
    assert {each.group: each.ending for each in find_life(store, "A").verdicts} == {
        "pops": Ending.UNKNOWN,
        "pulls": Ending.PASSED,
    }
