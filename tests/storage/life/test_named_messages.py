"""Which message a record is of: drawn messages that share a unique key, their resends and copies."""

import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from protocol.message import Message, decode_message
from protocol.system_topics import origin_of
from storage.life.message_life import find_life
from storage.life.named_messages import SENT_AGAIN_MILLISECONDS, messages_of_one_name, told_apart
from storage.store.message_store import MessageStore
from store_writer import START_TIMESTAMP, StoreWriter


@dataclass(frozen=True)
class Sent:
    """A message as an application sent it, in seconds since the first."""

    topic: str
    body: bytes
    born_seconds: int


TOPICS, BODIES = st.sampled_from(["T", "U"]), st.sampled_from([b"a", b"b"])
SENT = st.lists(
    st.builds(Sent, TOPICS, BODIES, st.integers(0, 12).map(lambda number: number * 25)), min_size=1, max_size=5
)
COPIES = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["schedule", "retry", "pop", "dead letter", "half", "timer"])),
    max_size=8,
)


def copy_of(writer: StoreWriter, sent: Sent, kind: str) -> None:
    """Store a copy as a broker does: with the born time and the body of the message."""
    topics = {"schedule": "SCHEDULE_TOPIC_XXXX", "half": "RMQ_SYS_TRANS_HALF_TOPIC", "timer": "rmq_sys_wheel_timer"}
    topic = topics.get(kind, {"retry": "%RETRY%g", "pop": f"%RETRY%g_{sent.topic}"}.get(kind, "%DLQ%g"))
    properties = {
        "retry": {"RETRY_TOPIC": sent.topic},
        "dead letter": {"RETRY_TOPIC": sent.topic},
        "pop": {"ORIGIN_GROUP": "g"},
    }.get(kind, {"REAL_TOPIC": sent.topic})
    times = int(kind in ("retry", "pop", "dead letter"))
    stored(writer, topic, sent, properties=properties, reconsume_times=times)


def stored(writer: StoreWriter, topic: str, sent: Sent, **more: object) -> None:
    born = START_TIMESTAMP + 1000 * sent.born_seconds
    writer.append(topic, sent.body, unique_key="K", born_timestamp=born, **more)  # type: ignore[arg-type]


def expected(sent: list[Sent]) -> set[frozenset[Sent]]:
    """The messages: those of one topic and body whose births follow each other within a minute."""
    found = set()
    for topic in "TU":
        for body in (b"a", b"b"):
            own = sorted({each for each in sent if (each.topic, each.body) == (topic, body)}, key=_born)
            gaps = [
                number
                for number, (before, after) in enumerate(pairwise(own), 1)
                if (after.born_seconds - before.born_seconds) * 1000 > SENT_AGAIN_MILLISECONDS
            ]
            cuts = [0, *gaps, len(own)]
            found |= {frozenset(own[first:end]) for first, end in pairwise(cuts)} - {frozenset()}
    return found


def _born(sent: Sent) -> int:
    return sent.born_seconds


def messages_of(writer: StoreWriter) -> list[Message]:
    return [decode_message(each.record) for each in writer.written]


def sent_of(message: Message) -> Sent:
    topic = origin_of(message).topic
    assert topic is not None
    return Sent(topic, bytes(message.stored_body), (message.born_timestamp - START_TIMESTAMP) // 1000)


@settings(deadline=None, max_examples=examples(25))
@given(SENT, COPIES)
def test_every_record_is_of_the_message_that_it_was_made_of(sent: list[Sent], copies: list[tuple[int, str]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        writer = StoreWriter(Path(directory) / "store")
        for each in sent:
            stored(writer, each.topic, each)
        for number, kind in copies:
            copy_of(writer, sent[number % len(sent)], kind)
        writer.close()
        messages = messages_of(writer)
        found = told_apart((message, origin_of(message)) for message in messages)
        assert {frozenset(sent_of(message) for message, _ in records) for records in found} == expected(sent)
        assert sum(map(len, found)) == len(messages)
        clause = messages_of_one_name(messages, "K")
        assert clause is None if len(found) == 1 else clause is not None and clause.startswith(f"{len(found)} messages")
        life = find_life(MessageStore.open(Path(directory) / "store"), "K")
        numbers = {event.message.physical_offset: event.number for event in life.events if event.message}
        for number, records in enumerate(found, 1):
            assert {numbers[message.physical_offset] for message, _ in records} == {number}
        assert len(life.stories) == len(found)


def test_a_copy_that_a_client_sent_back_as_a_new_message_is_of_the_message_it_copies(tmp_path: Path) -> None:
    """Where the broker refuses a message that is sent back, the client sends it itself: born later."""
    writer = StoreWriter(tmp_path / "store")
    stored(writer, "T", Sent("T", b"a", 0))
    stored(writer, "U", Sent("U", b"a", 10))
    back = {"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "K"}
    stored(writer, "%RETRY%g", Sent("T", b"a", 500), properties=back, reconsume_times=1)
    writer.close()
    found = told_apart((message, origin_of(message)) for message in messages_of(writer))
    assert [[message.topic for message, _ in records] for records in found] == [["T", "%RETRY%g"], ["U"]]


def test_a_copy_whose_message_is_gone_is_no_copy_of_another(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    stored(writer, "%RETRY%g", Sent("T", b"a", 0), properties={"RETRY_TOPIC": "T"}, reconsume_times=1)
    stored(writer, "T", Sent("T", b"b", 500))
    stored(writer, "%DLQ%g", Sent("T", b"a", 0), properties={"RETRY_TOPIC": "T"}, reconsume_times=2)
    writer.close()
    found = told_apart((message, origin_of(message)) for message in messages_of(writer))
    assert [[message.topic for message, _ in records] for records in found] == [["%RETRY%g", "%DLQ%g"], ["T"]]
