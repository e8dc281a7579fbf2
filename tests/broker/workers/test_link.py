"""What crosses the link between two workers arrives as it was; a supervisor fills the places of dead workers."""

import asyncio
import contextlib
import json
import logging
import os
import resource
import signal
import struct
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asking import FakeConnection
from blocking_client import eventually
from broker.app import build_server
from broker.limits import Limits
from broker.metrics import metrics_rows as places
from broker.metrics.metrics_rows import MetricsRows
from broker.net.listeners import bind_listeners, close_listeners
from broker.server import _repeat
from broker.service import long_work
from broker.service.broker_service import BrokerService
from broker.service.consumers.registries import Registries
from broker.service.denials import Want
from broker.service.dispatcher import Dispatcher, Request
from broker.service.request_families import build_processors
from broker.workers.core_sharing import CoreSharing
from broker.workers.link import LONGEST_MESSAGE, Link, LinkKind, Unsendable, make_listening_socket, pack
from broker.workers.loop_watch import LoopWatch
from broker.workers.member import OWNED_CODES, CopiedRegistry, ForwardedCommits, WorkerMember
from broker.workers.owner import Owner
from broker.workers.supervisor import Supervisor
from broker_harness import LOOPBACK, connected, service_of, until
from heartbeats import consumer, heartbeat, subscription
from process import ROOT
from protocol.bodies import SubscriptionData, decode_json, encode_json
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Command, Response
from protocol.headers import EmptyRequestHeader
from still_clock import StillClock
from storage.files.waiting import finish
from storage.store.message_store import MessageStore
from strategies import texts

HEART_BEAT, MEMBERS = RequestCode.HEART_BEAT, RequestCode.GET_CONSUMER_LIST_BY_GROUP
GROUP, TOPIC = "Group", "TopicTest"


class Pair:
    def __init__(self, server, owner, member, client) -> None:
        self.server, self.owner, self.member, self.client = server, owner, member, client
        self.services = owner._service, server._service
        self.link = member._link

    def dispatch(self, command):
        (connection,) = self.server.connections
        return self.server._dispatcher.dispatch(command, connection)

    async def is_well(self) -> None:
        """The link and the connection are those from the beginning, and worker 0 answers an ordinary request."""
        asked = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
        answer = await self.client.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked)
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        assert self.member._link is self.link is not None
        assert not self.member._unanswered


@contextlib.asynccontextmanager
async def two_workers(store):
    opened = MessageStore.open(store)
    meeting = make_listening_socket()
    first = service_of(opened)
    owner = Owner(first, Dispatcher(build_processors(first), 1), meeting)
    copied = Registries.of(opened, first.options, CopiedRegistry)
    member = WorkerMember(copied, meeting.getsockname())
    registries = replace(copied, commits=ForwardedCommits(copied, member))
    second = BrokerService.of(opened, first.options, registries)
    listeners = [bind_listeners([LOOPBACK]) for _ in range(2)]
    parts = zip((first, second), listeners, (owner, member), strict=True)
    servers = [build_server(service, bound, colleagues=colleague) for service, bound, colleague in parts]
    try:
        for server in servers:
            await server.start()
        async with connected(servers[1].addresses[0]) as client:
            yield Pair(servers[1], owner, member, client)
    finally:
        for server in reversed(servers):
            await server.stop()
        for bound in listeners:
            close_listeners(bound)


def frame_of(header: str, body: bytes = b"") -> bytes:
    encoded = header.encode("utf-8", "surrogatepass")
    return struct.pack(">ii", 4 + len(encoded) + len(body), len(encoded)) + encoded + body


def test_what_cannot_be_packed_has_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (2**64, -(2**63) - 1, object(), {1, 2}):
        with pytest.raises(Unsendable, match="cannot be handed to another worker process"):
            pack(LinkKind.REPLY, value)
    monkeypatch.setattr("broker.workers.link.LONGEST_MESSAGE", 100)
    assert len(pack(LinkKind.PUSH, b"x" * 90)) <= 100 < LONGEST_MESSAGE
    with pytest.raises(Unsendable, match="106 bytes"):
        pack(LinkKind.PUSH, b"x" * 102)


async def test_what_cannot_cross_is_an_error_to_its_request_alone(g1_store) -> None:
    """Whatever lets such a request through, it is not told again when worker 0 is replaced."""

    async def later(response: Response) -> Response:
        return response

    async with two_workers(g1_store) as pair:
        for code in (HEART_BEAT, MEMBERS):
            refused = pair.dispatch(Command(code=code, language=2**70))
            assert isinstance(refused, Response)
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "cannot be handed to another worker process" in refused.remark
            await pair.is_well()
        assert not pair.member._heartbeats
        bad = [Response(body=None), Response(ext_fields={"offset": 2**70})]
        for response in (Response(remark="a file named \udcff"), *bad):
            for outcome in (lambda *_: response, lambda *_: later(response)):  # noqa: B023 - called at once
                pair.owner._dispatcher.forward([MEMBERS], outcome)
                received = await pair.client.ask(MEMBERS, {"consumerGroup": GROUP})
                good = (received.code, received.remark) == (0, "a file named ?")
                assert good or (response in bad and received.code == ResponseCode.SYSTEM_ERROR)
                await pair.is_well()


leaves = st.none() | st.booleans() | st.integers() | st.floats() | texts
leaves |= st.sampled_from([2**31, -(2**31) - 1, 2**63, 2**64, -(2**70), 2**70])
json_values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=5
)
FIELDS = ("consumerGroup", "topic", "queueId", "commitOffset", "group", "clientID", "isOrder", "bname", "ns")
known = {"code": st.sampled_from(sorted(OWNED_CODES)), "opaque": st.integers(1, 2**31 - 1)}
odd = dict.fromkeys(("language", "version", "remark", "serializeTypeCurrentRPC", "other"), json_values)
odd["extFields"] = st.dictionaries(st.sampled_from(FIELDS) | texts, json_values, max_size=6) | json_values
headers = st.fixed_dictionaries(known, optional=odd)
bodies = st.binary(max_size=40) | st.builds(
    lambda *members: heartbeat(members[0], consumer(members[1], subscription(TOPIC, members[2]), unitMode=members[3])),
    texts,
    texts,
    texts,
    json_values,
)


def test_no_header_and_no_body_harms_the_link(g1_store, caplog) -> None:
    """Each request is answered, whatever it says, and worker 0 still answers the next."""

    async def ask(pair, header, body) -> None:
        pair.client.writer.write(frame_of(json.dumps(header), body))
        answer = await pair.client.answer()
        # 0 where the header is no command and has texts that are none either.
        assert answer.opaque in (header["opaque"], 0)
        await pair.is_well()

    with asyncio.Runner() as runner:
        opened = two_workers(g1_store)
        pair = runner.run(opened.__aenter__())

        @given(headers, bodies)
        def check(header, body) -> None:
            runner.run(ask(pair, header, body))

        try:
            with caplog.at_level(logging.ERROR):
                check()
            assert not [record for record in caplog.records if record.name.startswith("broker.workers")]
        finally:
            runner.run(opened.__aexit__(None, None, None))


async def test_what_accounts_lacked_at_another_worker_is_counted_by_worker_0(g1_store) -> None:
    want = Want("reader-key", "SUB of topic orders", "topicPerms: - orders=SUB")
    async with two_workers(g1_store) as pair:
        first, second = pair.services
        second.denials.note(want, 2)
        await until(lambda: [(each.want, each.count) for each in first.denials.all()] == [(want, 2)])


def told(*subscriptions: dict[str, object]) -> bytes:
    return encode_json([decode_json(encode_json(one), SubscriptionData) for one in subscriptions])


def put(registry: CopiedRegistry, name: str, *subscriptions: dict[str, object]) -> None:
    fields = name, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", told(*subscriptions)
    registry.take(finish(registry.read(*fields)))


def test_whoever_remembers_what_a_group_chooses_by_can_tell_when_to_forget() -> None:
    """`changes` counts up with all that worker 0 tells, and with what a new one does not tell again."""
    registry = CopiedRegistry()
    put(registry, "G", subscription("T", "A"))
    put(registry, "H", subscription("T", "A"))
    before = registry.changes
    assert before > 0
    put(registry, "G", subscription("T", "B", 2))
    group = registry.consumer_group("G")
    assert group.subscriptions["T"].sub_string == "B"
    assert registry.changes > before
    before = registry.changes
    registry.mark_unconfirmed()
    assert registry.changes == before
    put(registry, "G", subscription("T", "B", 2))
    before = registry.changes
    registry.drop_unconfirmed()
    assert (registry.consumer_group("H"), registry.changes > before) == (None, True)
    before = registry.changes
    registry.drop("G")
    assert (registry.has_consumers, registry.changes > before) == (False, True)


def group(name: str, *subscriptions: dict[str, object]) -> list[object]:
    return [LinkKind.GROUP, name, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", told(*subscriptions)]


async def test_groups_that_take_long_to_read_are_read_on_a_thread_and_all_are_known_in_order(g1_store) -> None:
    service = service_of(MessageStore.open(g1_store), CopiedRegistry)
    clients = service.clients
    assert isinstance(clients, CopiedRegistry)
    member = WorkerMember(service.registries, b"")
    link = Link(lambda _link, _message: None, lambda _link: None)
    long = [subscription(f"T{number}", f"a > {number} AND b > 1 AND c > 2", kind="SQL92") for number in range(60)]
    assert len(told(*long)) < long_work.UNITS_A_TURN * long_work.BYTES_A_UNIT
    try:
        member._take(link, group("G", *long))
        assert clients.consumer_group("G") is None, "not on the event loop"
        member._take(link, group("H", subscription("T")))
        member._take(link, [LinkKind.GONE, "G"])
        member._take(link, group("I", *long))
        member._take(link, group("I", subscription("T", "A", 2)))
        await until(lambda: not member._notices)
    finally:
        member.stop()
    assert clients.consumer_group("G") is None
    assert clients.consumer_group("H") is not None
    known = clients.consumer_group("I")
    assert list(known.subscriptions) == ["T"]
    assert known.subscriptions["T"].sub_string == "A"


class Client(FakeConnection):
    """A connection that is a key of tables, as real ones are."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__


async def test_heartbeats_are_kept_for_a_new_worker_0_as_far_as_there_is_room(g1_store) -> None:
    service = service_of(MessageStore.open(g1_store), limits=Limits(registry_bytes=1 << 20))
    member = WorkerMember(service.registries, b"")
    member._loop = asyncio.get_running_loop()
    connections = [Client() for _ in range(4)]
    waiting = []

    def send(connection: FakeConnection, size: int) -> None:
        command = Command(code=RequestCode.HEART_BEAT, body=b" " * size)
        waiting.append(member.forward(EmptyRequestHeader(), Request(command, connection)))

    for connection in connections:
        send(connection, 200_000)
    assert len(member._heartbeats) == 2
    send(connections[0], 10)
    send(connections[3], 200_000)
    assert len(member._heartbeats) == 3
    for connection in connections:
        member.connection_lost(connection)
    assert (len(member._heartbeats), service.budget.used) == (0, 0)
    for future in waiting:
        assert isinstance(future, asyncio.Future)
        future.cancel()


DEADLINE_SECONDS = 60.0
PROGRAM = """
import logging, os, sys, time, signal
from broker.workers.supervisor import Supervisor
logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
def work(number, announce):
    os.write(1, b"worker %d %d\\n" % (number, os.getpid()))
    {before}
    announce()
    while True:
        time.sleep(0.05)  # a signal between the check for signals and a longer sleep would wait for its end
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
sys.exit(Supervisor(work, {count}, lambda: print("announced", flush=True), {stop}).run())
"""


class Running:
    def __init__(self, count: int = 1, before: str = "pass", stop: float = 30) -> None:
        command = [sys.executable, "-c", PROGRAM.format(count=count, before=before, stop=stop)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
        self._killer = threading.Timer(DEADLINE_SECONDS, self.process.kill)
        self._killer.start()

    def line(self) -> list[str]:
        line = self.process.stdout.readline()
        assert line, "the supervisor has ended"
        return line.split()

    def workers(self, count: int = 1) -> dict[int, int]:
        return {int(number): int(pid) for _, number, pid in (self.line() for _ in range(count))}

    def end(self) -> tuple[int, str]:
        _, errors = self.process.communicate()
        self._killer.cancel()
        return self.process.returncode, errors


@pytest.fixture
def start():
    started: list[Running] = []
    yield lambda *args, **kwargs: started.append(Running(*args, **kwargs)) or started[-1]
    for each in started:
        each._killer.cancel()
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


def test_a_dead_worker_is_replaced_at_once_and_one_that_keeps_dying_ever_later(start) -> None:
    running = start(2)
    workers = running.workers(2)
    assert running.line() == ["announced"], "once, when all serve"
    waited, deaths = [], (signal.SIGBUS, signal.SIGSEGV, signal.SIGKILL, signal.SIGBUS)
    for number in deaths:
        before = time.monotonic()
        os.kill(workers[1], number)
        workers |= running.workers()
        waited.append(time.monotonic() - before)
    assert [wait >= pause for wait, pause in zip(waited, (0, 0.1, 0.2, 0.4), strict=True)] == [True] * 4
    running.process.terminate()
    code, errors = running.end()
    assert code == 0
    for number in deaths:
        assert f"worker 1 was ended by {number.name}" in errors
    assert errors.count("a file of the store was truncated") == deaths.count(signal.SIGBUS)


@pytest.mark.parametrize(("number", "handler"), [(signal.SIGINT, ""), (signal.SIGTERM, "SIG_DFL")])
def test_a_signal_to_stop_reaches_all_workers_also_one_that_has_no_handler_yet(start, number, handler) -> None:
    running = start(2, before=f"signal.signal(signal.SIGTERM, signal.{handler})" if handler else "pass")
    pids = running.workers(2)
    assert running.line() == ["announced"]
    running.process.send_signal(number)
    assert running.end() == (0, "")
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids.values())


@pytest.mark.parametrize(
    ("before", "code", "says"), [("sys.exit(2)", 2, ""), ("sys.exit(0)", 1, ""), ("1 / 0", 1, "ZeroDivisionError")]
)
def test_a_worker_that_fails_at_the_start_ends_all(start, before, code, says) -> None:
    running = start(1, before=before)
    running.workers()
    found, errors = running.end()
    assert (found, says in errors, bool(errors)) == (code, True, bool(says))


def test_a_worker_that_does_not_stop_is_killed(start) -> None:
    running = start(1, before="signal.signal(signal.SIGTERM, signal.SIG_IGN)", stop=1)
    pid = running.workers()[0]
    assert running.line() == ["announced"]
    running.process.terminate()
    code, errors = running.end()
    assert code == signal.SIGKILL
    assert "killed" in errors
    assert not Path(f"/proc/{pid}").exists()


def test_workers_do_not_outlive_a_supervisor_that_is_killed(start) -> None:
    running = start(2)
    pids = running.workers(2)
    assert running.line() == ["announced"]
    running.process.kill()
    running.end()
    eventually(lambda: not any(map(_is_alive, pids.values())))


def _is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_signals_are_as_before_when_it_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    def fail(number, announce) -> int:
        return 7

    before = signal.getsignal(signal.SIGHUP), signal.getsignal(signal.SIGCHLD)
    with caplog.at_level(logging.INFO):
        assert Supervisor(fail, 1, lambda: None, 1.0).run() == 7
    assert (signal.getsignal(signal.SIGHUP), signal.getsignal(signal.SIGCHLD)) == before


def test_a_process_with_many_descriptors_supervises_too() -> None:
    """What select() cannot: descriptors from 1,024 on."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    with contextlib.ExitStack() as open_files:
        open_files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        while open_files.enter_context(open(os.devnull, "rb")).fileno() < 1_024:
            pass
        assert Supervisor(lambda number, announce: 7, 1, lambda: None, 1.0).run() == 7


SOME = 5


class Thread:
    def __init__(self) -> None:
        self.now = self.spent = 0.0
        self.sharing = CoreSharing(lambda: self.now, lambda: self.spent)

    def look_after(self, share: float, connections: int = SOME) -> int:
        self.now += 0.1
        self.spent += 0.1 * share
        self.sharing.look(connections)
        return os.sched_getscheduler(0)


def on_a_thread(work) -> list[int]:
    """What comes of work whose scheduling concerns no other test."""
    found: list[list[int]] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def test_a_single_client_is_answered_promptly_however_busy_it_keeps_the_worker() -> None:
    def work() -> list[int]:
        thread = Thread()
        return [thread.look_after(1.0, connections) for connections in (1, SOME, 1)]

    assert on_a_thread(work) == [os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_OTHER]


def test_where_it_is_forbidden_the_worker_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", forbidden)
    thread = Thread()
    assert thread.look_after(1.0) == os.SCHED_OTHER
    assert not thread.sharing.is_possible
    assert thread.look_after(1.0) == os.SCHED_OTHER


LIMIT_SECONDS = 8.0


class Watched:
    def __init__(self) -> None:
        self.rows, self.clock = MetricsRows(3), StillClock()
        self.watch = LoopWatch(self.rows, LIMIT_SECONDS, self.clock)

    def look(self, *turning: int, serving: tuple[int, ...] = (0, 1, 2), seconds: float = 1.0) -> list[int]:
        self.clock.seconds += seconds
        for number in turning:
            self.rows.beat(number)
        return self.watch.look(serving)


def test_a_loop_that_stands_still_is_told_after_so_long_and_the_others_are_not() -> None:
    watched = Watched()
    assert watched.look(0, 1, 2) == []
    for _ in range(7):
        assert watched.look(0, 2) == []
    assert watched.look(0, 2) == [1]


def test_nobody_is_silent_while_the_machine_is_suspended() -> None:
    """Neither when all stood still for an hour nor when that happens again and again."""
    watched = Watched()
    watched.look(0, 1, 2)
    for _ in range(3):
        assert watched.look(seconds=3600) == []
        assert watched.look(0, 1, 2) == []
    # Of the supervisor's own time, it counts.
    assert watched.look(seconds=3600) == []
    assert [watched.look() for _ in range(6)] == [[], [], [], [], [], [0, 1, 2]]


async def test_work_on_a_thread_is_not_a_loop_that_stands_still() -> None:
    watched = Watched()
    release = threading.Event()
    dispatcher = Dispatcher([], 1)
    loop = asyncio.get_running_loop()
    _repeat(loop, partial(watched.rows.beat, 0), 0.001)
    working = dispatcher.run_in_pool(lambda: release.wait(60))
    for _ in range(20):
        heard = watched.rows.column(places.HEARTBEAT)
        await until(lambda: watched.rows.column(places.HEARTBEAT) != heard)  # noqa: B023 - called at once
        assert watched.look(serving=(0,)) == []
    release.set()
    assert await working
    # The loop does not turn while this looks.
    assert [watched.look(serving=(0,)) for _ in range(9)][-1] == [0]
    dispatcher.close()
