"""The lives of messages in stores that a broker 5.5.0 wrote, and in some that were damaged: what is true of each."""

import json

import pytest

from golden_store import CASES, unpack
from protocol.system_topics import Stage
from protocol.trace import TraceKind
from storage.life.message_life import find_life
from storage.life.pending import Pending, PendingState
from storage.life.verdicts import Ending, Passage
from storage.store.message_store import MessageStore

POP, TRANSACTIONS = "A1-A2-B1-pop", "A3-A4-transactions"


def opened(name, directory):
    return MessageStore.open(unpack("store", directory, archives=CASES / name))


def truth_of(name):
    lines = (CASES / name / "truth.jsonl").read_text("utf-8").splitlines()
    return {row["key"]: row for row in map(json.loads, lines)}


@pytest.fixture(scope="module")
def popped(tmp_path_factory: pytest.TempPathFactory) -> MessageStore:
    return opened(POP, tmp_path_factory.mktemp("pop"))


@pytest.fixture(scope="module")
def transactions(tmp_path_factory: pytest.TempPathFactory) -> MessageStore:
    return opened(TRANSACTIONS, tmp_path_factory.mktemp("transactions"))


def life_of(store, row):
    life = find_life(store, row["uniqueKey"])
    assert life.incomplete is None
    stored = [(event.message, event.stage, event.origin) for event in life.events]
    assert [
        {
            "topic": message.topic,
            "physicalOffset": message.physical_offset,
            "stage": stage.value,
            "origin": origin.topic,
        }
        for message, stage, origin in stored
        if message and stage and origin
    ] == [{name: record[name] for name in ("topic", "physicalOffset", "stage", "origin")} for record in row["records"]]
    return life


@pytest.mark.parametrize("key", truth_of(POP))
def test_the_verdict_of_a_popped_message_is_what_its_client_saw(popped: MessageStore, key: str) -> None:
    row = truth_of(POP)[key]
    life = life_of(popped, row)
    (verdict,) = life.verdicts  # none of g1_orders, which is no group
    expected: dict[str, tuple[Ending, int, Passage | None, int | None]] = {
        "acknowledged": (Ending.PASSED, 0, Passage.ACKNOWLEDGED, None),
        "passed at retry 1": (Ending.PASSED, 1, Passage.ACKNOWLEDGED, None),
        # The client got two attempts, so one retry.
        "gave up": (Ending.GAVE_UP, 1, None, None),
    }
    said = row["groups"]["g1"]
    popped_until = 1795696102653
    assert (str(popped_until) in said) == (key == "k-popped")
    ending = expected.get(said, (Ending.POPPED, 0, Passage.POPPED, popped_until))
    assert (verdict.group, verdict.ending, verdict.retries, verdict.passage, verdict.until_timestamp) == ("g1", *ending)
    assert verdict.is_certain


@pytest.mark.parametrize("key", truth_of(TRANSACTIONS))
def test_every_half_message_says_what_became_of_it(transactions: MessageStore, key: str) -> None:
    row = truth_of(TRANSACTIONS)[key]
    life = life_of(transactions, row)
    for event, record in zip(life.events, row["records"], strict=True):
        assert event.note.startswith(record["means"])
        assert "not ended" not in event.note
        if event.stage is Stage.HALF:
            assert event.until_timestamp is not None
    outcome = {"tx-never-ended": "discarded"}.get(key, "committed" if "commit" in key else "rolled back")
    assert [story.transaction for story in life.stories] == [outcome]
    assert life.verdicts == ()


def test_two_messages_of_one_id_have_a_story_each(tmp_path) -> None:
    life = find_life(opened("B6-two-messages-one-id", tmp_path), "7F000001000130946E09000000000001")
    first, second = life.stories
    assert [(story.topic, len(story.events)) for story in life.stories] == [("T", 1), ("T2", 3)]
    assert [(each.ending, each.number) for each in first.verdicts] == [(Ending.PASSED, 1)]
    assert [(each.text, each.number) for each in second.verdicts] == [("gave up after 1 retry → DLQ", 2)]
    assert life.verdicts == (*first.verdicts, *second.verdicts)
    assert first.born_timestamp + 899_000 == second.born_timestamp


def test_a_checkpoint_is_no_message_of_the_revive_topic_but_one_that_is_popped(popped: MessageStore) -> None:
    with Pending(popped) as pending:
        (topic,) = pending.topics()
        assert (topic.topic, topic.popped, topic.waiting, topic.overdue) == ("orders", 1, 0, 0)
        (waiting,) = pending.messages()
    place = waiting.message.topic, waiting.message.queue_id, waiting.message.queue_offset
    assert (waiting.state, waiting.group, waiting.due_timestamp) == (PendingState.POPPED, "g1", 1795696102653)
    assert place == ("orders", 0, 3)


@pytest.mark.parametrize(
    ("name", "overdue", "said"),
    [("B11-delay-offset-ahead", 5, ("ends at 5", "169171")), ("B17-timercheck-ahead", 60, ("ends at 60", "100"))],
)
def test_what_waits_behind_a_number_that_is_ahead_is_overdue(tmp_path, name, overdue, said) -> None:
    with Pending(opened(name, tmp_path)) as pending:
        assert sum(topic.overdue for topic in pending.topics()) == overdue  # the log has no record of a delivery
        assert all(each in (pending.incomplete or "") for each in said)


BATCHES = "B2-B3-batches"


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> MessageStore:
    return opened(BATCHES, tmp_path_factory.mktemp("batches"))


def ids_of_batches() -> dict[str, str]:
    """What the producer printed: the id of each message by its key, and those of the batches in one record."""
    lines = [line.split("\t") for line in (CASES / BATCHES / "ids.txt").read_text("utf-8").splitlines()]
    return {line[1]: line[2] for line in lines if line[0] in ("ID", "SENT")}


def test_the_trace_of_a_batch_is_found_by_each_of_its_messages(batches: MessageStore) -> None:
    """The producer has traced it once, by the three ids with commas between them."""
    life = find_life(batches, ids_of_batches()["batch-3"])
    sent = [event.trace for event in life.events if event.trace is not None and event.trace.kind is TraceKind.SENT]
    assert [(trace.success, trace.group, len(trace.message_id.split(","))) for trace in sent] == [(True, "PG_BATCH", 3)]


def test_a_message_of_a_batch_in_one_record_has_a_life_of_its_own(batches: MessageStore) -> None:
    number, key = 2, "inner-3"
    (event,) = find_life(batches, ids_of_batches()[key]).events
    assert event.message is not None
    assert (event.message.keys, event.message.queue_offset, event.stage) == ([key], number, Stage.DELIVERED)
    assert event.message.body == f"inner body {number + 1}".encode()
