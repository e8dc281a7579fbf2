"""A name server and broker in one that takes messages, keeps them, and fails as a test says; no code of what sends."""

import asyncio
import contextlib
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from broker_harness import in_a_thread
from interop.wire import FrameSplitter
from message_encoding import encode_message
from protocol.host_address import HostAddress


class Fault(Enum):
    """What goes wrong with one request that sends."""

    NONE = "none"
    LOST_BEFORE = "the connection ends before it is stored"
    LOST_AFTER = "the connection ends after it was stored"
    BUSY = "refused as busy"
    ERROR = "refused with SYSTEM_ERROR"
    FORBIDDEN = "refused with NO_PERMISSION"
    ILLEGAL = "refused as illegal"
    SILENT = "stored, and never answered"
    FLUSH = "stored, but not yet on disk"


_REFUSED = {Fault.BUSY: 2, Fault.ERROR: 1, Fault.ILLEGAL: 13, Fault.FORBIDDEN: 16}

STORE_TIME = 1_700_000_000_000
SILENT = -1
"""The code of an answer that is not given."""


@dataclass(frozen=True)
class Taken:
    """A message that is in the broker's log."""

    topic: str
    queue_id: int
    queue_offset: int
    flag: int
    sys_flag: int
    properties: Mapping[str, str]
    body: bytes
    reconsume_times: int
    record: bytes


@dataclass
class TakingBroker:
    """`topics` are its topics with the number of their queues; `fault` is asked at each request that sends."""

    topics: dict[str, int] = field(default_factory=dict)
    fault: Callable[[int], Fault] = lambda _number: Fault.NONE
    log: list[Taken] = field(default_factory=list)
    perm: int = 6
    groups: tuple[str, ...] = ()
    max_message_size: int = 4 * 1024 * 1024
    cluster: str = "DefaultCluster"
    most_pulled: int = 8
    first_offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    """Queues of which retention has taken the messages before an offset."""
    unreadable: tuple[str, int] = ("", 0)
    requests: int = 0
    refused: list[Mapping[str, str]] = field(default_factory=list)
    heard: list[tuple[int, Mapping[str, str]]] = field(default_factory=list)
    port: int = 0
    also: str = ""
    """The address of another broker that the name server names."""
    said: str | None = None
    """What it says for the ids of what it has stored, where these are other ones."""
    _size: int = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def serving(self):
        @contextlib.asynccontextmanager
        async def opened():  # type: ignore[no-untyped-def]
            writers: list[asyncio.StreamWriter] = []

            async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writers.append(writer)
                await self._serve(reader, writer)

            server = await asyncio.start_server(connected, "127.0.0.1", self.port, limit=1 << 26)
            self.port = server.sockets[0].getsockname()[1]
            yield self
            server.close()
            for writer in writers:
                writer.transport.abort()

        with in_a_thread(opened) as serving:
            yield serving

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        splitter = FrameSplitter()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                for frame in splitter.feed(data):
                    fields = frame.header.get("extFields") or {}
                    self.heard.append((frame.code, fields))
                    answer = self._answer(frame.code, fields, frame.body)
                    if answer is not None and answer[0] == SILENT:
                        continue
                    if answer is None:
                        writer.transport.abort()
                        return
                    writer.write(_frame(frame.header["opaque"], *answer))

    def _answer(self, code, fields, body):
        if code in (310, 320):
            return self._take(code, fields, body)
        if code == 105:
            return self._route(fields["topic"])
        if code == 106:
            table = {"b": self._broker()}
            if self.also:
                table["other"] = {"cluster": self.cluster, "brokerName": "other", "brokerAddrs": {"0": self.also}}
            data = {"brokerAddrTable": table, "clusterAddrTable": {self.cluster: list(table)}}
            return 0, None, {}, json.dumps(data).encode()
        if code == 12:
            found = [each.record for each in self.log if each.properties.get("UNIQ_KEY") == fields["key"]]
            return (0, None, {}, b"".join(found)) if any(found) else (22, "none", {}, b"")
        if code == 11:
            return self._pull(fields)
        if code == 33:
            by_place = {int.from_bytes(each.record[28:36], "big"): each.record for each in self.log}
            at = by_place.get(int(fields["offset"]))
            return (0, None, {}, at) if at else (1, "none there", {}, b"")
        if code == 26:
            return 0, None, {}, f"maxMessageSize={self.max_message_size}\n".encode()
        if code == 21:
            table = {name: {"writeQueueNums": count, "attributes": {}} for name, count in self.topics.items()}
            return 0, None, {}, json.dumps({"topicConfigTable": table}).encode()
        if code == 300:
            return 0, None, {}, json.dumps({"groupList": self.groups}).encode()
        if code == 28:
            return 0, None, {}, b'{"table":{"dispatchBehindBytes":"0"}}'
        if code == 202:
            return 0, None, {}, self._stats(fields["topic"])
        return 3, "not supported", {}, b""

    def _broker(self) -> dict[str, object]:
        return {"cluster": self.cluster, "brokerName": "b", "brokerAddrs": {"0": self.address}}

    def _route(self, topic):
        if topic not in self.topics:
            return 17, "no route", {}, b""
        count = self.topics[topic]
        queue = {"brokerName": "b", "perm": self.perm, "readQueueNums": count, "writeQueueNums": count}
        return 0, None, {}, json.dumps({"brokerDatas": [self._broker()], "queueDatas": [queue]}).encode()

    def _stats(self, topic: str) -> bytes:
        rows = []
        for queue in range(self.topics[topic]):
            offsets = {"lastUpdateTimestamp": 0, "maxOffset": self._length(topic, queue), "minOffset": 0}
            rows.append(f"{json.dumps({'brokerName': 'b', 'queueId': queue, 'topic': topic})}:{json.dumps(offsets)}")
        return b'{"offsetTable":{' + ",".join(rows).encode() + b"}}"

    def _length(self, topic: str, queue_id: int) -> int:
        mine = (each.queue_offset + 1 for each in self.log if (each.topic, each.queue_id) == (topic, queue_id))
        return max(mine, default=0)

    def _pull(self, fields):
        """As many messages as a broker gives from its disk, from an offset on."""
        topic, queue_id, first = fields["topic"], int(fields["queueId"]), int(fields["queueOffset"])
        if (topic, queue_id) == self.unreadable:
            return 16, "not for you", {}, b""
        least = self.first_offsets.get((topic, queue_id), 0)
        if first < least:
            ends = {"nextBeginOffset": str(least), "minOffset": str(least), "maxOffset": "1000"}
            return 21, None, ends, b""
        mine = {each.queue_offset: each for each in self.log if (each.topic, each.queue_id) == (topic, queue_id)}
        offsets = sorted(offset for offset in mine if offset >= first)[: self.most_pulled]
        after = offsets[-1] + 1 if offsets else self._length(topic, queue_id)
        said = {"nextBeginOffset": str(after), "minOffset": "0", "maxOffset": str(self._length(topic, queue_id))}
        return (0 if offsets else 19), None, said, b"".join(mine[offset].record for offset in offsets)

    def _take(self, code, fields, body):
        self.requests += 1
        fault = self.fault(self.requests)
        if fault is Fault.LOST_BEFORE:
            return None
        if fault in _REFUSED:
            self.refused.append(fields)
            return _REFUSED[fault], fault.value, {}, b""
        messages = list(_inner(body)) if code == 320 else [(int(fields["h"]), body, fields["i"])]
        ids = [self._store(fields, *message) for message in messages]
        if fault is Fault.LOST_AFTER:
            return None
        if fault is Fault.SILENT:
            return SILENT, None, {}, b""
        said = {"msgId": ",".join(ids) if self.said is None else self.said, "queueId": fields["e"], "queueOffset": "0"}
        return (10 if fault is Fault.FLUSH else 0), None, said, b""

    def _store(self, fields: Mapping[str, str], flag: int, body: bytes, properties: str) -> str:
        named = dict(piece.split("\x01", 1) for piece in properties.split("\x02") if piece)
        topic, queue_id, sys_flag = fields["b"], int(fields["e"]), int(fields["f"])
        offset, times = self._length(topic, queue_id), int(fields["j"])
        record = encode_message(
            topic=topic, body=body, properties=named, queue_id=queue_id, queue_offset=offset,
            physical_offset=self._size, flag=flag, sys_flag=sys_flag, born_timestamp=int(fields["g"]),
            store_timestamp=STORE_TIME, store_host=HostAddress("127.0.0.1", self.port), reconsume_times=times,
        )  # fmt: skip
        taken = Taken(topic, queue_id, offset, flag, sys_flag, named, body, times, record)
        self.log.append(taken)
        at, self._size = self._size, self._size + len(record)
        return f"7F000001{self.port:08X}{at:016X}"


def _inner(body):
    position = 0
    while position < len(body):
        _size, _magic, _crc, flag, length = struct.unpack_from(">iiiii", body, position)
        start = position + 20
        (properties,) = struct.unpack_from(">h", body, start + length)
        end = start + length + 2 + properties
        yield flag, body[start : start + length], body[start + length + 2 : end].decode()
        position = end


def _frame(opaque: int, code: int, remark: str | None, fields: Mapping[str, str], body: bytes) -> bytes:
    members = {"code": code, "flag": 1, "language": "JAVA", "opaque": opaque, "version": 1, "remark": remark}
    header = json.dumps(members | ({"extFields": fields} if fields else {})).encode()
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body
