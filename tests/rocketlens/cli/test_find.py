"""`rocketlens find`: what a recorded producer, consumer and mqadmin know of a message is enough to find it."""

import gzip
import json
import os
import shlex
import zlib

import pyarrow.parquet
import pytest

from base_directory import small_disk
from broker.service.dispatcher import handles
from broker_harness import FakeStore, service_of, serving_in_a_thread
from command_line import rocketlens
from golden_store import CASES, unpack
from message_encoding import encode_message
from name_server import NamedBrokers
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response
from protocol.headers import QueryMessageRequestHeader, ViewMessageRequestHeader
from protocol.message import HostAddress
from protocol.message_id import encode_message_id
from rocketlens.cli.opening import HINT
from storage.columns.names import JSON_NAMES
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

UNIQUE_KEY = "FD000000000000000000000000000002708C30946E09687211CE0017"


def find(where, text, *arguments):
    return rocketlens("find", *where, text, *arguments, "--json")


def test_each_reading_of_the_text_is_explained_and_what_is_nowhere_says_so_first(where) -> None:
    assert find(where, "0A00000100002A9F00000000000019B5").errors.splitlines() == [
        "rocketlens: as offset message id: 1 message (the id names 10.0.0.1:10911, the message there was stored by "
        "127.0.0.1:10911)",
        "rocketlens: as unique key or key: none",
        "rocketlens: as tag: none",
    ]
    told = find(where, "BB").errors.splitlines()
    assert told == ["rocketlens: as unique key or key: 1 message", "rocketlens: as tag: 1 message"]
    outcome = find(where, "nosuchkey")
    assert (outcome.code, outcome.output) == (1, b"")
    line, hint = outcome.errors.splitlines()
    assert line.startswith("rocketlens: nothing is named nosuchkey in ")
    assert hint == f"rocketlens: {HINT}"
    assert "index file" not in line
    first, details, _ = find(where, "nosuchkey", "-v").errors.splitlines()
    assert first == line
    assert "searched 10 index files" in details


@pytest.mark.parametrize("is_indexed", [True, False])
def test_what_may_have_been_lost_with_a_part_of_the_log_is_not_said_never_to_have_been(tmp_path, is_indexed) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=1024)
    more = {"tags": "paid", "index": is_indexed}
    written = [writer.append("orders", b"an order", keys=f"o-{number}", **more) for number in range(30)]
    assert len(writer.log.segments) > 2
    lost, after = written[4], written[5]
    writer.overwrite(lost.physical_offset, b"\xff" * lost.size)
    writer.close()
    at, following = lost.physical_offset, after.physical_offset
    place = f"at physical offset {at}" if is_indexed else f"between physical offsets {at} and {following}"
    says = f"; it may be lost, since the log is damaged: no intact record is {place}"
    found = find((tmp_path / "store",), "o-4")
    said = f"rocketlens: nothing is named o-4 in 3 topics{says}\nrocketlens: {HINT}\n"
    assert (found.code, found.errors) == (1, said)
    queried = rocketlens("find", tmp_path / "store", "o-4", "--topic", "orders", "--as", "key")
    assert (queried.code, queried.errors) == (1, f"rocketlens: no message of topic orders has the key o-4{says}\n")
    others = find((tmp_path / "store",), "o-5")
    assert (len(others.messages), "lost" in others.errors) == (1, False)
    with serving_in_a_thread(service_of(MessageStore.open(tmp_path / "store"))) as server:
        for options in ((), ("--topic", "orders", "--as", "key")):
            assert f"{says}\n" in rocketlens("find", server, "o-4", *options).errors


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "and behind it a TEXT"),
        (["STORE", "--server", "127.0.0.1:1", "--store", "STORE"], "expected one SOURCE"),
        (["STORE", "a", "--since", "5", "--until", "1"], "--since 5 is after --until 1"),
        (["0", "--from-id", "--index-slots", "5"], "cannot be used with a server"),
        (["STORE", "0", "--state-dir", "STORE"], "inside the store"),
        (["STORE", "0", "--state-dir", "/proc/none/state"], "--state-dir /proc/none/state: cannot be written to"),
        (["STORE", "a", "--as", "key", "--since", "soon"], "neither milliseconds nor a time"),
        (["STORE", "a", "--as", "key", "--cursor", "5"], "--cursor needs one TEXT, --topic, and --as"),
    ],
)
def test_wrong_usage_is_code_2(g1_store, arguments, says) -> None:
    outcome = rocketlens("find", *(argument.replace("STORE", str(g1_store)) for argument in arguments))
    assert (outcome.code, outcome.output) == (2, b"")
    assert says in outcome.errors


def test_a_message_is_shown_whole_if_asked(g1_store) -> None:
    shown = rocketlens("find", g1_store, UNIQUE_KEY, "--full")
    lines = {tuple(line.split()) for line in shown.text.splitlines()}
    assert {("topic", "TopicTest"), ("property", "TAGS", "TagD"), ("body", "hot", "0"), ("queueId", "2")} <= lines


def test_copies_of_a_message_share_a_row_until_they_are_asked_for(tmp_path) -> None:
    writer = StoreWriter(tmp_path / "store")
    born = {"unique_key": "u-1", "born_timestamp": 1_700_000_000_000, "keys": "o-1"}
    writer.append("orders", b"an order", **born)
    for number in range(3):
        writer.append("%RETRY%g", b"an order", reconsume_times=number + 1, **born)
    last = writer.append("%DLQ%g", b"an order", **born)
    writer.append("orders", b"sent again", unique_key="u-1", born_timestamp=1_700_000_000_500, keys="o-1")
    writer.close()
    found = rocketlens("find", writer.root, "o-1")
    rows = found.text.splitlines()[1:]
    assert len(rows) == 2
    hint = f"rocketlens: what became of it: rocketlens life {shlex.quote(str(writer.root))} u-1"
    assert found.errors.splitlines()[-1] == hint
    (shared,) = (row for row in rows if "+4 copies" in row)
    assert f" {last.physical_offset} " in shared
    assert "%DLQ%g" in shared
    outcome = rocketlens("find", writer.root, "o-1", "--copies")
    listed = outcome.text.splitlines()[1:]
    assert hint not in outcome.errors
    assert (len(listed), [row for row in listed if "copies" in row]) == (6, [])
    assert len(rocketlens("find", writer.root, "o-1", "--json").messages) == 6


TRUTH = (CASES / "A3-A4-transactions" / "truth.jsonl").read_text("utf-8")
TRANSACTIONS = [json.loads(line) for line in TRUTH.splitlines() if line.strip()]


@pytest.mark.parametrize("way", ["store", "server"])
def test_a_half_message_is_found_with_its_end(tmp_path, way) -> None:
    """Through a broker's port the operations are not seen: there is a hint where only they tell."""
    store = unpack("store", tmp_path, archives=CASES / "A3-A4-transactions")
    with serving_in_a_thread(service_of(MessageStore.open(store))) as server:
        for row in TRANSACTIONS:
            outcome = find((store,) if way == "store" else ("--server", server), row["uniqueKey"])
            found = {each["physicalOffset"]: each for each in outcome.messages}
            halves = [record for record in row["records"] if record["stage"] == "half"]
            assert set(found) == {record["physicalOffset"] for record in row["records"]}
            for record in halves:
                told = found[record["physicalOffset"]]["outcome"]
                is_told = way != "server" or record["means"] != "rolled back"
                assert (told or "").startswith(record["means"]) if is_told else told is None
            untold = way == "server" and any(record["means"] == "rolled back" for record in halves)
            assert ("is said of a store, not through a broker" in outcome.errors) == untold
    if way == "store":
        table = rocketlens("find", store, "tx-rollback-at-once").text
        assert "half: rolled back" in table


# Of produced.tsv: hot0.
OFFSET = 6581


class Fixed:
    def __init__(self, body: bytes) -> None:
        self.body = body

    @handles(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader)
    def view(self, header: ViewMessageRequestHeader) -> Response:
        return Response(body=self.body)


def test_from_id_dials_the_address_in_the_id(server) -> None:
    ours = encode_message_id(HostAddress(*server), OFFSET)
    outcome = rocketlens("find", ours, "--from-id", "--json")
    assert (outcome.code, outcome.messages[0]["uniqueKey"]) == (0, UNIQUE_KEY)


@pytest.mark.parametrize("body", [b"", b"garbage", bytes(100), encode_message(topic="T", physical_offset=7)])
def test_bytes_that_are_not_the_message_asked_for_are_not_shown(body: bytes) -> None:
    with serving_in_a_thread(service_of(FakeStore()), [Fixed(body)]) as endpoint:
        outcome = rocketlens("find", endpoint, "5", "--as", "physical-offset")
    assert (outcome.code, outcome.output) == (1, b"")
    assert "answered bytes that are not a message" in outcome.errors


class TestBodies:
    """`--body` writes the bytes of one body, `--charset` reads them."""

    @pytest.fixture
    def store(self, tmp_path):
        writer = StoreWriter(tmp_path / "store")
        writer.append("T", zlib.compress(b"\x00\xff body"), sys_flag=1, unique_key="U1")
        writer.append("T", gzip.compress("订单".encode("gbk"), mtime=0), unique_key="U2")
        writer.append("T", b"one", unique_key="U3")
        writer.append("T", b"two", unique_key="U3")
        writer.append("T", b"no zl\xff\x01", sys_flag=1, unique_key="U4")
        writer.close()
        return writer.root

    def test_the_body_goes_to_stdout_or_a_file_as_consumers_get_it(self, store, tmp_path) -> None:
        for key, body in (("U1", b"\x00\xff body"), ("U2", gzip.compress("订单".encode("gbk"), mtime=0))):
            outcome = rocketlens("find", store, key, "--as", "unique-key", "--body", "-")
            assert (outcome.code, outcome.output, outcome.errors) == (0, body, "")
            written = rocketlens("find", store, key, "--as", "unique-key", "--body", tmp_path / key)
            assert (written.code, written.output, (tmp_path / key).read_bytes()) == (0, b"", body)
            assert written.errors == f"rocketlens: {len(body)} bytes written to {tmp_path / key}\n"

    def test_a_body_that_cannot_be_decompressed_is_written_as_stored_and_that_is_said(self, store) -> None:
        outcome = rocketlens("find", store, "U4", "--body", "-")
        assert (outcome.code, outcome.output) == (0, b"no zl\xff\x01")
        assert "the body is written as it is stored: " in outcome.errors

    def test_no_file_is_replaced_and_none_is_made_in_the_store(self, store, tmp_path) -> None:
        (tmp_path / "there").write_bytes(b"before")
        refused = rocketlens("find", store, "U1", "--body", tmp_path / "there")
        assert (refused.code, (tmp_path / "there").read_bytes()) == (2, b"before")
        assert "exists already: choose another name" in refused.errors
        inside = rocketlens("find", store, "U1", "--body", store / "body")
        assert (inside.code, (store / "body").exists()) == (2, False)
        assert "lies inside the store" in inside.errors

    @pytest.mark.parametrize("options", [["--json"], ["--charset", "gbk"]])
    def test_options_that_contradict_it_are_refused(self, store, options) -> None:
        outcome = rocketlens("find", store, "U1", "--body", "-", *options)
        assert (outcome.code, outcome.output) == (2, b"")


def test_what_is_found_is_shown_and_what_is_not_is_explained(g1_store, server) -> None:
    for where in (g1_store, server):
        outcome = rocketlens("find", where, "0", "1", "--as", "physical-offset", "--json")
        assert (outcome.code, len(outcome.messages)) == (1, 1)
        assert "inside the record that starts at 0" in outcome.errors
        assert len(outcome.errors.splitlines()) == 1


def query(where, kind, text, *arguments, form="json"):
    return rocketlens("find", *where, text, "--as", kind, "--topic", "TopicTest", *arguments, "--format", form)


def offsets(outcome) -> list[int]:
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


def ask(endpoint, kind, text, *arguments):
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


HOT = 40


@pytest.fixture
def asked(tmp_path):
    file = tmp_path / "asked"
    file.write_text(f"nowhere\nhotkey\r\n\n  {UNIQUE_KEY}\t \nhotkey\n")
    return file


def test_every_line_has_its_rows_a_missing_one_says_so_and_parquet_holds_the_same(g1_store, asked, tmp_path) -> None:
    outcome = rocketlens("find", g1_store, "-f", asked)
    assert outcome.code == 1
    assert outcome.errors == "rocketlens: 2 of 3 found; missing: nowhere\n"
    assert len(outcome.messages) == HOT + 1 + 1
    assert outcome.messages[-1] == {"query": "nowhere", "found": False}
    found = {(row["query"], row["foundBy"]) for row in outcome.messages[:-1]}
    assert found == {("hotkey", "key"), (UNIQUE_KEY, "unique key")}
    whole = rocketlens("find", g1_store, "hotkey", "--as", "key", "--topic", "TopicTest", "--json").messages
    found = [{name: each[name] for name in each if name not in ("stage", "outcome")} for each in reversed(whole)]
    hot = [row for row in outcome.messages if row["query"] == "hotkey"]
    assert hot == [{"query": "hotkey", "found": True, **each} for each in found]
    lines, table = tmp_path / "out.ndjson", tmp_path / "out.parquet"
    assert rocketlens("find", g1_store, "-f", asked, "--out", lines).code == 1
    assert rocketlens("find", g1_store, "-f", asked, "--out", table, "--format", "parquet").code == 1
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    stored = pyarrow.parquet.read_table(table).to_pylist()
    assert len(stored) == len(rows)
    for row, kept in zip(rows[:-1], stored[:-1], strict=True):
        for column, name in JSON_NAMES.items() | {("found_by", "foundBy"), ("message_id", "messageId")}:
            if column not in ("store_timestamp", "born_timestamp", "properties", "body"):
                assert kept[column] == row.get(name), column
        assert (kept["query"], kept["found"]) == (row["query"], row["found"])
        assert dict(kept["properties"]) == row["properties"]
        assert kept["body"].decode() == row["body"]
        assert kept["store_timestamp"].timestamp() * 1000 == row["storeTimestamp"]
    assert (stored[-1]["query"], stored[-1]["found"], stored[-1]["message_id"]) == ("nowhere", False, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["asked", "out.ndjson", "out.parquet"]


@pytest.mark.parametrize("output_format", ["json", "msgpack", "parquet"])
def test_a_file_without_room_is_told_and_not_left(g1_store, asked, tmp_path, output_format) -> None:
    with small_disk(tmp_path / "disk") as give:
        disk = give("size=8k")
        (disk / "full").write_bytes(bytes(8192))
        outcome = rocketlens("find", g1_store, "-f", asked, "--out", disk / "out", "--format", output_format)
        assert outcome.code == 2
        assert outcome.errors.endswith("No space left on device\n")
        assert os.listdir(disk) == ["full"]


@pytest.mark.parametrize(
    ("content", "arguments", "reason"),
    [
        (b"", (), "holds no line to look up"),
        (b"\xff\n", (), "is not UTF-8 text"),
        (b"k\n", ("--format", "parquet"), "--format parquet needs --out"),
        (b"k\n", ("more",), "-f FILE takes the place of TEXT"),
        (b"k\n", ("--as", "tag"), "tags are found one by one"),
        (b"k\n", ("--limit", "5"), "-f FILE takes --as, --topic"),
    ],
)
def test_what_cannot_be_is_wrong_usage(g1_store, asked, content, arguments, reason) -> None:
    asked.write_bytes(content)
    outcome = rocketlens("find", g1_store, "-f", asked, *arguments)
    assert outcome.code == 2
    assert reason in outcome.errors


@pytest.mark.parametrize(("inside", "reason"), [(False, "is a directory"), (True, "lies inside the store")])
def test_nothing_is_written_into_a_store_nor_over_a_directory(g1_store, asked, tmp_path, inside, reason) -> None:
    out = g1_store / "found" if inside else tmp_path
    before = sorted(g1_store.iterdir())
    outcome = rocketlens("find", g1_store, "-f", asked, "--out", out)
    assert outcome.code == 2
    assert reason in outcome.errors
    assert sorted(g1_store.iterdir()) == before


def test_a_file_that_is_there_is_replaced_only_when_asked_for_and_only_by_a_whole_one(
    g1_store, asked, tmp_path
) -> None:
    out = tmp_path / "found"
    out.write_text("of yesterday")
    refused = rocketlens("find", g1_store, "-f", asked, "--out", out)
    assert (refused.code, "exists already" in refused.errors) == (2, True)
    assert out.read_text() == "of yesterday"
    assert rocketlens("find", g1_store, "-f", asked, "--out", out, "--replace").code == 1
    assert len(out.read_text().splitlines()) == HOT + 2


OFFSET_ID = "7F00000100002A9F00000000000019B5"


@pytest.mark.parametrize("topic", ["TopicTst", "BulkTopic"])
def test_a_topic_narrows_many_texts_as_it_narrows_one(g1_store, server, tmp_path, topic) -> None:
    """One that is nowhere is said, and an id of another topic's message names nothing."""
    asked = tmp_path / "ids"
    asked.write_text(f"{OFFSET_ID}\nhotkey\n")
    for where in (g1_store, server):
        many = rocketlens("find", where, "-f", asked, "--topic", topic)
        one = rocketlens("find", where, OFFSET_ID, "hotkey", "--topic", topic)
        assert [row["found"] for row in many.messages] == [False, False]
        assert (many.code, one.code, one.output) == (1, 1, b"")
        said = [line for line in one.errors.splitlines() if "there is no topic" in line][:1]
        assert many.errors.splitlines() == [*said, f"rocketlens: 0 of 2 found; missing: {OFFSET_ID}, hotkey"]
        nowhere = "rocketlens: there is no topic TopicTst; did you mean TopicTest or TopicTx?"
        assert said == ([nowhere] if topic == "TopicTst" else [])
