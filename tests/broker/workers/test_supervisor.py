"""A supervisor fills the place of a worker that died, says so, and ends as its workers do."""

import contextlib
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blocking_client import eventually
from broker.workers.supervisor import Announce, Supervisor
from process import ROOT

DEADLINE_SECONDS = 60.0
PROGRAM = """
import logging, os, sys, time, signal
from broker.workers.supervisor import Supervisor
logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
def work(number, announce):
    os.write(1, b"worker %d %d\\n" % (number, os.getpid()))
    {before}
    announce()
    {after}
    while True:
        time.sleep(0.05)  # a signal between the check for signals and a longer sleep would wait for its end
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
sys.exit(Supervisor(work, {count}, lambda: print("announced", flush=True), {stop}).run())
"""


class Running:
    """A supervisor in a process of its own, and what it and its workers print."""

    def __init__(self, count: int = 1, before: str = "pass", after: str = "pass", stop: float = 30) -> None:
        code = PROGRAM.format(count=count, before=before, after=after, stop=stop)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._killer = threading.Timer(DEADLINE_SECONDS, self.process.kill)
        self._killer.start()

    def line(self) -> list[str]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the supervisor has ended"
        return line.split()

    def workers(self, count: int = 1) -> dict[int, int]:
        """The processes of the next `count` workers that start, by number."""
        return {int(number): int(pid) for _, number, pid in (self.line() for _ in range(count))}

    def end(self) -> tuple[int, str]:
        """Wait for the end: exit code, stderr."""
        _, errors = self.process.communicate()
        self._killer.cancel()
        return self.process.returncode, errors


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(*args: object, **kwargs: object) -> Running:
        started.append(Running(*args, **kwargs))  # type: ignore[arg-type]
        return started[-1]

    yield begin
    for each in started:
        each._killer.cancel()
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


def test_a_dead_worker_is_replaced_at_once_and_one_that_keeps_dying_ever_later(start: Callable[..., Running]) -> None:
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
def test_a_signal_to_stop_reaches_all_workers_also_one_that_has_no_handler_yet(
    start: Callable[..., Running], number: signal.Signals, handler: str
) -> None:
    running = start(2, before=f"signal.signal(signal.SIGTERM, signal.{handler})" if handler else "pass")
    pids = running.workers(2)
    assert running.line() == ["announced"]
    running.process.send_signal(number)
    assert running.end() == (0, "")
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids.values())


@pytest.mark.parametrize(
    ("before", "code", "says"), [("sys.exit(2)", 2, ""), ("sys.exit(0)", 1, ""), ("1 / 0", 1, "ZeroDivisionError")]
)
def test_a_worker_that_fails_at_the_start_ends_all(
    start: Callable[..., Running], before: str, code: int, says: str
) -> None:
    running = start(1, before=before)
    running.workers()
    found, errors = running.end()
    assert (found, says in errors, bool(errors)) == (code, True, bool(says))


def test_a_worker_that_does_not_stop_is_killed(start: Callable[..., Running]) -> None:
    running = start(1, before="signal.signal(signal.SIGTERM, signal.SIG_IGN)", stop=1)
    pid = running.workers()[0]
    assert running.line() == ["announced"]
    running.process.terminate()
    code, errors = running.end()
    assert code == signal.SIGKILL
    assert "killed" in errors
    assert not Path(f"/proc/{pid}").exists()


"""How long a loop may stand still here; long beside the twentieth of a second in which it turns."""


def test_workers_do_not_outlive_a_supervisor_that_is_killed(start: Callable[..., Running]) -> None:
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
    def fail(number: int, announce: Announce) -> int:
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
