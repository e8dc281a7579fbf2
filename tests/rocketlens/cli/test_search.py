"""`rocketlens search` and `tail`: what they list, and what a consumer with a filter gets and why not the rest."""

import contextlib
import io
import json
import signal
import subprocess
import sys
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import search_oracle
from broker.service import following_threads
from broker_harness import service_of, serving_in_a_thread
from command_line import rocketlens
from examples import examples
from growing_store import GrowingStore
from oracles import read_log
from rocketlens import connect, following, remote_following
from rocketlens import open as opened
from rocketlens.cli.search_progress import SearchProgress
from storage.search.criteria import Criteria, SearchPlace
from storage.search.progress import ProgressReport
from storage.store.message_store import MessageStore
from store_writer import START_TIMESTAMP, StoreWriter


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("search") / "store"
    writer = StoreWriter(root)
    for number in range(20):
        body = json.dumps({"order": {"id": number, "name": f"n{number}"}}).encode() + b" " * number
        named = {"keys": f"order-{number}", "tags": "AB"[number % 2], "properties": {"n": str(number)}}
        writer.append("TU"[number % 2], body, **named, born_host=(f"10.0.0.{number}", 80))
    writer.close()
    return root


def offsets(root, *arguments) -> list[int]:
    return [message["physicalOffset"] for message in rocketlens("search", root, *arguments, "--json").messages]


@pytest.mark.parametrize(
    ("arguments", "criteria"),
    [
        ((), Criteria()),
        (("--topic", "T"), Criteria(topic="T")),
        (("--contains", "order-1", "--in", "properties"), Criteria(contains=b"order-1", place=SearchPlace.PROPERTIES)),
        (("--regex", r"n\d\d"), Criteria(regex=r"n\d\d")),
        (("--json-path", "$.order.id=7"), Criteria(json_path="$.order.id=7")),
        (("--json-path", "$.order.name=n7"), Criteria(json_path="$.order.name=n7")),
        (("--where", "n BETWEEN 3 AND 5"), Criteria(where="n BETWEEN 3 AND 5")),
        (("--tag", "A", "--topic", "T"), Criteria(tag="A", topic="T")),
        (("--key", "order-2", "--topic", "T"), Criteria(key="order-2", topic="T")),
        (("--key-prefix", "order-1"), Criteria(key_prefix="order-1")),
        (("--born-host", "10.0.0.4/30"), Criteria(born_host="10.0.0.4/30")),
        (("--size", "40..45"), Criteria(minimum_size=40, maximum_size=45)),
        (
            ("--since", START_TIMESTAMP + 3, "--until", START_TIMESTAMP + 5),
            Criteria(begin_timestamp=START_TIMESTAMP + 3, end_timestamp=START_TIMESTAMP + 5),
        ),
    ],
    ids=str,
)
def test_each_option_finds_what_a_loop_finds(root, arguments, criteria) -> None:
    expected = [offset for offset, _ in search_oracle.hits(read_log(root / "commitlog"), criteria)]
    assert expected
    assert offsets(root, *arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--regex", "("), "is no regular expression"),
        (("--where", "a >"), "expected a property or a value"),
        (("--cursor", "xyz"), "cursor 'xyz' is not valid"),
        (("--topic", "\udcff"), "topic: '\\udcff' is no text, its bytes are no UTF-8"),
        (("--since", "5", "--until", "4"), "--since 5 is after --until 4"),
    ],
)
def test_what_cannot_be_is_wrong_usage(root, arguments, reason) -> None:
    outcome = rocketlens("search", root, *arguments)
    assert outcome.code == 2
    assert reason in outcome.errors


def test_a_stopped_search_is_code_130_and_tells_where_to_go_on(root, monkeypatch) -> None:
    asked = []

    @contextlib.contextmanager
    def after_a_while():
        yield lambda: len(asked) > 6 or bool(asked.append(None))

    whole = offsets(root)
    monkeypatch.setattr("rocketlens.cli.search.stopping", after_a_while)
    outcome = rocketlens("search", root, "--json")
    assert outcome.code == 130
    cursor = outcome.errors.partition("--cursor ")[2].split()[0]
    monkeypatch.undo()
    first = [message["physicalOffset"] for message in outcome.messages]
    assert 0 < len(first) < len(whole)
    assert first + offsets(root, "--cursor", cursor) == whole


def test_messages_are_written_aside_of_the_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with SearchProgress() as progress:
        progress.show(ProgressReport(10**9, 2 * 10**9, 3, 1.0))
        with progress.aside():
            terminal.write("a message\n")
        progress.show(ProgressReport(2 * 10**9, 2 * 10**9, 3, 2.0))
    assert "searched 1 of 2 GB (50 %), 3 found, 1 GB/s, 0:00:01 left" in terminal.getvalue()
    assert "a message\n" in terminal.getvalue()


def test_a_whole_log_is_read_if_that_is_asked_for(g1_store) -> None:
    asked = ("search", g1_store, "--topic", "TopicTest", "--key", "hotkey", "--json")
    by_index, by_log = rocketlens(*asked), rocketlens(*asked, "--exhaustive")
    assert by_log.output == by_index.output
    assert len(by_log.messages) == 40
    assert "40 records were found by the index" in by_index.errors
    assert "by the index" not in by_log.errors


def run(store, *arguments, topic="TopicTest"):
    return rocketlens("search", store, topic, *arguments)


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    writer = StoreWriter(tmp_path_factory.mktemp("odd") / "store")
    for tag, number in (("Aa", "7"), ("BB", "5.5"), (None, "3"), ("Aa ", None)):
        writer.append("T", b"x", tags=tag, properties={} if number is None else {"a": number})
    writer.append("T", b"elsewhere", queue_id=1, tags="Aa", properties={"a": "9"})
    writer.close()
    return writer.root


def test_each_message_is_explained_by_its_tag_and_by_its_properties(odd) -> None:
    outcome = run(odd, "--tag", "Aa || C", "--explain", "--json", topic="T")
    assert [(message["delivered"], message["reason"]) for message in outcome.messages] == [
        (True, "the tag 'Aa' is one of 'Aa', 'C'"),
        (False, "the tag 'BB' is none of 'Aa', 'C'"),
        (False, "the message has no tag, wanted: 'Aa', 'C'"),
        (False, "the tag 'Aa ' is none of 'Aa', 'C'"),
        (True, "the tag 'Aa' is one of 'Aa', 'C'"),
    ]
    assert outcome.code == 0
    outcome = run(odd, "--where", "a > 5 AND TAGS = 'Aa'", "--explain", "--json", topic="T")
    reasons = [message["reason"] for message in outcome.messages]
    assert [message["delivered"] for message in outcome.messages] == [True, False, False, False, True]
    assert reasons[0] == "the expression is true: a > 5 is true (a is '7'); TAGS = 'Aa' is true (TAGS is 'Aa')"
    assert "a > 5 is not to be evaluated: " in reasons[1]
    assert "(a is '5.5')" in reasons[1]
    assert "TAGS = 'Aa' is unknown (TAGS is missing)" in reasons[2]
    assert "a > 5 is unknown (a is missing)" in reasons[3]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--explain",), "--explain needs a TOPIC, and --tag or --where"),
        (("--tag", "||"), "no tag between the separators"),
        (("--explain", "--tag", "TagA", "--mask", "tags"), "tags"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments, words, g1_store) -> None:
    outcome = run(g1_store, *arguments)
    assert outcome.code == 2
    assert words in outcome.errors


@settings(max_examples=examples(2), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.sampled_from(["a", "us", "region", "TAGS"]), min_size=1))
def test_where_nothing_passes_properties_that_no_message_has_are_named(odd, names) -> None:
    """By all commands that take an expression, of a directory and of a server, and by no other word than these."""
    where = " AND ".join(f"{name} = 'nowhere'" for name in sorted(names))
    missing = sorted(names - {"a", "TAGS"})
    said = f"no message of topic T has {'property' if len(missing) == 1 else 'properties'} {', '.join(missing)}\n"
    with serving_in_a_thread(service_of(MessageStore.open(odd))) as server:
        outcomes = [run(odd, *more, "--where", where, topic="T") for more in ((), ("--explain",))]
        for name, source in (("search", server), ("tail", odd), ("tail", server)):
            outcomes.append(rocketlens(name, source, "T", "--where", where))
    for outcome in outcomes:
        assert outcome.code == 1
        assert (said in outcome.errors) == bool(missing)
        assert ("has propert" in outcome.errors) == bool(missing)
    reason = opened(odd).pull("T", 0, 0, sql=where).reason
    assert ("none of the first 4 messages there has propert" in reason) == bool(missing)


DEADLINE_SECONDS = 60
COMING = 20


@pytest.fixture(scope="module")
def stored(g1_store):
    records = [record for record in read_log(g1_store / "commitlog") if record.topic == "TopicTest"]
    assert len(records) > 50
    return records


def tail(where, *arguments):
    return rocketlens("tail", *where, "--topic", "TopicTest", *arguments, "--json")


def tailed(outcome) -> list[int]:
    assert outcome.code == 0, outcome.errors
    return [each["physicalOffset"] for each in outcome.messages]


@pytest.mark.parametrize("count", [7, 1000])
def test_the_newest_are_those_at_the_end_of_the_log(where, stored, count) -> None:
    assert tailed(tail(where, "-n", count)) == [record.physical_offset for record in stored[-count:]]


def test_times_narrow_what_is_listed(where, stored) -> None:
    times = sorted(record.store_timestamp for record in stored)
    first, last = times[len(times) // 3], times[len(times) // 2]
    expected = [record.physical_offset for record in stored if first <= record.store_timestamp <= last]
    assert tailed(tail(where, "-n", 1000, "--since", first, "--until", last)) == expected
    assert tailed(tail(where, "-n", 2, "--until", last)) == expected[-2:]
    outcome = tail(where, "--since", times[-1] + 1)
    said = "no message of topic TopicTest is there and was stored in this time"
    assert (outcome.code, said in outcome.errors) == (1, True)
    assert tail(where, "--follow", "--until", last).code == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("STORE",), "expected SOURCE and TOPIC"),
        (("STORE", "--topic", "TopicTest", "--tag", "a", "--where", "a = 1"), "tag and sql exclude each other"),
        (("STORE", "--topic", "TopicTest", "--where", "a >"), "expected a property or a value"),
        (("--topic", "TopicTest"), "expected one SOURCE"),
    ],
)
def test_wrong_usage_is_code_2(g1_store, arguments, says) -> None:
    outcome = rocketlens("tail", *(each.replace("STORE", str(g1_store)) for each in arguments))
    assert (outcome.code, outcome.output) == (2, b"")
    assert says in outcome.errors


class Follower:
    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "rocketlens", "tail", *map(str, arguments), "--follow", "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.deadline = threading.Timer(DEADLINE_SECONDS, self.process.kill)
        self.deadline.start()

    def next(self) -> dict[str, object]:
        line = self.process.stdout.readline()
        assert line, self.process.stderr and self.process.stderr.read()
        found: dict[str, object] = json.loads(line)
        return found

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        self.process.communicate()
        self.deadline.cancel()
        return self.process.returncode


@pytest.fixture
def growing(tmp_path) -> GrowingStore:
    growing = GrowingStore(tmp_path / "store", segment_size=64 * 1024)
    for tag in ("x", "y", "x"):
        growing.add(body=b"before", tags=tag)
    growing.flush()
    return growing


@pytest.mark.parametrize("by", ["store", pytest.param("server", marks=pytest.mark.soak)])
def test_what_comes_is_printed_at_once_and_in_order(growing: GrowingStore, by: str) -> None:
    with contextlib.ExitStack() as stack:
        where: tuple[object, ...] = (growing.root,)
        if by == "server":
            served = service_of(MessageStore.open(growing.root))
            where = ("--server", stack.enter_context(serving_in_a_thread(served)))
        follower = Follower(*where, "--topic", "T", "--tag", "x", "-n", 1)
        try:
            assert follower.next()["body"] == "before"
            printed = 0
            for number in range(1, COMING):
                written = growing.add(body=f"coming {number}".encode(), tags="x" if number % 2 else "y")
                growing.flush()
                if number % 2:
                    found = follower.next()
                    assert (found["physicalOffset"], found["body"]) == (written.physical_offset, f"coming {number}")
                    printed += 1
            assert printed == COMING // 2
        finally:
            assert follower.stop() == 130


def test_what_comes_to_a_broker_is_found_by_a_pull_that_waits(growing, monkeypatch) -> None:
    """No pull comes back for another reason than a message: each is held longer than the test may take."""
    asked: list[int] = []
    ask = remote_following.RemoteFollowing._ask

    def ask_and_count(self, queue_id, *rest) -> None:
        asked.append(queue_id)
        ask(self, queue_id, *rest)

    assert following_threads.POLL_SECONDS <= following.POLL_SECONDS
    for module in (remote_following, following_threads):
        monkeypatch.setattr(module, "WATCH_SECONDS", 3600.0)
    monkeypatch.setattr(remote_following, "SUSPENDED_MILLISECONDS", DEADLINE_SECONDS * 1000)
    monkeypatch.setattr(remote_following.RemoteFollowing, "_ask", ask_and_count)
    served = service_of(MessageStore.open(growing.root))
    with serving_in_a_thread(served) as endpoint, connect(str(endpoint)) as remote:
        pieces = remote.follow("T", {0: 3}, tag="x")
        for number in range(COMING):
            growing.add(body=f"coming {number}".encode(), tags="x")
            growing.flush()
            assert [message.body for message in next(pieces)] == [f"coming {number}".encode()]
        del pieces  # which gives up the pull that waits
    assert asked.count(0) == COMING + 1
