"""What the public face answers from a store and over the wire, by brokers that are slow or answer garbage, too."""

import asyncio
import contextlib
import functools
import itertools
import json
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import oracles
import rocketlens
from acl_file import READER, READER_SECRET, write_accounts
from broker.config import TlsOptions
from broker.endpoint import Endpoint
from broker_harness import FakeStore, in_a_thread, service_of, serving_in_a_thread
from certificates import Authority
from frame_garbage import encode_frame_prefix
from golden_store import G1, produced
from message_encoding import encode_message
from name_server import NamedBrokers
from protocol.codes import RequestCode
from protocol.command import Command, decode_command
from protocol.frame import FrameDecoder
from protocol.message_id import MessageId
from spark_jobs.export.export_formats import ParquetPart
from spark_jobs.read.log_ranges import find_ranges
from spark_jobs.read.read_range import RangeReader
from storage.columns.names import KINDS
from storage.columns.wanted import Wanted
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

UNIQUE_KEY = "FD000000000000000000000000000002708C30946E09687211CE0017"


def test_requests_are_signed_where_a_broker_asks_for_it(g1_store, tmp_path) -> None:
    acl = write_accounts(tmp_path / "plain_acl.yml")
    with serving_in_a_thread(service_of(MessageStore.open(g1_store), acl=acl)) as address:
        keys = {"access_key": READER, "secret_key": READER_SECRET}
        with rocketlens.connect(str(address), **keys, group="readers") as remote:
            assert len(remote.query("TopicTest", key="hotkey")) == 40
            assert len(remote.pull("TopicTest", 0, 0)) == 12
            with pytest.raises(rocketlens.ResponseError, match="NO_PERMISSION"):
                remote.query("TopicTx", key="a")
        says = "no permission to access Group:TOOLS_CONSUMER"
        with rocketlens.connect(str(address), **keys) as remote, pytest.raises(rocketlens.ResponseError, match=says):
            remote.pull("TopicTest", 0, 0)
        for wrong in ({}, {"access_key": READER, "secret_key": "not-the-one"}):
            with rocketlens.connect(str(address), **wrong) as remote, pytest.raises(rocketlens.ResponseError) as caught:
                remote.query("TopicTest", key="hotkey")
            assert "not-the-one" not in str(caught.value)


def test_no_secret_is_in_a_repr() -> None:
    remote = rocketlens.connect_async("127.0.0.1:1", access_key="mine", secret_key="hidden")
    texts = [repr(remote), repr(vars(remote)), repr(vars(remote._client))]
    assert not [text for text in texts if "hidden" in text]


def test_tls_is_spoken_and_certificates_are_checked(g1_store, tmp_path) -> None:
    authority, other = Authority.make(tmp_path / "ca"), Authority.make(tmp_path / "other", "other")
    tls = TlsOptions("enforcing", *authority.sign("server"))
    with serving_in_a_thread(service_of(MessageStore.open(g1_store), tls=tls)) as address:
        with rocketlens.connect(str(address), tls=authority.client_context()) as remote:
            assert remote.view(6581)[0].unique_key == UNIQUE_KEY
        for context in (True, other.client_context()):
            with (
                rocketlens.connect(str(address), tls=context) as remote,
                pytest.raises(rocketlens.ClientError, match=f"cannot connect to {address}: TLS: .*certificate"),
            ):
                remote.view(0)
        with rocketlens.connect(str(address)) as remote, pytest.raises(rocketlens.ClientError, match="closed the conn"):
            remote.view(0)


def test_an_id_alone_says_which_broker_to_ask(server: Endpoint) -> None:
    message_id = str(MessageId(rocketlens.HostAddress(*server), 6581))
    with rocketlens.connect() as remote:
        assert remote.view(message_id)[0].unique_key == UNIQUE_KEY
        with pytest.raises(rocketlens.ClientError, match="only an offset message id contains an address"):
            remote.view(UNIQUE_KEY)
        for ask in (remote.topics, remote.groups, lambda: remote.query("T", key="a"), lambda: remote.find("a")):
            with pytest.raises(rocketlens.ConfigError, match="no server was named"):
                ask()


def test_brokers_are_found_by_their_name_server(server: Endpoint) -> None:
    one = NamedBrokers(a=server)
    with serving_in_a_thread(service_of(FakeStore()), [one]) as names, rocketlens.connect(str(names)) as remote:
        assert len(remote.query("TopicTest", key="hotkey")) == 40
        assert [message.queue_offset for message in remote.pull("TopicTest", 0, 3, maximum=2)] == [3, 4]
        assert remote.view(6581)[0].unique_key == remote.find("6581")[0].unique_key == UNIQUE_KEY
        assert {"CG_TAG", "CG_SQL"} < {group.name for group in remote.groups()}
        assert remote.info().end_offset == 156014
    several = NamedBrokers(a=server, b=server)
    with serving_in_a_thread(service_of(FakeStore()), [several]) as names, rocketlens.connect(str(names)) as remote:
        with pytest.raises(rocketlens.ClientError, match=r"on several brokers, connect to one of them: a \(.*, b \("):
            remote.pull("TopicTest", 0, 0)
        with pytest.raises(rocketlens.ClientError, match="on several brokers"):
            list(remote.search(topic="TopicTest"))
        for ask in (remote.groups, remote.info):
            several = r"names several brokers, connect to one of them: a \(.*, b \("
            with pytest.raises(rocketlens.ClientError, match=several):
                ask()
        assert [message.physical_offset for message in remote.view(6581)] == [6581, 6581]


Answer = Callable[[Command], bytes]
"""A whole frame that answers a request."""


@contextlib.contextmanager
def answering(answer):
    """A server that answers every request with what `answer` makes."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = FrameDecoder()
        try:
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(65536):
                    for frame in decoder.feed(data):
                        writer.write(answer(decode_command(frame)))
        finally:
            writer.transport.abort()

    @contextlib.asynccontextmanager
    async def opened():
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        async with server:
            yield Endpoint.of_socket(server.sockets[0].getsockname())

    with in_a_thread(opened) as endpoint:
        yield endpoint


def frame(header: object, body: bytes) -> bytes:
    text = json.dumps(header).encode()
    return encode_frame_prefix(0, len(text), len(body)) + text + body


RECORD = encode_message(topic="T", physical_offset=5, properties={"UNIQ_KEY": "u", "KEYS": "a"})
BODIES = (
    *(b"", b"garbage", b"{}", b"null", b"[]", b"[" * 5000, b'{"a":' * 5000, bytes(100), b"\xff" * 40, RECORD),
    *(RECORD[:-1], RECORD + RECORD[:50], RECORD * 3, b"\0\0\0\0" + RECORD[4:], b"\x7f\xff\xff\xff" + RECORD[4:]),
    *(b'{"topicConfigTable":{"T":{"readQueueNums":2147483647}}}', b'{"topicConfigTable":{"T":null}}'),
    *(b'{"topicConfigTable":{"T":{"readQueueNums":99999999999999999999}}}', b'{"topicConfigTable":5}'),
    *(b'{"subscriptionGroupTable":{"g":null}}', b'{"offsetTable":{"T@g":{"x":1}}}', b'{"offsetTable":{"T@g":{0:"y"}}}'),
    *(b'{"brokerDatas":[{"brokerAddrs":{"0":"x"},"brokerName":"a","cluster":"c"}]}', b'{"topicList":[1,2]}'),
)
FIELDS: tuple[object, ...] = (
    None,
    {},
    [],
    "text",
    5,
    {"nextBeginOffset": "-1", "minOffset": "0", "maxOffset": "9"},
    {"nextBeginOffset": "9" * 40, "minOffset": "x", "maxOffset": ""},
    {"nextBeginOffset": "9223372036854775807", "minOffset": "0", "maxOffset": "9223372036854775807", "offset": "7"},
    {"nextBeginOffset": "1", "minOffset": "5", "maxOffset": "1", "offset": "-9"},
    {"rocketlensCursor": "9" * 30, "rocketlensIncomplete": "x" * 5000},
    {"rocketlensCursor": "7"},
    {"offset": 1.5, "rocketlensCursor": None},
)
CODES = (0, 1, 3, 17, 19, 21, 22, -7, 2**31 - 1)


def ask_everything(remote):
    yield lambda: remote.view(5)
    yield lambda: remote.view("u", topic="T")
    yield lambda: remote.query("T", key="a", maximum=3)
    yield lambda: remote.pull("T", 0, 0)
    yield lambda: remote.find("a")
    yield remote.topics
    yield remote.groups
    yield lambda: list(itertools.islice(remote.search(topic="T"), 3))


def use(answer: object) -> None:
    for message in answer if isinstance(answer, rocketlens.Answer) else ():
        assert message.message_id is not None
        assert isinstance(message.properties, dict)
        assert str((message.store_time, message.born_time, message.keys, message.tags, message))
        with contextlib.suppress(rocketlens.Error):
            assert isinstance(message.body, bytes)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 8))])
def test_whatever_a_server_answers_is_an_answer_or_an_error_of_ours(seed: int) -> None:
    chooser = random.Random(seed)
    seen = {"answers": 0, "errors": 0}

    def answer(asked: Command) -> bytes:
        fields, body = chooser.choice(FIELDS), bytearray(chooser.choice(BODIES))
        if body and chooser.random() < 0.3:
            body[chooser.randrange(len(body))] = chooser.randrange(256)
        remark = chooser.choice((None, "é\n\x1b"))
        header = {"code": chooser.choice(CODES), "flag": 1, "opaque": asked.opaque, "remark": remark}
        return frame(header | ({} if fields is None else {"extFields": fields}), bytes(body))

    with answering(answer) as endpoint, rocketlens.connect(str(endpoint), timeout_seconds=20) as remote:
        for _ in range(40):
            for ask in ask_everything(remote):
                try:
                    use(ask())
                    seen["answers"] += 1
                except rocketlens.Error:
                    seen["errors"] += 1
    assert min(seen.values()) > 10, seen


def test_a_server_that_leads_round_in_a_circle_is_left() -> None:
    """A cursor that is always the same with records that do not match, and a queue offset that does not move on."""
    asked = itertools.count()
    other = encode_message(topic="T", physical_offset=9, properties={"UNIQ_KEY": "o", "KEYS": "other"})
    bodies = {RequestCode.GET_ALL_TOPIC_CONFIG: b'{"topicConfigTable":{"T":{"readQueueNums":1}}}'}
    fields = {"rocketlensCursor": "7", "nextBeginOffset": "0", "minOffset": "0", "maxOffset": "5"}

    def answer(command: Command) -> bytes:
        assert next(asked) < 100
        code = 3 if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC else 0
        header = {"code": code, "flag": 1, "opaque": command.opaque, "extFields": fields}
        return frame(header, bodies.get(command.code, other))

    with answering(answer) as endpoint, rocketlens.connect(str(endpoint)) as remote:
        assert not remote.query("T", key="a")
        with pytest.raises(rocketlens.ClientError, match="leads from queue offset 0 to 0"):
            list(remote.search(topic="T"))
    assert next(asked) > 4


def test_what_is_lost_is_said_by_a_search_over_the_network_as_by_pulls_of_the_store(tmp_path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for number in range(6):
        writer.append("T", b"hot %d" % number)
    lost = writer.written[2]
    writer.overwrite(lost.physical_offset + 4, bytes(4))
    writer.close()
    (units,) = (writer.root / "consumequeue" / "T" / "0").iterdir()
    content = bytearray(units.read_bytes())
    content[40:60] = b"\x7f" * 20
    units.write_bytes(content)
    store = MessageStore.open(writer.root)
    with rocketlens.open(writer.root) as opened, serving_in_a_thread(service_of(store)) as address:
        notes = {note for offset in range(6) for note in opened.pull("T", 0, offset).notes if "lost" in note}
        with rocketlens.connect(str(address)) as remote:
            search = remote.search(topic="T", contains="hot")
            assert [message.body for message in search] == [b"hot %d" % number for number in (0, 1, 3, 4, 5)]
            (note,) = search.notes
            assert note.removeprefix("queue 0: ") in notes
            assert set(remote.pull("T", 0, 2).notes) <= notes
            assert remote.pull("T", 0, 3).notes == ()


Source = rocketlens.Store | rocketlens.RemoteStore


def body_hash(body: bytes) -> int:
    """Java's `Arrays.hashCode`, which the recorded consumers printed."""
    value = functools.reduce(lambda hashed, byte: (31 * hashed + (byte ^ 0x80) - 0x80) & 0xFFFFFFFF, body, 1)
    return (value ^ 1 << 31) - (1 << 31)


def pull_all(source, topic, queue_id, **options):
    offset, end = 0, 1
    while offset < end:
        found = source.pull(topic, queue_id, offset, maximum=5, **options)
        yield from found
        assert found.next_offset > offset
        offset, end = found.next_offset, found.max_offset


def test_every_message_that_was_produced_is_found_by_each_of_its_ids(source: Source) -> None:
    known = [each for each in produced() if each.label != "delay"]
    assert len(known) > 15
    for sent in known:
        by_unique_key = source.view(sent.unique_key, topic=sent.topic)
        (found,) = by_unique_key
        told = found.offset_message_id, found.topic, found.queue_id, found.queue_offset, found.keys, found.tags
        assert told == sent[1:7]
        assert found.message_id == sent.unique_key
        assert tuple(source.view(sent.offset_message_id)) == tuple(source.view(found.physical_offset)) == (found,)


@pytest.mark.parametrize(
    ("recorded", "options"),
    [
        ("consumed-tag.tsv", {"tag": "TagA || Aa"}),
        ("consumed-sql.tsv", {"sql": "a > 10 AND a <= 30 AND region = 'hz'"}),
    ],
)
def test_a_pull_brings_what_the_recorded_consumer_got(source: Source, recorded: str, options: dict[str, str]) -> None:
    lines = [line.split("\t") for line in (G1 / recorded).read_text().splitlines()]
    rows = [[None if each == "null" else each for each in line[1:]] for line in lines if line[0] == "MSG"]
    expected = {(row[0], *map(int, row[1:3]), *row[3:6], *map(int, row[7:9])) for row in rows}
    assert len(expected) == int(lines[0][1]) > 4
    found = {
        (
            *(message.topic, message.queue_id, message.queue_offset, message.unique_key, message.offset_message_id),
            *(message.tags, len(message.body), body_hash(message.body)),
        )
        for queue_id in range(4)
        for message in pull_all(source, "TopicTest", queue_id, **options)
    }
    assert found == expected


def test_nothing_found_says_why(source: Source) -> None:
    for found in (
        source.query("TopicTest", key="nosuchkey"), source.query("NoSuchTopic", key="a"), source.view(1),
        source.view("nobody"), source.pull("TopicTest", 0, 10_000), source.pull("TopicTest", 99, 0),
        source.pull("NoSuchTopic", 0, 0)
    ):  # fmt: skip
        assert not found
        assert len(found.reason) > 20
    found = source.query("TopicTest", key="hotkey")
    assert found.reason == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "exactly one of key, unique_key and tag"),
        ({"key": "a", "tag": "b"}, "exactly one of"),
        ({"key": "a", "begin": 5, "end": 1}, "begin 5 is after end 1"),
        ({"key": "a", "begin": "soon"}, "neither milliseconds nor a time"),
        ({"key": "a", "maximum": 0}, "maximum 0: expected 1 or more"),
        ({"key": "a", "cursor": -1}, "cursor -1: expected the cursor of an earlier answer"),
    ],
)
def test_a_question_that_cannot_be_is_an_error(source: Source, arguments: dict[str, object], says: str) -> None:
    with pytest.raises(rocketlens.ConfigError, match=says):
        source.query("TopicTest", **arguments)


def test_what_is_closed_says_so(g1_store: Path) -> None:
    for closed in (rocketlens.open(g1_store), rocketlens.connect("127.0.0.1:1")):
        closed.close()
        closed.close()
        with pytest.raises(rocketlens.Error, match="is closed"):
            closed.view(0)
        with pytest.raises(rocketlens.Error, match="is closed"):
            closed.topics()


def test_schema_and_rows_are_those_of_the_parquet_export(g1_store: Path, tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    with path.open("wb") as file:
        writer = ParquetPart(file, tuple(KINDS), "zstd")
        for each in find_ranges(str(g1_store)).ranges:
            for columns in RangeReader(each, Wanted(), tuple(KINDS)).read():
                writer.write(columns)
        writer.close()
    exported = pq.read_table(path)
    table = rocketlens.arrow(g1_store).read_all()
    assert table.schema.names == exported.schema.names == list(KINDS)
    assert [field.type for field in table.schema] == [field.type for field in exported.schema]
    assert table.to_pylist() == exported.to_pylist()
    assert table.num_rows == len(oracles.read_log(g1_store / "commitlog")) > 300


def test_damage_is_left_out_with_a_warning_or_is_an_error(g1_store: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(g1_store, tmp_path / "store"))
    with (store / "commitlog" / f"{0:020}").open("r+b") as segment:
        segment.seek(6581 + 100)
        segment.write(b"damage")
    with pytest.warns(rocketlens.DamageWarning, match="physical offset 6581") as warned:
        table = rocketlens.arrow(store, columns=["physical_offset"]).read_all()
    assert len(warned) == 1
    whole = {record.physical_offset for record in oracles.read_log(g1_store / "commitlog")}
    assert whole - set(table["physical_offset"].to_pylist()) == {6581}
    with warnings.catch_warnings(), pytest.raises(rocketlens.CorruptRecord):
        rocketlens.arrow(store, columns=["physical_offset"], fails_fast=True).read_all()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"columns": ["nothing"]}, rocketlens.ConfigError),
        ({"columns": ["topic", "topic"]}, rocketlens.ConfigError),
        ({"begin": 5, "end": 1}, rocketlens.ConfigError),
        ({"where": "a >"}, rocketlens.FilterSyntaxError),
        ({"topic": []}, rocketlens.ConfigError),
    ],
)
def test_arguments_that_cannot_be_are_errors_at_once(g1_store, options, error) -> None:
    with pytest.raises(error):
        rocketlens.arrow(g1_store, **options)
