"""`rocketlens find --topic --as`: by key, unique key and tag, from a store, a broker or a name server."""

import time
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

UNIQUE_KEY = "FD000000000000000000000000000002708C30946E09687211CE0017"
HOT = 40
"""Messages of g1's TopicTest with the key `hotkey` and the tag `TagD` (produced.tsv)."""


@pytest.fixture(scope="module", params=["store", "server"])
def where(request: pytest.FixtureRequest, g1_store: Path, server: Endpoint) -> tuple[object, ...]:
    """The arguments that name the same messages in two ways."""
    return (g1_store,) if request.param == "store" else (server,)


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


def test_more_than_one_page_is_collected(where: tuple[object, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    everything = offsets(query(where, "key", "hotkey"))
    for module in ("store", "remote"):
        monkeypatch.setattr(f"rocketlens.{module}.PAGE", 7)
    assert offsets(query(where, "key", "hotkey", "--limit", "1000")) == everything
    outcome = query(where, "key", "hotkey", "--limit", "20")
    assert offsets(outcome) == everything[-20:]
    assert f"--cursor {everything[-20]}\n" in outcome.errors


def test_times_are_milliseconds_or_iso_8601(where: tuple[object, ...]) -> None:
    times = [message["storeTimestamp"] for message in reversed(query(where, "key", "hotkey").messages)]
    begin, end = times[5], times[9]
    iso = [time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at // 1000)) + f".{at % 1000:03}Z" for at in (begin, end)]
    for first, last in ((begin, end), iso):
        found = query(where, "key", "hotkey", "--since", first, "--until", last)
        assert [message["storeTimestamp"] for message in reversed(found.messages)] == [
            at for at in times if begin <= at <= end
        ]


def test_a_time_without_an_offset_is_local(g1_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        # g1 was recorded from 06:45:05 to 06:45:46 UTC.
        between = ("--since", "2026-11-21T14:45:00", "--until", "2026-11-21T14:46:00")
        assert len(query((g1_store,), "key", "hotkey", *between).messages) == HOT
        assert query((g1_store,), "key", "hotkey", "--until", "2026-11-21T14:45:00").code == 1
    finally:
        monkeypatch.undo()
        time.tzset()


def test_times_are_read_and_shown_in_the_zone_that_is_asked_for(where: tuple[object, ...]) -> None:
    # g1 was recorded from 06:45:05 to 06:45:46 UTC.
    zone = ("--timezone", "Asia/Shanghai")
    between = ("--since", "2026-11-21 14:45", "--until", "2026-11-21 14:46")
    assert len(query(where, "key", "hotkey", *between, *zone).messages) == HOT
    assert query(where, "key", "hotkey", *between, "--timezone", "America/New_York").code == 1
    heading, first, *_ = query(where, "key", "hotkey", *between, *zone, form="table").text.splitlines()
    assert "  STORED (Asia/Shanghai)  " in heading
    assert "  2026-11-21 14:45:" in first
    assert "+08:00  " in first
    for name in ("+08:00", "+0800"):
        assert "  STORED (UTC+08:00)  " in query(where, "key", "hotkey", "--timezone", name, form="table").text


def test_the_zone_may_stand_in_the_environment(g1_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETLENS_TIMEZONE", "Asia/Shanghai")
    found = query((g1_store,), "key", "hotkey", "--since", "2026-11-21 14:45", "--until", "2026-11-21 14:46")
    assert len(found.messages) == HOT
    monkeypatch.setenv("ROCKETLENS_TIMEZONE", "Mars/Olympus")
    outcome = query((g1_store,), "key", "hotkey")
    assert outcome.code == 2
    assert "'Mars/Olympus' is neither a time zone like Asia/Shanghai nor an offset like +08:00" in outcome.errors


def test_times_from_now_and_days_are_taken(g1_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = query((g1_store,), "key", "hotkey").messages[-6]["storeTimestamp"]
    monkeypatch.setattr("storage.times.time.time_ns", lambda: (stored + 3_600_000) * 1_000_000)
    for begin in ("-1h", "now-60m"):
        assert query((g1_store,), "key", "hotkey", "--since", begin).messages[-1]["storeTimestamp"] == stored
    for begin in ("today 14:45", "14:45", "yesterday 22:00 UTC"):
        found = query((g1_store,), "key", "hotkey", "--since", begin, "--timezone", "Asia/Shanghai")
        assert len(found.messages) == HOT
    assert query((g1_store,), "key", "hotkey", "--until", "yesterday 14:00").code == 1
    outcome = query((g1_store,), "key", "hotkey", "--since", "-1y")
    assert outcome.code == 2
    assert "neither milliseconds nor a time like 2024-05-31T08:30:00, -1h or yesterday 14:00" in outcome.errors


def test_an_empty_answer_explains_itself(where: tuple[object, ...]) -> None:
    short = query(where, "key", "nosuchkey")
    assert (short.code, short.output) == (1, b"")
    assert short.errors == "rocketlens: no message of topic TopicTest has the key nosuchkey\n"
    outcome = query(where, "key", "nosuchkey", "-v")
    assert (outcome.code, outcome.output) == (1, b"")
    for word in ("searched 10 index files", "walked", "refused", "index covers", "the log holds"):
        assert word in outcome.errors
    assert len(outcome.errors.splitlines()) == 2
    assert outcome.errors.startswith(short.errors)


def test_an_unknown_topic_is_not_found(where: tuple[object, ...]) -> None:
    outcome = rocketlens("find", *where, "a", "--topic", "`maximum`", "--as", "key")
    assert (outcome.code, outcome.errors) == (1, "rocketlens: there is no topic `maximum`\n")


def test_the_table_has_a_line_a_message(g1_store: Path) -> None:
    outcome = query((g1_store,), "key", "hotkey", "--limit", "3", form="table")
    assert outcome.code == 0
    assert [line.split()[-1] for line in outcome.text.splitlines()] == ["BODY", "39", "38", "37"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["a", "--as", "keys"], "'keys' is not one of"),
        (["a", "--as", "key", "--index-slots", "x"], "'x' is not a valid integer"),
        (["a", "--as", "key", "--since", "5", "--until", "1"], "--since 5 is after --until 1"),
        (["a", "--as", "key", "--since", "soon"], "neither milliseconds nor a time"),
        (["a", "--as", "key", "--until", "9999999-01-01"], "neither milliseconds nor a time"),
        (["a", "--as", "key", "--limit", "0"], "0 is not in the range"),
        (["a", "--as", "key", "--cursor", "x"], "'x' is not a valid integer"),
        (["a", "--as", "key", "--cursor", "5"], "--cursor needs one TEXT, --topic, and --as"),
        (["a", "--topic", "T", "--cursor", "5"], "--cursor needs one TEXT, --topic, and --as"),
        (["a", "b", "--as", "key", "--topic", "T", "--cursor", "5"], "--cursor needs one TEXT"),
        (["a", "--topic", "T", "--as", "offset-id", "--cursor", "5"], "--cursor needs one TEXT"),
        (["a", "--json", "--format", "msgpack"], "exclude each other"),
    ],
)
def test_wrong_usage_is_code_2(g1_store: Path, arguments: list[str], says: str) -> None:
    outcome = rocketlens("find", g1_store, *arguments)
    assert (outcome.code, outcome.output) == (2, b"")
    assert says in outcome.errors


def test_what_is_no_store_is_code_3(tmp_path: Path) -> None:
    outcome = rocketlens("find", tmp_path, "a", "--topic", "T", "--as", "key")
    assert (outcome.code, outcome.output) == (3, b"")
    assert "is no store that can be served" in outcome.errors


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


def test_a_broker_that_cannot_be_reached_is_code_3() -> None:
    with serving_in_a_thread(service_of(FakeStore()), [NamedBrokers(a=Endpoint("127.0.0.1", 1))]) as names:
        outcome = ask(names, "key", "k")
    assert (outcome.code, outcome.errors) == (3, "rocketlens: cannot connect to 127.0.0.1:1: Connection refused\n")


def test_bytes_that_are_no_messages_are_code_3() -> None:
    with serving_in_a_thread(service_of(FakeStore()), [JavaBroker(b"garbage")]) as endpoint:
        outcome = ask(endpoint, "key", "k")
    assert outcome.code == 3
    assert "answered bytes that are not messages" in outcome.errors
