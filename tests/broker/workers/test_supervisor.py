"""A supervisor fills the places of workers that died or stand still, and ends as its workers do."""

import asyncio
import contextlib
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from blocking_client import eventually
from broker.metrics import metrics_rows as places
from broker.metrics.metrics_rows import MetricsRows
from broker.server import _repeat
from broker.service.dispatcher import Dispatcher
from broker.workers.core_sharing import CoreSharing
from broker.workers.loop_watch import LoopWatch
from broker.workers.supervisor import Supervisor
from broker_harness import until
from process import ROOT
from still_clock import StillClock

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
