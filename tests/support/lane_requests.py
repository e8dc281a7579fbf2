"""Requests for the fast lane, plain and not so plain, and connections that say in bytes how they were answered."""

import asyncio
import json
import random
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

from broker.lane.fast_lane import FastLane
from broker.limits import DEFAULT_LIMITS
from broker.net.budget import ConnectionBudget
from broker.net.scheduler import Scheduler
from broker.net.session_settings import SessionSettings
from broker.net.transport import OpenConnections, SessionTransport
from broker.service.dispatcher import Dispatcher
from broker.service.request_families import build_processors
from broker_harness import DEADLINE_SECONDS
from protocol.codes import SerializeType
from protocol.command import Response
from protocol.kernels.responses import OPAQUE, ResponseTemplate
from storage.files.waiting import Unfinished

VIEW, QUERY, PULL, LITE_PULL, SEND = 33, 12, 11, 361, 10
FOREVER = 2**63 - 1
SUBSCRIPTION_FLAG = 4
"""Bit of a pull's sysFlag: the subscription is in the request."""
TAIL = {"flag": 0, "language": "JAVA", "opaque": 7, "serializeTypeCurrentRPC": "JSON", "version": 513}
EDGES = b'\0\x01\x1f\x7f\x80\xc3\xef\xff"\\{}[]:,0-9eE.utfn \n'


class Wire:
    def __init__(self) -> None:
        self.written = bytearray()
        self.is_closed = self.is_paused = False

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, parts) -> None:
        for part in parts:
            self.written += part

    def get_extra_info(self, _name: str) -> tuple[str, int]:
        return ("127.0.0.1", 10911)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_reading(self) -> bool:
        return not self.is_paused

    def close(self) -> None:
        self.is_closed = True

    write_eof = abort = close


class PatientDispatcher(Dispatcher):
    def dispatch(self, command, connection):
        step = super().dispatch(command, connection)
        return self._finish(command, step, step.wait.warm) if isinstance(step, Unfinished) else step


class LaneConnections:
    def __init__(self, service, *, has_lane, budget=None, learn=None) -> None:
        """`learn` takes notice of pulls where there is no lane."""
        self.lane = FastLane(service) if has_lane else None
        self._settings = SessionSettings(
            PatientDispatcher(build_processors(service, learn=learn if self.lane is None else self.lane.learn)),
            budget or ConnectionBudget(DEFAULT_LIMITS, time.monotonic),
            Scheduler(lambda work: asyncio.get_running_loop().call_soon(work)),
            service.options.frame_limit,
            self.lane,
        )
        self._connections = OpenConnections(service.clients.connection_lost)

    def connect(self) -> tuple[SessionTransport, Wire]:
        wire, connection = Wire(), SessionTransport(self._settings, self._connections)
        connection.connection_made(wire)  # type: ignore[arg-type]
        return connection, wire

    async def answer(self, reads: Sequence[bytes]) -> tuple[bytes, bool]:
        """What a new connection writes when `reads` come in, and whether it closes then."""
        connection, wire = self.connect()
        for data in reads:
            connection.data_received(data)
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not connection.session.is_answered:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0)
        connection.connection_lost(None)
        return bytes(wire.written), wire.is_closed

    @property
    def taken(self) -> int:
        return sum(self.lane.answered.values())


async def compare(service, streams):
    """Every stream of reads is answered alike with and without the lane; how many requests the lane took."""
    with_lane = LaneConnections(service, has_lane=True)
    without = LaneConnections(service, has_lane=False, learn=with_lane.lane.learn)
    for reads in streams:
        assert await with_lane.answer(reads) == await without.answer(reads), reads
    return with_lane.taken


def frame_of(header: bytes, body: bytes = b"", serialize_type: int = 0) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), serialize_type << 24 | len(header)) + header + body


def request(code, fields, **members):
    """A frame as a Java client writes it; `members` replace or complete those of its header."""
    header = {"code": code, "extFields": fields, **TAIL, **members}
    return frame_of(json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode())


def view(offset, topic="TopicTest", **members):
    return request(VIEW, {"offset": str(offset), "topic": topic}, **members)


def query(topic, key, opaque=7, **fields):
    wanted = {"topic": topic, "key": key, "maxNum": "64", "beginTimestamp": "0", "endTimestamp": str(FOREVER)}
    return request(QUERY, wanted | fields, opaque=opaque)


def mutated(generator: random.Random, frame: bytes) -> bytes:
    data = bytearray(frame)
    for _ in range(generator.randint(1, 3)):
        position = generator.randrange(8 if generator.random() < 0.9 else 0, len(data))
        kind = generator.random()
        if kind < 0.5:
            data[position] = generator.choice(EDGES)
        elif kind < 0.75:
            data.insert(position, generator.choice(EDGES))
        else:
            del data[position : position + generator.randint(1, 12)]
    if generator.random() < 0.9 and len(data) > 8:
        data[:8] = struct.pack(">iI", len(data) - 4, len(data) - 8)
    return bytes(data)


@dataclass
class RequestMaker:
    generator: random.Random
    topics: Sequence[str]
    keys: Sequence[str]
    offsets: Sequence[int]
    times: Sequence[int]
    stored_topics: Sequence[str]

    def frame(self) -> bytes:
        choice = self.generator.choice
        if self.generator.random() < 0.4:
            number = self.generator.randrange(len(self.offsets))
            offset = self.offsets[number] + choice((0, 0, 0, 0, 0, 1, -7, 2**40, -(2**40)))
            topic = choice((*[self.stored_topics[number]] * 20, choice(self.topics), ""))
            names = {"topic": topic} if self.generator.random() < 0.7 else {"bname": "broker" * 20}
            code, fields = VIEW, {"offset": offset, **names}
        else:
            code, fields = QUERY, self._query()
        header = {"code": code, "extFields": self._rendered(fields), **TAIL}
        header["opaque"] = choice((0, 1, 7, 2**31 - 1, -(2**31), -1, 123456))
        if self.generator.random() < 0.1:
            odd = {"remark": None}, {"remark": ""}, {"flag": 2}, {"flag": 1}, {"opaque": "5"}, {"code": SEND}
            header |= choice(odd)
        header = self._shuffled(header) if self.generator.random() < 0.3 else header
        text = json.dumps(header, ensure_ascii=self.generator.random() < 0.1, separators=(",", ":")).encode("utf-8")
        frame = frame_of(text, b"body" if self.generator.random() < 0.02 else b"")
        return self.mutated(frame) if self.generator.random() < 0.1 else frame

    def mutated(self, frame: bytes) -> bytes:
        return mutated(self.generator, frame)

    def _query(self):
        choice, keys = self.generator.choice, self.keys
        fields = {"topic": choice(self.topics), "key": choice(keys)}
        fields["maxNum"] = choice((64, 64, 32, 100, 2**31 - 1, 5, 1, 0, -1, 2**31))
        fields["beginTimestamp"] = choice((0, 0, 0, -1, -FOREVER, choice(self.times), "x"))
        fields["endTimestamp"] = choice((FOREVER, FOREVER, FOREVER, FOREVER + 1, choice(self.times), 0))
        for name, values in (
            ("indexType", ("K", "K", "U", "T", "", "X", "KK")),
            ("_UNIQUE_KEY_QUERY", ("true", "false", "false", "True", "1", "")),
            ("lastKey", ("", "", "", f"x@{choice(self.offsets)}", "nonsense")),
            ("ns", ("space", "")),
            ("nsd", ("true", "false")),
            ("bname", ("broker-a",)),
            ("lo", ("false",)),
            ("other", ("1", {"nested": []})),
        ):
            if self.generator.random() < 0.15:
                fields[name] = choice(values)
        return fields

    def _rendered(self, fields):
        """Integers as clients send them: as texts mostly."""
        for name, value in fields.items():
            if isinstance(value, int):
                kind = self.generator.random()
                fields[name] = str(value) if kind < 0.8 else value if kind < 0.95 else f"0{value}"
        if self.generator.random() < 0.05:
            del fields[self.generator.choice(list(fields))]
        return self._shuffled(fields) if self.generator.random() < 0.3 else fields

    def _shuffled(self, members):
        items = list(members.items())
        self.generator.shuffle(items)
        return dict(items)


def pull(topic, queue_id=0, queue_offset=0, /, *, code=PULL, opaque=7, **fields):
    """A pull as a Java client sends it, for all messages; a field that is None is left out."""
    wanted = {
        "queueId": queue_id, "maxMsgBytes": 262144, "maxMsgNums": 32, "sysFlag": SUBSCRIPTION_FLAG,
        "suspendTimeoutMillis": 15000, "commitOffset": 0, "bname": "broker-a", "topic": topic,
        "queueOffset": queue_offset, "subscription": "*", "expressionType": "TAG", "subVersion": 1,
        "consumerGroup": "Group", **fields,
    }  # fmt: skip
    return request(code, {name: str(value) for name, value in wanted.items() if value is not None}, opaque=opaque)


@dataclass
class Puller:
    generator: random.Random
    queues: Sequence[tuple[str, int, int]]
    subscriptions: Sequence[tuple[str, str]]

    def frame(self) -> bytes:
        choice = self.generator.choice
        topic, queue_id, count = choice(self.queues)
        subscription, expression_type = choice(self.subscriptions)
        is_near = self.generator.random() < 0.9
        queue_offset = self.generator.randint(-1, count) if is_near else choice((count + 1, 2**40))
        code, opaque = choice((PULL, PULL, PULL, LITE_PULL)), choice((0, 1, 7, 2**31 - 1, -(2**31), -1))
        fields = {"subscription": subscription, "expressionType": expression_type, **self._oddities()}
        frame = pull(topic, queue_id, queue_offset, code=code, opaque=opaque, **fields)
        return mutated(self.generator, frame) if self.generator.random() < 0.05 else frame

    def _oddities(self):
        choice = self.generator.choice
        odd = (
            {"maxMsgNums": choice((1, 2, 5, 0, -1, 100, 5000, 2**31 - 1, 2**31))},
            {"maxMsgBytes": choice((None, 0, 1, 100, 1000, 2**31 - 1, -5, "x"))},
            {"sysFlag": SUBSCRIPTION_FLAG | 1, "commitOffset": choice((-1, 0, 1, 17, 2**40))},
            {"sysFlag": SUBSCRIPTION_FLAG | choice((8, 16, 2**20))},
            {"subVersion": choice((0, -1, 2, 2**63 - 1, 2**63))},
            {"expressionType": choice((None, "", "TAG", "SQL92", "tag"))},
            {"consumerGroup": choice(("Group", "Grüppe", "", "a\ufffd"))},
            {"liteTopic": "x", "requestSource": choice((0, 1, "x")), "proxyFrowardClientId": "y"},
            {"lo": "false", "ns": "space", "nsd": "true"},
            {"other": "1"},
            {"queueId": choice((0, 1, 7, -1, 2**31))},
            {"topic": choice(("NoSuchTopic", "", "a/b"))},
        )
        return choice(odd) if self.generator.random() < 0.2 else {}


def template_with(numbers: int) -> ResponseTemplate:
    names = [f"n{number}" for number in range(numbers - 1)]
    response = Response(ext_fields=dict.fromkeys(names, "0"))
    return ResponseTemplate(SerializeType.JSON, response, (*(f'"{name}":"' for name in names), OPAQUE))
