"""Clients of a server that follows a live store: they compare every message in every way, or wait for what comes."""

import queue
import socket
import threading
import time
import zlib
from dataclasses import dataclass

from interop.wire import FrameSplitter, encode_request
from oracles import read_record

VIEW_MESSAGE_BY_ID, QUERY_MESSAGE, PULL_MESSAGE, TOPIC_NOT_EXIST = 33, 12, 11, 17
FOREVER = {"maxNum": "64", "beginTimestamp": "0", "endTimestamp": str(2**63 - 1)}
PULL = {
    "consumerGroup": "CG", "commitOffset": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
}  # fmt: skip
SUSPEND, SUBSCRIPTION = 2, 4
IS_COMPRESSED = 1
"""Of sysFlag: producers compress bodies from 4 KB on."""
PATIENCE_SECONDS = 60.0
"""What a message may take on a machine that does many other things."""

Way = tuple[int, dict[str, str]]


class Asker:
    def __init__(self, address) -> None:
        self._socket = socket.create_connection(address, timeout=60)
        self._splitter, self._opaque = FrameSplitter(), 0

    def ask(self, code, fields):
        self._opaque += 1
        self._socket.sendall(encode_request(code, self._opaque, dict(fields)))
        while True:
            chunk = self._socket.recv(1 << 20)
            assert chunk, "the server closed the connection"
            for frame in self._splitter.feed(chunk):
                assert frame.header["opaque"] == self._opaque
                return frame

    def close(self) -> None:
        self._socket.close()


def pull(topic: str, queue_id: int, queue_offset: int, maximum: int = 1, hold_ms: int = 0) -> Way:
    place = {"topic": topic, "queueId": str(queue_id), "queueOffset": str(queue_offset), "maxMsgNums": str(maximum)}
    flags = SUBSCRIPTION | (SUSPEND if hold_ms else 0)
    return PULL_MESSAGE, {**PULL, **place, "sysFlag": str(flags), "suspendTimeoutMillis": str(hold_ms)}


def ways_to(sent) -> dict[str, Way]:
    by_key = {**FOREVER, "topic": sent.topic}
    return {
        "offset": (VIEW_MESSAGE_BY_ID, {"offset": str(sent.physical_offset)}),
        "key": (QUERY_MESSAGE, {**by_key, "key": sent.keys.split()[0]}),
        "unique key": (QUERY_MESSAGE, {**by_key, "key": sent.unique_key, "_UNIQUE_KEY_QUERY": "true"}),
        "tag": (QUERY_MESSAGE, {**by_key, "key": sent.tag, "indexType": "T"}),
        "pull": pull(sent.topic, sent.queue_id, sent.queue_offset),
    }


def difference(sent, record) -> str | None:
    if record is None:
        return "no intact record"
    properties = record.properties
    expected = {
        "topic": (sent.topic, record.topic),
        "queue": (sent.queue_id, record.queue_id),
        "queue offset": (sent.queue_offset, record.queue_offset),
        "physical offset": (sent.physical_offset, record.physical_offset),
        "body": (sent.body, zlib.decompress(record.body) if record.sys_flag & IS_COMPRESSED else record.body),
        "keys": (sent.keys, properties.get("KEYS")),
        "tag": (sent.tag, properties.get("TAGS")),
        "unique key": (sent.unique_key, properties.get("UNIQ_KEY")),
    }
    differ = (f"{name}: {want!r}, found {found!r}" for name, (want, found) in expected.items() if want != found)
    return next(differ, None)


class Worker:
    def __init__(self, address) -> None:
        self.asker = Asker(address)
        self.problems: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def __enter__(self) -> "Worker":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self.asker.close()

    def work(self) -> None:
        """Until `is_over`."""

    def _run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.problems.append(f"{type(self).__name__}: {error!r}")


class Comparer(Worker):
    """Asks in every way for every message sent, and compares what comes byte for byte and with what was sent."""

    def __init__(self, address, producer, has_expired) -> None:
        super().__init__(address)
        self._producer, self._has_expired = producer, has_expired
        self.compared = self.expired = 0
        self.checksums: dict[int, int] = {}

    def work(self) -> None:
        while True:
            try:
                sent = self._producer.take()
            except queue.Empty:
                if self.is_over:
                    return
                continue
            problem = self._compare(sent)
            if problem is None:
                self.compared += 1
            elif self._has_expired(sent.physical_offset):
                self.expired += 1
            else:
                self.problems.append(f"message {sent.number} at {sent.physical_offset}, {problem}")

    def _compare(self, sent) -> str | None:
        asked = ways_to(sent)
        answer = self._until_found(sent, *asked.pop("offset"))
        record = read_record(answer.body, 0, sent.physical_offset)
        problem = f"code {answer.code}: {answer.header.get('remark')}" if answer.code else difference(sent, record)
        if problem is not None:
            return f"by offset: {problem}"
        for name, (code, fields) in asked.items():
            found = self._until_found(sent, code, fields)
            is_there = answer.body in found.body if name == "tag" else answer.body == found.body
            if found.code or not is_there:
                return f"by {name}: code {found.code}, {len(found.body)} bytes, {found.header.get('remark')}"
        self.checksums[sent.physical_offset] = zlib.crc32(answer.body)
        return None

    def _until_found(self, sent, code, fields):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            answer = self.asker.ask(code, fields)
            if not answer.code and (code != QUERY_MESSAGE or sent.unique_key.encode() in answer.body):
                return answer
            if time.monotonic() > deadline or self._has_expired(sent.physical_offset):
                return answer
            time.sleep(0.005)


@dataclass(frozen=True)
class Received:
    queue_offset: int
    unique_key: str
    physical_offset: int
    checksum: int


class Consumer(Worker):
    """Waits at the end of one queue in long polls, and tells what it `received`, in order."""

    def __init__(self, address, topic, queue_id) -> None:
        super().__init__(address)
        self._place = topic, queue_id
        self.received: list[Received] = []

    def work(self) -> None:
        following = 0
        while not self.is_over:
            answer = self.asker.ask(*pull(*self._place, following, 32, 1000))
            self.received += _received(answer.body)
            if answer.code == TOPIC_NOT_EXIST and not self.received:
                continue  # made a moment ago
            assert "extFields" in answer.header, answer.header
            following = int(answer.header["extFields"]["nextBeginOffset"])


def _received(body):
    position = 0
    while position < len(body):
        record = read_record(body, position)
        checksum = zlib.crc32(body[position : position + record.total_size])
        yield Received(record.queue_offset, record.properties["UNIQ_KEY"], record.physical_offset, checksum)
        position += record.total_size
