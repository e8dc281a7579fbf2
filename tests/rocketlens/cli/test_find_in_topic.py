"""`rocketlens find --topic --as`: by key, unique key and tag, from a store, a broker or a name server."""

from pathlib import Path

import pytest

from broker.endpoint import Endpoint
from broker.service.dispatcher import handles
from broker_harness import FakeStore, service_of, serving_in_a_thread
from command_line import Outcome, rocketlens
from message_encoding import encode_message
from name_server import NamedBrokers
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response
from protocol.headers import QueryMessageRequestHeader
from storage.store.message_store import MessageStore


def query(where: tuple[object, ...], kind: str, text: object, *arguments: object, form: str = "json") -> Outcome:
    return rocketlens("find", *where, text, "--as", kind, "--topic", "TopicTest", *arguments, "--format", form)


def offsets(outcome: Outcome) -> list[int]:
    """The places of what is listed, which comes newest first, in the order of the log."""
    return [message["physicalOffset"] for message in reversed(outcome.messages)]


def test_the_newest_come_first_to_the_cap_and_a_cursor_goes_on(where: tuple[object, ...]) -> None:
    everything = offsets(query(where, "key", "hotkey"))
    pages: list[int] = []
    cursor: list[object] = []
    while True:
        outcome = query(where, "key", "hotkey", "--limit", "15", *cursor)
        pages = offsets(outcome) + pages
        if not outcome.errors:
            break
        assert outcome.errors == f"rocketlens: there are older matches: continue with --cursor {pages[0]}\n"
        cursor = ["--cursor", pages[0]]
    assert pages == everything


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["a", "--as", "key", "--since", "soon"], "neither milliseconds nor a time"),
        (["a", "--as", "key", "--cursor", "5"], "--cursor needs one TEXT, --topic, and --as"),
        (["a", "--topic", "T", "--cursor", "5"], "--cursor needs one TEXT, --topic, and --as"),
        (["a", "b", "--as", "key", "--topic", "T", "--cursor", "5"], "--cursor needs one TEXT"),
        (["a", "--topic", "T", "--as", "offset-id", "--cursor", "5"], "--cursor needs one TEXT"),
    ],
)
def test_wrong_usage_is_code_2(g1_store: Path, arguments: list[str], says: str) -> None:
    outcome = rocketlens("find", g1_store, *arguments)
    assert (outcome.code, outcome.output) == (2, b"")
    assert says in outcome.errors


# ---------------------------------------------------------------------- brokers that are not ours


def record(number: int, timestamp: int, key: str = "k", topic: str = "T", tag: str = "G") -> bytes:
    properties = {"UNIQ_KEY": f"U{number}", "KEYS": key, "TAGS": tag}
    return encode_message(topic=topic, physical_offset=number, store_timestamp=timestamp, properties=properties)


class JavaBroker:
    """Answers every query with the same records, like a broker that compares hashes alone and knows no cursor."""

    def __init__(self, *records: bytes) -> None:
        self.body = b"".join(records)
        self.asked = 0

    @handles(RequestCode.QUERY_MESSAGE, QueryMessageRequestHeader)
    def query(self, header: QueryMessageRequestHeader) -> Response:
        self.asked += 1
        if not self.body:
            return Response(ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct")
        return Response(body=self.body)


def ask(endpoint: Endpoint, kind: str, text: str, *arguments: object) -> Outcome:
    return rocketlens("find", endpoint, text, "--as", kind, "--topic", "T", *arguments, "--json")


def test_a_broker_is_asked_directly_and_its_hash_collisions_are_left_out() -> None:
    broker = JavaBroker(record(1, 1), record(2, 2, key="other"), record(3, 3, topic="Other"), record(4, 4, tag="H"))
    with serving_in_a_thread(service_of(FakeStore()), [broker]) as endpoint:
        assert offsets(ask(endpoint, "key", "k", "--limit", "100")) == [1, 4]
        assert offsets(ask(endpoint, "tag", "G")) == [1, 2]
        assert offsets(ask(endpoint, "unique-key", "U4")) == [4]
        assert broker.asked == 3
        assert ask(endpoint, "key", "none").code == 1


def test_all_brokers_of_a_route_are_asked_and_merged_by_time() -> None:
    first, second = JavaBroker(record(10, 1), record(20, 4)), JavaBroker(record(5, 2), record(6, 3))
    with (
        serving_in_a_thread(service_of(FakeStore()), [first]) as a,
        serving_in_a_thread(service_of(FakeStore()), [second]) as b,
        serving_in_a_thread(service_of(FakeStore()), [NamedBrokers(["T"], a=a, b=b)]) as names,
    ):
        assert offsets(ask(names, "key", "k")) == [10, 5, 6, 20]
        assert offsets(ask(names, "key", "k", "--limit", "2")) == [6, 20]
        outcome = ask(names, "key", "k", "--cursor", "5")
        assert outcome.code == 2
        assert "a cursor belongs to one broker" in outcome.errors
        second.body = b""
        assert offsets(ask(names, "key", "k")) == [10, 20]
        first.body = b""
        outcome = ask(names, "key", "k", "-v")
        assert outcome.code == 1
        assert outcome.errors.startswith("rocketlens: no message of topic T has the key k\n")
        assert f"{a} answered: can not find message" in outcome.errors
        assert f"{b} answered: can not find message" in outcome.errors


def test_several_brokers_with_older_matches_each_say_where_to_go_on(g1_store: Path) -> None:
    with (
        serving_in_a_thread(service_of(MessageStore.open(g1_store))) as a,
        serving_in_a_thread(service_of(FakeStore()), [JavaBroker()]) as b,
        serving_in_a_thread(service_of(FakeStore()), [NamedBrokers(a=a, b=b)]) as names,
    ):
        outcome = query((names,), "key", "hotkey", "--limit", "3")
    assert outcome.code == 0
    oldest = offsets(outcome)[0]
    assert outcome.errors == f"rocketlens: a ({a}) has older matches: ask it alone, with --cursor {oldest}\n"


def test_bytes_that_are_no_messages_are_code_3() -> None:
    with serving_in_a_thread(service_of(FakeStore()), [JavaBroker(b"garbage")]) as endpoint:
        outcome = ask(endpoint, "key", "k")
    assert outcome.code == 3
    assert "answered bytes that are not messages" in outcome.errors
