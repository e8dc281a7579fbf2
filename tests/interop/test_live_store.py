"""A store that an official broker writes, rolls over and expires while we serve it: every message, in every way, soon.

`make test` watches for some seconds, and lets the first files go itself as the broker does, which starts to clear away
a minute after its start; `make soak` watches the broker do it, for ROCKETLENS_LIVE_SECONDS (300).
"""

import contextlib
import os
import threading
import time
from collections import Counter

import pytest

from blocking_client import eventually
from interop.live_readers import PULL_MESSAGE, TOPIC_NOT_EXIST, Comparer, Consumer, pull, ways_to
from interop.official_broker import official_pair
from interop.producing import producing
from interop.wire import ask
from oracles import signed
from process import serving_process

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
        for directory, position in [(self.store / "index", 24), *((queue, QUEUE_FILE - 20) for queue in queues)]:
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
