"""A store that an official broker writes, rolls over and expires while we serve it: every message, in every way, soon.

`make test` watches for some seconds, and lets the first segments go itself as the broker does, which starts to clear
away a minute after its start; `make soak` watches the broker do it, for ROCKETLENS_LIVE_SECONDS (180).
"""

import contextlib
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.live_readers import PULL_MESSAGE, Comparer, Consumer, Stopwatch, has_records, pull, ways_to
from interop.official_broker import OfficialPair, official_pair
from interop.producing import Producer, producing
from interop.rocketlens_process import rocketlens_serving
from interop.stages import wait_until
from interop.wire import ask

pytestmark = pytest.mark.interop

SEGMENT = 512 * 1024
PROPERTIES = {
    "mappedFileSizeCommitLog": str(SEGMENT),
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "enablePropertyFilter": "true",
    # At any hour, whatever is not being written: the first time a minute after the start, then every ten seconds.
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "fileReservedTime": "0",
    "cleanResourceInterval": "10000",
}
MESSAGES_A_SECOND = 200
SOAK_SECONDS = int(os.environ.get("ROCKETLENS_LIVE_SECONDS", "180"))
KEPT_SEGMENTS = 6
FIRST, LATER = "LiveFirst", "LiveLater"
QUEUES = 4
"""Of a topic that a producer has the broker make."""
MORE_QUEUES = 7
UPDATE_AND_CREATE_TOPIC, UPDATE_AND_CREATE_SUBSCRIPTION_GROUP = 17, 200
GET_ALL_SUBSCRIPTION_GROUP_CONFIG, GET_ROUTEINFO_BY_TOPIC = 201, 105

Address = tuple[str, int]


class Footprint:
    """Files of the store that the server maps and has open, looked at again and again."""

    def __init__(self, address: Address, store: Path) -> None:
        self._process, self._store = process_of(address), store
        self.maps: list[int] = []
        self.descriptors: list[int] = []
        self.private_mb: list[float] = []

    def look(self) -> None:
        self.maps.append(len(self._mapped()))
        self.descriptors.append(len(os.listdir(self._process / "fd")))
        status = (self._process / "status").read_text()
        self.private_mb.append(int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0]) / 1000)

    def holds_what_is_gone(self) -> list[str]:
        """Mapped files that are no more."""
        return [path for path in self._mapped() if not Path(path).exists()]

    def _mapped(self) -> list[str]:
        lines = (self._process / "maps").read_text().splitlines()
        return [line.split(maxsplit=5)[5] for line in lines if str(self._store) in line]


def process_of(address: Address) -> Path:
    """/proc of the process that listens on a port of 127.0.0.1."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    (inode,) = [line[9] for line in lines if line[3] == "0A" and line[1] == f"0100007F:{address[1]:04X}"]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"socket:[{inode}]" in {os.readlink(path) for path in (process / "fd").iterdir()}:
                return process
    raise AssertionError(f"nobody listens on {address}")


class Live:
    """The store, who writes it, and who serves it."""

    def __init__(self, store: Path, pair: OfficialPair, producer: Producer, server: Address) -> None:
        self.store, self.pair, self.producer, self.server = store, pair, producer, server
        self.footprint = Footprint(server, store)

    def has_expired(self, physical_offset: int) -> bool:
        base = physical_offset - physical_offset % SEGMENT
        return not (self.store / "commitlog" / f"{base:020d}").exists()

    def let_go_of_segments(self) -> None:
        """As the broker does: from the front, never what it writes."""
        segments = sorted(path for path in (self.store / "commitlog").iterdir() if has_records(path))
        for path in segments[:-KEPT_SEGMENTS]:
            path.unlink()

    def change_configuration(self) -> None:
        """More queues for a topic, and a group: our routes and lists have them too."""
        broker, group = self.pair.broker.address, "CG_live"
        numbers = {"readQueueNums": str(MORE_QUEUES), "writeQueueNums": str(MORE_QUEUES), "perm": "6"}
        fields = {**numbers, "topic": FIRST, "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG"}
        answer = ask(broker, UPDATE_AND_CREATE_TOPIC, {**fields, "topicSysFlag": "0", "order": "false"})
        assert answer.code == 0, answer.header
        told = f'{{"groupName":"{group}","consumeEnable":true,"retryQueueNums":1}}'.encode()
        assert ask(broker, UPDATE_AND_CREATE_SUBSCRIPTION_GROUP, body=told).code == 0
        route = f'"writeQueueNums":{MORE_QUEUES}'.encode()
        wait_until(lambda: route in ask(self.server, GET_ROUTEINFO_BY_TOPIC, {"topic": FIRST}).body, "the new queues")
        groups = lambda: ask(self.server, GET_ALL_SUBSCRIPTION_GROUP_CONFIG).body  # noqa: E731 - asked again and again
        wait_until(lambda: group.encode() in groups(), "the new group")


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    store = tmp_path / "store"
    with (
        official_pair(store, tmp_path, properties=PROPERTIES) as pair,
        producing(pair.name_server.text_address, tmp_path, MESSAGES_A_SECOND) as producer,
    ):
        producer.send_to(FIRST)
        wait_until(lambda: len(producer.sent) > QUEUES * 2, "the first messages")
        with rocketlens_serving(store, tmp_path, "--workers", "0") as server:
            yield Live(store, pair, producer, server)


@pytest.mark.parametrize("seconds", [12, pytest.param(SOAK_SECONDS, marks=pytest.mark.soak)])
def test_every_message_is_answered_in_every_way_while_files_come_and_go(
    live: Live, tmp_path: Path, seconds: int
) -> None:
    comparer = Comparer(live.server, live.producer, live.has_expired)
    stopwatch = Stopwatch(live.server, live.store / "commitlog", SEGMENT)
    consumers = [Consumer(live.server, FIRST, queue_id) for queue_id in range(QUEUES)]
    is_long = seconds > 60
    with contextlib.ExitStack() as stack:
        for worker in (comparer, stopwatch, *consumers):
            stack.enter_context(worker)
        changing = threading.Timer(seconds / 2, live.change_configuration)
        stack.enter_context(started(changing))
        begun = time.monotonic()
        is_later = False
        while time.monotonic() < begun + seconds:
            if not is_later and time.monotonic() > begun + seconds / 4:
                live.producer.send_to(LATER)
                is_later = True
            if not is_long:
                live.let_go_of_segments()
            live.footprint.look()
            time.sleep(0.5)
        live.producer.stop()
    assert live.producer.failure is None
    problems = [problem for worker in (comparer, stopwatch, *consumers) for problem in worker.problems]
    assert problems == []
    tell(live, comparer, stopwatch)
    check_what_came(live, comparer, consumers)
    check_what_is_left(live, tmp_path)
    check_footprint(live, is_long=is_long)
    # The aim is 0.1 s for each; a test that runs beside others judges the one in the middle.
    assert {name: round(middle(times), 3) for name, times in stopwatch.measured.items() if middle(times) > 0.1} == {}


@contextlib.contextmanager
def started(timer: threading.Timer) -> Iterator[None]:
    timer.start()
    yield
    timer.join()


def middle(times: list[float]) -> float:
    return sorted(times)[len(times) // 2]


def tell(live: Live, comparer: Comparer, stopwatch: Stopwatch) -> None:
    segments = (max(sent.physical_offset for sent in live.producer.sent) // SEGMENT) + 1
    print(f"{len(live.producer.sent)} messages in {segments} segments, of which {len(segments_of(live))} are left; ")
    print(f"{comparer.compared} compared in five ways, {comparer.expired} had expired before that")
    for name, times in stopwatch.measured.items():
        ranked = sorted(times)
        picked = (1000 * ranked[len(ranked) * share // 100] for share in (50, 90, 99))
        told = ", ".join(f"{value:.0f}" for value in picked)
        print(f"by {name}: {len(times)} times, p50, p90, p99, most: {told}, {1000 * ranked[-1]:.0f} ms")
    footprint = live.footprint
    for what, values in (("maps", footprint.maps), ("descriptors", footprint.descriptors)):
        print(f"{what} of the server: {values[0]} at first, {max(values)} at most, {values[-1]} at last")
    print(f"its private memory: {footprint.private_mb[0]:.0f} MB, {footprint.private_mb[-1]:.0f} MB at last")


def segments_of(live: Live) -> list[Path]:
    return sorted(path for path in (live.store / "commitlog").iterdir() if has_records(path))


def check_what_came(live: Live, comparer: Comparer, consumers: list[Consumer]) -> None:
    """All that the broker took was compared, or had expired; and whoever waited at a queue got all of it, in order."""
    sent = live.producer.sent
    assert comparer.compared + comparer.expired == len(sent)
    assert comparer.compared > len(sent) // 2
    places = Counter((message.topic, message.queue_id) for message in sent)
    assert {topic for topic, _ in places} == {FIRST, LATER}
    assert max(queue_id for topic, queue_id in places if topic == FIRST) == MORE_QUEUES - 1
    for queue_id, consumer in enumerate(consumers):
        expected = [
            (one.queue_offset, one.unique_key) for one in sent if (one.topic, one.queue_id) == (FIRST, queue_id)
        ]
        assert [offset for offset, _ in expected] == list(range(len(expected)))
        assert consumer.received == expected[-len(consumer.received) :]
        assert len(consumer.received) > len(expected) * 3 // 4


def check_what_is_left(live: Live, tmp_path: Path) -> None:
    """What expired is answered for as such, what did not as ever, and nothing went wrong on the way."""
    gone = [sent for sent in live.producer.sent if live.has_expired(sent.physical_offset)]
    assert gone, "nothing has expired"
    first = gone[0]
    for name, (code, fields) in ways_to(first).items():
        wait_until(lambda code=code, fields=fields: ask(live.server, code, fields).code != 0, f"the end of {name}")
    moved = ask(live.server, *pull(first.topic, first.queue_id, first.queue_offset))
    assert moved.code in (20, 21), moved.header
    start = int(moved.header["extFields"]["nextBeginOffset"])
    assert ask(live.server, PULL_MESSAGE, pull(first.topic, first.queue_id, start)[1]).code == 0
    log = (tmp_path / "rocketlens.log").read_text()
    assert "Traceback" not in log
    assert "cannot be followed" not in log


def check_footprint(live: Live, *, is_long: bool) -> None:
    """Nothing is held of files that are gone, and no more than there are files."""
    footprint = live.footprint
    wait_until(lambda: not footprint.holds_what_is_gone(), "what is gone to be let go", 20)
    files = sum(path.is_file() for path in live.store.rglob("*"))
    footprint.look()
    assert footprint.maps[-1] <= files
    assert footprint.descriptors[-1] <= 2 * files + 60, "a map of Python's has a descriptor of its own"
    if is_long:
        half = len(footprint.maps) // 2
        assert max(footprint.maps[half:]) < 1.5 * max(footprint.maps[:half]) + 20
        assert max(footprint.descriptors[half:]) < 1.5 * max(footprint.descriptors[:half]) + 40
