"""Watches the processes that serve, and replaces one that died or whose event loop stands still.

The store is mapped, and clients are read, by workers alone. The supervisor holds the listening sockets, which live on
when a worker dies: a client that connects meanwhile waits for the next one. A worker is forked from a process that has
loaded all code and all kernels, which takes milliseconds.

It has no event loop and no thread, and reads neither store nor port; it sleeps in `select` until a signal comes, or
it is time to look whether the workers' event loops turn. One that stands still cannot be asked to stop: it is killed.
"""

import contextlib
import ctypes
import logging
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import NoReturn, cast

from broker.workers.loop_watch import LoopWatch
from storage.child_process import settle_ids

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 10.0
"""The first death is followed by a new worker at once, the second by one after a tenth of a second, then twice as
long each time, up to ten seconds."""

STEADY_SECONDS = 10.0
"""A worker that lived so long starts the count anew."""

PATIENCE_SECONDS = 3.0
"""How much longer than their own timeout workers may take to stop before they are killed."""

SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""The signals that the supervisor waits for."""

PR_SET_PDEATHSIG = 1

Announce = Callable[[], None]


class Ready:
    """What a new process calls once it serves; one that becomes another program takes its descriptor along."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def __call__(self) -> None:
        """Report that the worker serves."""
        with contextlib.suppress(OSError):
            self._connection.send(b"1")
        self._connection.close()

    def fileno(self) -> int:
        """The descriptor of the connection to the supervisor."""
        return self._connection.fileno()


Work = Callable[[int, Ready], int]
"""A worker's life: its number, and what to call once it serves; returns its exit code."""


@dataclass
class Worker:
    """One place, and the process that is in it; times on the monotonic clock."""

    number: int
    pid: int = 0
    started_seconds: float = 0.0
    due_seconds: float = 0.0
    deaths: int = 0
    is_ready: bool = False
    ready: socket.socket | None = field(default=None, repr=False)


class Supervisor:
    """Runs `count` workers until a signal ends it; `announce` is called once, when all of them serve.

    `loop_watch` says which event loops stand still; without it nobody asks.
    """

    def __init__(
        self,
        work: Work,
        count: int,
        announce: Announce,
        stop_timeout_seconds: float,
        loop_watch: LoopWatch | None = None,
        before_stop: Announce | None = None,
    ) -> None:
        """Watch the loops of `count` workers by `loop_watch`; `before_stop` is called before they get SIGTERM."""
        self._work, self._announce = work, announce
        self._loop_watch = loop_watch
        self._stop_timeout_seconds = stop_timeout_seconds
        self._workers = [Worker(number) for number in range(count)]
        self._before_stop: Announce = before_stop or _do_nothing
        self._is_announced = False
        self._signals: set[int] = set()
        self._wakeup, self._waker = socket.socketpair()

    def run(self) -> int:
        """Start the workers and watch them; the exit code of the command.

        A worker that fails before the first announcement ends all: what is wrong with the store or the options would
        be wrong the next time too.
        """
        with self._listening_to_signals():
            code = self._watch()
            return self._stop() or code

    # ------------------------------------------------------------------ watching

    def _watch(self) -> int:
        """Keep every place filled until a signal to stop, or until the first start has failed."""
        while True:
            self._fill(time.monotonic())
            self._sleep()
            signals, self._signals = self._signals, set()
            if signals & {signal.SIGTERM, signal.SIGINT}:
                return 0
            if signal.SIGHUP in signals:
                self._send(signal.SIGHUP)
            for worker, status in self._reap():
                code = os.waitstatus_to_exitcode(status)
                if not self._is_announced and code >= 0:
                    return code or 1
                self._bury(worker, code)
            if self._loop_watch is not None:
                self._kill_stuck(self._loop_watch)
            if not self._is_announced and all(worker.is_ready for worker in self._workers):
                self._is_announced = True
                self._announce()

    def _fill(self, now: float) -> None:
        for worker in self._workers:
            if not worker.pid and now >= worker.due_seconds:
                self._start(worker)

    def _sleep(self) -> None:
        """Wait for a signal, a worker that begins to serve, or the time to start one or to look at those that serve."""
        now = time.monotonic()
        timeouts = [max(0.0, worker.due_seconds - now) for worker in self._workers if not worker.pid]
        if self._loop_watch is not None:
            timeouts.append(self._loop_watch.interval_seconds)
        timeout = min(timeouts, default=None)
        waiting = {worker.ready: worker for worker in self._workers if worker.ready is not None}
        for each in _readable([self._wakeup, *waiting], timeout):
            if each is self._wakeup:
                self._signals.update(self._wakeup.recv(4096))
            else:
                worker = waiting[each]
                worker.is_ready = bool(each.recv(1))
                each.close()
                worker.ready = None

    def _reap(self) -> Iterator[tuple[Worker, int]]:
        """Each worker whose process has ended, with the status it left."""
        for worker in self._workers:
            if worker.pid:
                pid, status = os.waitpid(worker.pid, os.WNOHANG)
                if pid:
                    worker.pid, worker.is_ready = 0, False
                    yield worker, status

    def _bury(self, worker: Worker, code: int) -> None:
        """Say how a worker died and when the next one takes its place."""
        now = time.monotonic()
        worker.deaths = 1 if now - worker.started_seconds >= STEADY_SECONDS else worker.deaths + 1
        pause = (
            0.0 if worker.deaths == 1 else min(FIRST_PAUSE_SECONDS * 2 ** (worker.deaths - 2), LONGEST_PAUSE_SECONDS)
        )
        worker.due_seconds = now + pause
        reason = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        if code == -signal.SIGBUS:
            reason += ": a file of the store was truncated or can no longer be read"
        logger.error("worker %d %s; a new one replaces it%s", worker.number, reason, f" in {pause:g} s" * (pause > 0))

    def _kill_stuck(self, loop_watch: LoopWatch) -> None:
        """End the workers whose event loops stand still; SIGKILL alone reaches one that was stopped."""
        serving = {worker.number: worker for worker in self._workers if worker.is_ready}
        for number in loop_watch.look(serving):
            worker = serving[number]
            logger.error(
                "worker %d (process %d) is killed: its event loop has stood still for %g s (--worker-timeout)",
                number,
                worker.pid,
                loop_watch.limit_seconds,
            )
            # Not looked at again: one that hangs in the kernel ends only when that lets it go.
            worker.is_ready = False
            loop_watch.count(number)
            self._send(signal.SIGKILL, [worker])

    # ------------------------------------------------------------------ processes

    def _start(self, worker: Worker) -> None:
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        supervisor = os.getpid()
        # A signal to a new process waits until that has put our handlers away, which would swallow it.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        pid = os.fork()
        if not pid:
            ours.close()
            self._be(worker, theirs, supervisor)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        theirs.close()
        if worker.ready is not None:
            worker.ready.close()
        worker.pid, worker.ready, worker.started_seconds = pid, ours, time.monotonic()

    def _be(self, worker: Worker, ready: socket.socket, supervisor: int) -> NoReturn:
        """The life of a new process; never returns into the supervisor's frames."""
        code = 1
        try:
            settle_ids()
            die_with(supervisor)
            self._restore_signals()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            for each in (self._wakeup, self._waker):
                each.close()
            code = self._work(worker.number, Ready(ready))
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            logger.exception("worker %d failed", worker.number)
        finally:
            logging.shutdown()
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
            os._exit(code)

    def _send(self, number: int, workers: "list[Worker] | None" = None) -> None:
        for worker in self._workers if workers is None else workers:
            if worker.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, number)

    def _stop(self) -> int:
        """Have all workers stop; 0 if they did so in time and without an error."""
        self._before_stop()
        # Worker 0 last: until they are gone the others have offsets for it.
        codes = [self._stop_some(self._workers[1:]), self._stop_some(self._workers[:1])]
        worst = codes[0] or codes[1]
        return worst if self._is_announced else 0

    def _stop_some(self, workers: "list[Worker]") -> int:
        """Have these workers stop; the first code but 0 with which one ended."""
        self._send(signal.SIGTERM, workers)
        deadline = time.monotonic() + self._stop_timeout_seconds + PATIENCE_SECONDS
        worst = 0
        while any(worker.pid for worker in workers):
            for worker, status in self._reap():
                code = os.waitstatus_to_exitcode(status)
                # One that has only just been forked has no handler yet, and the signal itself ends it.
                if worker in workers and code != -signal.SIGTERM:
                    worst = worst or abs(code)
            if time.monotonic() > deadline:
                logger.error("workers that did not stop in time are killed")
                self._send(signal.SIGKILL, workers)
            if any(worker.pid for worker in workers):
                # Woken by SIGCHLD.
                for wakeup in _readable([self._wakeup], 0.5):
                    wakeup.recv(4096)
        return worst

    # ------------------------------------------------------------------ signals

    @contextlib.contextmanager
    def _listening_to_signals(self) -> Iterator[None]:
        """Have the signals that matter wake the supervisor, each as a byte with its number."""
        self._wakeup.setblocking(False)
        self._waker.setblocking(False)
        self._before = {number: signal.signal(number, _ignore) for number in SIGNALS}
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            self._restore_signals()
            self._wakeup.close()
            self._waker.close()

    def _restore_signals(self) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _readable(sockets: list[socket.socket], timeout_seconds: float | None) -> list[socket.socket]:
    """Wait until some of the sockets can be read or the time is over; returns those that can.

    Not by select(), which takes no descriptor from 1,024 on.
    """
    with selectors.PollSelector() as selector:
        for each in sockets:
            selector.register(each, selectors.EVENT_READ)
        return [cast(socket.socket, key.fileobj) for key, _ in selector.select(timeout_seconds)]


def die_with(supervisor: int) -> None:
    """Have the kernel end this process with its supervisor, whatever ends that one: nobody else would stop it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """A handler, so that the signal is noted and nothing else happens."""


def _do_nothing() -> None:
    """Where nothing is to be done before the workers stop."""
