"""A store that an official broker writes, rolls over and expires while we serve it: every message, in every way, soon.

`make test` watches for some seconds, and lets the first files go itself as the broker does, which starts to clear away
a minute after its start; `make soak` watches the broker do it, for ROCKETLENS_LIVE_SECONDS (300).
"""

import contextlib
import os
import queue
import socket
import subprocess
import threading
import time
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from blocking_client import eventually
from interop.jars import SERVER_VERSION, compiled, jars
from interop.java_client import SMALL_JVM
from interop.official_broker import class_archive, official_pair
from interop.wire import FrameSplitter, ask, encode_request
from needed_tools import tool
from oracles import read_record, signed
from process import serving_process

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


SOURCE = Path(__file__).with_name("Producing.java")


@dataclass(frozen=True)
class Sent:
    """One message that the broker has taken; see `Producing.java` for what it holds."""

    number: int
    topic: str
    queue_id: int
    queue_offset: int
    unique_key: str
    physical_offset: int

    @classmethod
    def of(cls, line: str) -> "Sent":
        number, *rest = line.rstrip("\n").split("\t")
        if number == "failed":
            raise RuntimeError(rest[0])
        topic, queue_id, queue_offset, unique_key, offset_message_id = rest
        return cls(int(number), topic, int(queue_id), int(queue_offset), unique_key, int(offset_message_id[-16:], 16))

    @property
    def keys(self) -> str:
        return f"key{self.number} all"

    @property
    def tag(self) -> str:
        return f"tag{self.number // 8}"

    @property
    def body(self) -> bytes:
        unit = f"body {self.number} ".encode()
        size = 100 + self.number * 7919 % 6000
        return (unit * (size // len(unit) + 1))[:size]


class Producer:
    """The running producer; what it sent lies in `sent`, in order, and is handed out once by `take`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._new: queue.Queue[Sent] = queue.Queue()
        self.sent: list[Sent] = []
        self.failure: Exception | None = None
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def send_to(self, topic: str) -> None:
        self._process.stdin.write(f"{topic}\n")
        self._process.stdin.flush()

    def take(self) -> Sent:
        """The next message; `queue.Empty` after a second without one."""
        return self._new.get(timeout=1)

    def stop(self) -> None:
        self._process.stdin.close()
        self._process.wait(60)
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                sent = Sent.of(line)
            except Exception as error:
                self.failure = error
            else:
                self.sent.append(sent)
                self._new.put(sent)


@contextlib.contextmanager
def producing(name_server, work, per_second):
    home = work / "producing-home"
    home.mkdir()
    class_path = f"{jars(SERVER_VERSION)}/*{os.pathsep}{compiled(jars(SERVER_VERSION), SOURCE)}"
    command = [tool("java"), *SMALL_JVM, *class_archive(), f"-Duser.home={home}", "-cp", class_path]
    with (home / "stderr.log").open("wb") as log:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
        process = subprocess.Popen([*command, "Producing", name_server, str(per_second)], **pipes, cwd=home, text=True)
    try:
        producer = Producer(process)
        yield producer
        producer.stop()
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


pytestmark = pytest.mark.interop

SEGMENT, QUEUE_FILE = 128 * 1024, 2000
PROPERTIES = {
    "mappedFileSizeCommitLog": str(SEGMENT),
    "mappedFileSizeConsumeQueue": str(QUEUE_FILE),
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "enablePropertyFilter": "true",
    # At any hour, whatever is not being written: the first time a minute after the start, then every ten seconds.
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "fileReservedTime": "0",
    "cleanResourceInterval": "10000",
}
KEEPS_FILES = {"fileReservedTime": "72"}
"""Where the test lets files go itself, the broker does not: a busy machine may need more than that minute."""
MESSAGES_A_SECOND = 100
SOAK_SECONDS = int(os.environ.get("ROCKETLENS_LIVE_SECONDS", "300"))
MOST_SECONDS = 180
KEPT_SEGMENTS = 4
FIRST, LATER, SHORT_LIVED = "LiveFirst", "LiveLater", "LiveShort"
QUEUES = 4
"""Of a topic that a producer has the broker make."""
MORE_QUEUES = 7
UPDATE_AND_CREATE_TOPIC, DELETE_TOPIC_IN_BROKER, UPDATE_AND_CREATE_SUBSCRIPTION_GROUP = 17, 215, 200
GET_ALL_SUBSCRIPTION_GROUP_CONFIG, GET_ROUTEINFO_BY_TOPIC = 201, 105
PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED = 20, 21


class Live:
    """The store, who writes it, and who serves it."""

    def __init__(self, store, pair, producer, serving) -> None:
        self.store, self.pair, self.producer, self.serving = store, pair, producer, serving
        (endpoint,), (self.worker,) = serving.endpoints, serving.workers
        self.server = endpoint.host, endpoint.port
        self.sent_before = len(producer.sent)

    def has_expired(self, physical_offset: int) -> bool:
        base = physical_offset - physical_offset % SEGMENT
        return not (self.store / "commitlog" / f"{base:020d}").exists()

    def has_seen_all(self) -> bool:
        """Whether files went, and the broker took messages into the last of the queues that were added."""
        sent = self.producer.sent
        return self.has_expired(sent[0].physical_offset) and any(
            (each.topic, each.queue_id) == (FIRST, MORE_QUEUES - 1) for each in list(sent)
        )

    @property
    def segments(self):
        """Those that were written to."""
        return sorted(path for path in (self.store / "commitlog").iterdir() if has_records(path))

    def let_go(self, read: int) -> None:
        """As the broker does: from the front, then what speaks of nothing else, never a file that it writes."""
        segments = self.segments
        sent = self.producer.sent
        limit = sent[read].physical_offset if read < len(sent) else sent[-1].physical_offset
        gone = [path for path in segments[:-KEPT_SEGMENTS] if int(path.name) + SEGMENT <= limit]
        for path in gone:
            path.unlink()
        minimum = int(segments[len(gone)].name)
        queues = (self.store / "consumequeue").glob("*/*")
        for directory, position in [(self.store / "index", 24), *((each, QUEUE_FILE - 20) for each in queues)]:
            for path in sorted(directory.iterdir())[:-1]:
                if 0 < signed(path.read_bytes(), position, 8) < minimum:  # the last offset that it tells of
                    path.unlink()

    def change_configuration(self) -> None:
        """More queues for a topic, a group, a topic that comes and goes: our routes and lists follow."""
        broker, group = self.pair.broker.address, "CG_live"
        self._set_queues(FIRST, MORE_QUEUES)
        self._set_queues(SHORT_LIVED, 1)
        told = f'{{"groupName":"{group}","consumeEnable":true,"retryQueueNums":1}}'.encode()
        assert ask(broker, UPDATE_AND_CREATE_SUBSCRIPTION_GROUP, body=told).code == 0
        queues = f'"writeQueueNums":{MORE_QUEUES}'.encode()
        eventually(lambda: queues in self._route(FIRST).body, "the new queues")
        eventually(lambda: self._route(SHORT_LIVED).code == 0, "the new topic")
        eventually(lambda: group.encode() in ask(self.server, GET_ALL_SUBSCRIPTION_GROUP_CONFIG).body, "the new group")
        assert ask(broker, DELETE_TOPIC_IN_BROKER, {"topic": SHORT_LIVED}).code == 0
        eventually(lambda: self._route(SHORT_LIVED).code == TOPIC_NOT_EXIST, "the end of the topic")

    def _set_queues(self, topic: str, count: int) -> None:
        numbers = {"readQueueNums": str(count), "writeQueueNums": str(count), "perm": "6"}
        fields = {**numbers, "topic": topic, "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG"}
        fields |= {"topicSysFlag": "0", "order": "false"}
        answer = ask(self.pair.broker.address, UPDATE_AND_CREATE_TOPIC, fields)
        assert answer.code == 0, answer.header

    def _route(self, topic):
        return ask(self.server, GET_ROUTEINFO_BY_TOPIC, {"topic": topic})


def has_records(segment) -> bool:
    """Whether a segment was written to."""
    with segment.open("rb") as file:
        return any(file.read(8))


def is_long(seconds: int) -> bool:
    """Whether the broker itself is to clear files away meanwhile."""
    return seconds > 60


@pytest.fixture
def live(tmp_path, seconds):
    store = tmp_path / "store"
    properties = PROPERTIES if is_long(seconds) else PROPERTIES | KEEPS_FILES
    with (
        official_pair(store, tmp_path, properties=properties) as pair,
        producing(pair.name_server.text_address, tmp_path, MESSAGES_A_SECOND) as producer,
    ):
        producer.send_to(FIRST)
        eventually(lambda: len(producer.sent) > QUEUES * 2, "the first messages")
        with serving_process(store, tmp_path, "--slow-query", "0") as serving:
            yield Live(store, pair, producer, serving)
            assert serving.stop() == 0


@pytest.mark.parametrize("seconds", [3, pytest.param(SOAK_SECONDS, marks=pytest.mark.soak)])
def test_every_message_is_answered_in_every_way_while_files_come_and_go(live: Live, seconds: int) -> None:
    comparer = Comparer(live.server, live.producer, live.has_expired)
    consumers = [Consumer(live.server, FIRST, queue_id) for queue_id in range(QUEUES)]
    with contextlib.ExitStack() as stack:
        for worker in (comparer, *consumers):
            stack.enter_context(worker)
        changing = threading.Timer(seconds / 2, live.change_configuration)
        stack.enter_context(started(changing))
        watch(live, comparer, seconds)
        live.producer.stop()
    assert live.producer.failure is None
    problems = [problem for worker in (comparer, *consumers) for problem in worker.problems]
    assert problems == []
    check_what_came(live, comparer, consumers)
    check_what_is_left(live)
    check_what_was_said(live)


def watch(live: Live, comparer: Comparer, seconds: int) -> None:
    """Let it all go on, with a new topic after a quarter of the time; on a busy machine until all of it was seen."""
    begun = time.monotonic()
    is_later = False
    while time.monotonic() < begun + seconds or not (live.has_seen_all() or time.monotonic() > begun + MOST_SECONDS):
        if not is_later and time.monotonic() > begun + seconds / 4:
            live.producer.send_to(LATER)
            is_later = True
        if not is_long(seconds):
            live.let_go(comparer.compared + comparer.expired)
        time.sleep(0.5)


@contextlib.contextmanager
def started(timer):
    timer.start()
    yield
    timer.join()


def check_what_came(live: Live, comparer: Comparer, consumers: list[Consumer]) -> None:
    """All messages that the broker took were compared or had expired; each waiting consumer got its queue in order."""
    sent = live.producer.sent
    assert comparer.compared + comparer.expired == len(sent)
    assert comparer.compared > (len(sent) - live.sent_before) // 2
    places = Counter((message.topic, message.queue_id) for message in sent)
    assert {topic for topic, _ in places} == {FIRST, LATER}
    assert max(queue_id for topic, queue_id in places if topic == FIRST) == MORE_QUEUES - 1
    for queue_id, consumer in enumerate(consumers):
        mine = [one for one in sent if (one.topic, one.queue_id) == (FIRST, queue_id)]
        expected = [(one.queue_offset, one.unique_key) for one in mine]
        received = [(one.queue_offset, one.unique_key) for one in consumer.received]
        assert [offset for offset, _ in expected] == list(range(len(expected)))
        assert received == expected[-len(received) :]
        assert len(received) > len(expected) * 3 // 4
        known = [one for one in consumer.received if one.physical_offset in comparer.checksums]
        assert len(known) > len(received) // 2
        assert [one for one in known if one.checksum != comparer.checksums[one.physical_offset]] == []


def check_what_is_left(live: Live) -> None:
    """What expired is answered for as such, what did not as ever."""
    gone = [sent for sent in live.producer.sent if live.has_expired(sent.physical_offset)]
    assert gone, "nothing has expired"
    first = gone[0]
    for name, (code, fields) in ways_to(first).items():
        eventually(lambda code=code, fields=fields: ask(live.server, code, fields).code != 0, f"the end of {name}")
    moved = ask(live.server, *pull(first.topic, first.queue_id, first.queue_offset))
    assert moved.code in (PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED), moved.header
    start = int(moved.header["extFields"]["nextBeginOffset"])
    assert ask(live.server, PULL_MESSAGE, pull(first.topic, first.queue_id, start)[1]).code == 0


def check_what_was_said(live: Live) -> None:
    """Nothing went wrong on the way, no worker had to be replaced, and nothing was taken for damage."""
    assert live.serving.workers == [live.worker]
    said = live.serving.errors.read_text().splitlines()
    assert [line for line in said if " INFO " not in line] == []
