"""Brokers asked by the public face: signed, with TLS, through name servers, slow ones, and ones that answer garbage."""

import asyncio
import contextlib
import itertools
import json
import random
from collections.abc import Callable

import pytest

import rocketlens
from acl_file import READER, READER_SECRET, write_accounts
from broker.config import TlsOptions
from broker.endpoint import Endpoint
from broker_harness import FakeStore, in_a_thread, service_of, serving_in_a_thread
from certificates import Authority
from frame_garbage import encode_frame_prefix
from message_encoding import encode_message
from name_server import NamedBrokers
from protocol.codes import RequestCode
from protocol.command import Command, decode_command
from protocol.frame import FrameDecoder
from protocol.message_id import MessageId
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
