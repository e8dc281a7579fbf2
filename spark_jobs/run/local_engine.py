"""Tasks by processes of this machine, one a core: no JVM, and nothing to set up.

A process of its own forks those that do tasks (:mod:`spark_jobs.run._local_worker`). It is started while we still
import what the job itself needs, so that both take the time of one; the others are forked when there are tasks for
them, and stay until the engine is closed. A task that fails, a process that is lost, and Ctrl-C stop all tasks that
run.
"""

import contextlib
import errno
import itertools
import math
import os
import pickle
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar, cast

from protocol.errors import ConfigError, RocketLensError
from spark_jobs.run import _local_worker
from spark_jobs.run._local_worker import NUMBER, STOP_SECONDS, Order, TaskOutcome, find_shared
from spark_jobs.run._spark_calls import TaskFailed
from storage.child_process import child_environment, child_ids, python_command

Task = TypeVar("Task")
Result = TypeVar("Result")
Value = TypeVar("Value")

CPU_LIMIT: Final = Path("/sys/fs/cgroup/cpu.max")
"""What a container may take of the cores, as `QUOTA PERIOD`, or `max PERIOD`."""

_ENVIRONMENT: Final = {"OPENBLAS_NUM_THREADS": "1"}
"""Threads that NumPy would start as it is imported, and nothing here uses."""

_AGAIN: Final = "run it again"
_REASONS: Final = {
    signal.SIGBUS: f"a file became shorter, or cannot be read any more, while it was read; {_AGAIN}",
    signal.SIGKILL: f"the machine has too little memory, or somebody killed it; {_AGAIN}",
}
_END_SECONDS: Final = 10.0
"""How long the processes may take to end beyond what tasks are given."""


class WorkerLost(RocketLensError):
    """A process that did a task is gone, or none could be started."""


class LocalShared(Generic[Value]):
    """A value that processes are sent once; what is pickled for a task is its number."""

    def __init__(self, number: int, value: Value) -> None:
        """Nothing is sent yet."""
        self.number, self.value = number, value

    def __reduce__(self) -> tuple[Any, ...]:
        """Arrive as the value that the process was sent."""
        return find_shared, (self.number,)


class _Worker:
    """A process that does tasks, as this one sees it; `has` are the shared values that it was sent."""

    def __init__(self, number: int, orders: Connection) -> None:
        self.number, self.orders = number, orders
        self.has: frozenset[int] = frozenset()

    def signal(self, which: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.number, which)


class LocalEngine:
    """Processes of this machine; to be closed. Used by one thread at a time."""

    def __init__(self, *modules: str, processes: int | None = None) -> None:
        """Start the process that forks the others, and has the modules of the tasks imported."""
        self.tasks_at_once = processes or cores()
        self._workers: list[_Worker] = []
        self._shared: dict[int, bytes] = {}
        self._numbers = itertools.count()
        self._modules = [name for name in modules if name]
        self._start()

    def _start(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ids = child_ids()
        with theirs:
            self._forker = subprocess.Popen(
                python_command(f"from {_local_worker.__name__} import main; main()", *self._modules),
                stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=child_environment() | _ENVIRONMENT,
                process_group=0,  # a terminal's Ctrl-C is for us
                user=ids.user, group=ids.group,
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run_tasks(self, name: str, tasks: Sequence[Task], function: Callable[[Task], Result], /) -> list[Result]:
        """Run tasks under a name; their answers, in order.

        Raises ConfigError where a task does, TaskFailed for another error that it expects, and WorkerLost where its
        process ended; no other task runs then.
        """
        waiting = deque(enumerate(tasks))
        results = cast("list[Result]", [None] * len(tasks))
        idle = self._workers_for(len(tasks))
        busy: dict[Connection, tuple[_Worker, int]] = {}
        try:
            while waiting or busy:
                while waiting and idle:
                    (number, task), worker = waiting.popleft(), idle.pop()
                    busy[worker.orders] = worker, number
                    with contextlib.suppress(OSError):  # where it is gone, the answer is missing
                        worker.orders.send(self._order(worker, function, task))
                for ready in wait(list(busy)):
                    worker, number = busy[cast("Connection", ready)]
                    answer = self._answer(worker, f"{name}, task {number + 1} of {len(tasks)}")
                    del busy[worker.orders]
                    idle.append(worker)
                    results[number] = _result(answer, name)
        except BaseException:
            self._stop([worker for worker, _ in busy.values() if worker in self._workers])
            raise
        return results

    @contextlib.contextmanager
    def share(self, value: Value) -> Iterator[LocalShared[Value]]:
        """Let tasks have a value until the block ends."""
        number = next(self._numbers)
        self._shared[number] = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        try:
            yield LocalShared(number, value)
        finally:
            del self._shared[number]

    def close(self) -> None:
        """End all processes; nobody writes from here on."""
        for worker in self._workers:
            worker.orders.close()
        self._workers.clear()
        self._control.close()
        try:
            self._forker.wait(STOP_SECONDS + _END_SECONDS)
        except subprocess.TimeoutExpired:
            self._forker.kill()
            self._forker.wait()

    def _order(self, worker: _Worker, function: Callable[[Task], Any], task: Task) -> Order:
        """The task as a process gets it, with the shared values that it has not got yet."""
        kept = frozenset(self._shared)
        missing, worker.has = kept - worker.has, kept
        packed = pickle.dumps((function, task), pickle.HIGHEST_PROTOCOL)
        return Order(packed, {number: self._shared[number] for number in missing}, kept)

    def _workers_for(self, count: int) -> list[_Worker]:
        """As many processes as there are tasks, or may be; raises WorkerLost where there can be none."""
        wanted = min(count, self.tasks_at_once)
        while len(self._workers) < wanted:
            ours, theirs = Pipe()
            with theirs:
                number = self._ask(b"\0" * NUMBER.size, theirs.fileno())
                if number is None:  # somebody has killed the one that forks, and with it all others
                    self.close()
                    self._start()
                    number = self._ask(b"\0" * NUMBER.size, theirs.fileno())
            if number is None or number < 0:
                ours.close()
                if self._workers:
                    break
                reason = "their parent has ended" if number is None else os.strerror(-number)
                raise WorkerLost(f"no process for tasks can be started: {reason}")
            self._workers.append(_Worker(number, ours))
        return self._workers[:wanted]

    def _answer(self, worker: _Worker, task: str) -> TaskOutcome:
        """What a process answers; raises WorkerLost where it has ended instead."""
        try:
            return cast("TaskOutcome", worker.orders.recv())
        except (EOFError, OSError):
            code = self._forget(worker)
        if code is None or code >= 0:
            how = "with the process that started it" if code is None else f"with exit code {code}"
            raise WorkerLost(f"a process ended {how} in the middle of {task}: {_AGAIN}")
        ended_by = signal.Signals(-code)
        reason = _REASONS.get(ended_by, _AGAIN)
        raise WorkerLost(f"a process was ended by {ended_by.name} in the middle of {task}: {reason}")

    def _stop(self, workers: Sequence[_Worker]) -> None:
        """Break tasks off; they remove what they have written, or are killed."""
        for worker in workers:
            worker.signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        left = {worker.orders: worker for worker in workers}
        while left:
            for ready in wait(list(left), max(deadline - time.monotonic(), 0)):
                with contextlib.suppress(EOFError, OSError):
                    left[cast("Connection", ready)].orders.recv_bytes()  # an answer that nobody needs
                    continue
                self._forget(left.pop(cast("Connection", ready)))
            if left and time.monotonic() > deadline:
                for worker in left.values():
                    worker.signal(signal.SIGKILL)

    def _forget(self, worker: _Worker) -> int | None:
        """A process has ended; its exit code, None where nobody knows."""
        if worker in self._workers:
            self._workers.remove(worker)
        worker.orders.close()
        return self._ask(NUMBER.pack(worker.number))

    def _ask(self, question: bytes, *descriptors: int) -> int | None:
        """Ask the process that forks the others; None where it has ended."""
        try:
            socket.send_fds(self._control, [question], descriptors)
            answer = self._control.recv(NUMBER.size)
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
                raise
            return None
        return int(NUMBER.unpack(answer)[0]) if answer else None


def _result(answer: TaskOutcome, name: str) -> Any:
    """What a task returned; raises ConfigError, or else TaskFailed, for an error that it expects."""
    if answer.result is not None:
        return pickle.loads(answer.result)
    if answer.crash:
        raise RuntimeError(f"a task of {name} failed:\n{answer.crash}")
    if answer.is_usage:
        raise ConfigError(answer.sentence)
    room = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if answer.is_out_of_room else None
    raise TaskFailed(answer.sentence) from room


def cores() -> int:
    """How many tasks run at once: the cores that this process may use, and that its container has."""
    count = len(os.sched_getaffinity(0))
    try:
        quota, period = CPU_LIMIT.read_text().split()
        count = min(count, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # there is no limit
        pass
    return max(count, 1)
