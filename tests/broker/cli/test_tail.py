"""`rocketlens tail`: the newest messages, and those that come while a store grows."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from broker.endpoint import Endpoint
from broker_harness import service_of, serving_in_a_thread
from command_line import Outcome, rocketlens
from golden_store import G1
from growing_store import GrowingStore
from oracles import Record, read_log
from storage.store.message_store import MessageStore

DEADLINE_SECONDS = 60
COMING = 20
MOST_MILLISECONDS = 100
"""How late a message may be printed; of several the soonest is judged, for other processes may be in its way."""


@pytest.fixture(scope="module")
def server(g1_store: Path) -> Iterator[Endpoint]:
    with serving_in_a_thread(service_of(MessageStore.open(g1_store))) as endpoint:
        yield endpoint


@pytest.fixture(scope="module", params=["store", "server"])
def where(request: pytest.FixtureRequest, g1_store: Path, server: Endpoint) -> tuple[object, ...]:
    """The arguments that name the same store in two ways."""
    return (g1_store,) if request.param == "store" else ("--server", server)


@pytest.fixture(scope="module")
def stored(g1_store: Path) -> list[Record]:
    """The messages of TopicTest in the order of the log."""
    records = [record for record in read_log(g1_store / "commitlog") if record.topic == "TopicTest"]
    assert len(records) > 50
    return records


def tail(where: tuple[object, ...], *arguments: object) -> Outcome:
    return rocketlens("tail", *where, "--topic", "TopicTest", *arguments, "--json")


def offsets(outcome: Outcome) -> list[int]:
    assert outcome.code == 0, outcome.errors
    return [each["physicalOffset"] for each in outcome.messages]


@pytest.mark.parametrize("count", [1, 7, 40, 1000])
def test_the_newest_are_those_at_the_end_of_the_log(
    where: tuple[object, ...], stored: list[Record], count: int
) -> None:
    assert offsets(tail(where, "-n", count)) == [record.physical_offset for record in stored[-count:]]


def test_twenty_are_listed_unless_another_number_is_asked_for(where: tuple[object, ...], stored: list[Record]) -> None:
    assert offsets(tail(where)) == [record.physical_offset for record in stored[-20:]]


def test_a_tag_lists_what_a_recorded_consumer_got(where: tuple[object, ...]) -> None:
    lines = [line.split("\t") for line in (G1 / "consumed-tag.tsv").read_text().splitlines()]
    expected = {(int(line[2]), int(line[3])) for line in lines if line[0] == "MSG"}
    found = tail(where, "--tag", "TagA || Aa").messages
    assert len(expected) > 3
    assert {(each["queueId"], each["queueOffset"]) for each in found} == expected
    assert len(tail(where, "--tag", "TagA || Aa", "-n", 2).messages) == 2


def test_an_expression_lists_what_a_recorded_consumer_got(where: tuple[object, ...]) -> None:
    lines = [line.split("\t") for line in (G1 / "consumed-sql.tsv").read_text().splitlines()]
    expected = {(int(line[2]), int(line[3])) for line in lines if line[0] == "MSG"}
    found = tail(where, "--sql", "a > 10 AND a <= 30 AND region = 'hz'").messages
    assert len(expected) > 3
    assert {(each["queueId"], each["queueOffset"]) for each in found} == expected


def test_msgpack_has_bodies_as_they_are(where: tuple[object, ...], stored: list[Record]) -> None:
    unpacker = msgpack.Unpacker()
    unpacker.feed(rocketlens("tail", *where, "--topic", "TopicTest", "-n", 5, "--format", "msgpack").output)
    assert [each["body"] for each in unpacker] == [record.body for record in stored[-5:]]


def test_the_table_has_one_head(where: tuple[object, ...]) -> None:
    lines = rocketlens("tail", *where, "--topic", "TopicTest", "-n", 3).text.splitlines()
    assert [line.split()[-1] for line in lines] == ["BODY", "37", "38", "39"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--topic", "TopicTets"), "there is no topic TopicTets; did you mean TopicTest"),
        (("--topic", "TopicTest", "--tag", "None"), "no message of topic TopicTest passes the filter"),
        (("--topic", "TBW102"), "no message of topic TBW102 is there"),
    ],
)
def test_nothing_to_list_is_code_1(where: tuple[object, ...], arguments: tuple[str, ...], says: str) -> None:
    outcome = rocketlens("tail", *where, *arguments)
    assert (outcome.code, outcome.output) == (1, b"")
    assert says in outcome.errors


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("STORE",), "Missing option '--topic'"),
        (("STORE", "--topic", "TopicTest", "--tag", "a", "--sql", "a = 1"), "tag and sql exclude each other"),
        (("STORE", "--topic", "TopicTest", "--sql", "a >"), "expected a property or a value"),
        (("STORE", "--topic", "TopicTest", "-n", "-1"), "-1 is not in the range"),
        (("--topic", "TopicTest"), "expected either STORE or --server"),
    ],
)
def test_wrong_usage_is_code_2(g1_store: Path, arguments: tuple[str, ...], says: str) -> None:
    outcome = rocketlens("tail", *(each.replace("STORE", str(g1_store)) for each in arguments))
    assert (outcome.code, outcome.output) == (2, b"")
    assert says in outcome.errors


class Follower:
    """A running `rocketlens tail --follow --json`."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "rocketlens", "tail", *map(str, arguments), "--follow", "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.deadline = threading.Timer(DEADLINE_SECONDS, self.process.kill)
        self.deadline.start()

    def next(self) -> dict[str, object]:
        """The next message that it prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr and self.process.stderr.read()
        found: dict[str, object] = json.loads(line)
        return found

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        self.process.communicate()
        self.deadline.cancel()
        return self.process.returncode


def follow_what_comes(growing: GrowingStore, follower: Follower) -> list[float]:
    """Write messages one by one; how many milliseconds after each was in the store it was printed."""
    late = []
    for number in range(1, COMING):
        written = growing.add(body=f"coming {number}".encode(), tags="x" if number % 2 else "y")
        growing.flush()
        began = time.monotonic()
        if number % 2:
            found = follower.next()
            late.append((time.monotonic() - began) * 1000)
            assert (found["physicalOffset"], found["body"]) == (written.physical_offset, f"coming {number}")
    return late


@pytest.mark.parametrize("by", ["store", "server"])
def test_what_comes_is_printed_in_order_and_soon(tmp_path: Path, by: str) -> None:
    growing = GrowingStore(tmp_path / "store", segment_size=64 * 1024)
    for tag in ("x", "y", "x"):
        growing.add(body=b"before", tags=tag)
    growing.flush()
    served = service_of(MessageStore.open(growing.root)) if by == "server" else None
    if served is None:
        late = judged(growing, growing.root)
    else:
        with serving_in_a_thread(served) as endpoint:
            late = judged(growing, "--server", endpoint)
    assert len(late) == COMING // 2
    assert min(late) <= MOST_MILLISECONDS, late


def judged(growing: GrowingStore, *where: object) -> list[float]:
    follower = Follower(*where, "--topic", "T", "--tag", "x", "-n", 1)
    try:
        assert follower.next()["body"] == "before"
        return follow_what_comes(growing, follower)
    finally:
        assert follower.stop() == 130
