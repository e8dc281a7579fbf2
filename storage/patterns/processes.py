"""The processes that patterns run in (:mod:`storage.patterns._pattern_process`), as this process sees them.

A question is asked of one that is idle, or of a new one where none is, which takes a tenth of a second to start: each
thread that asks has one while it does. One that nobody waits for any more is killed.
"""

import atexit
import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

import msgspec

from protocol.errors import RocketLensError
from storage.child_process import child_environment, child_ids, python_command
from storage.patterns._pattern_process import LENGTH, Answer, Question, main

A = TypeVar("A", bound=Answer)
Item = TypeVar("Item")

Stop = Callable[[], bool]
"""Whether nobody waits for the answer any more."""

LOOK_MILLISECONDS: Final = 100
"""How often to ask that."""

AT_ONCE: Final = 64
BYTES_AT_ONCE: Final = 1 << 18
"""Bodies or texts, and bytes of them, that are asked about together; where that has no end, each is then asked about
alone."""

MOST_IDLE: Final = os.cpu_count() or 2
PIECE: Final = 1 << 20


class PatternLimit(Exception):
    """A pattern has used its CPU time up, or its memory, before it came to an answer."""


class PatternsStopped(Exception):
    """Nobody waits for an answer any more."""


class PatternsUnavailable(RocketLensError):
    """The process that patterns run in does not start."""


class PatternProcess:
    """One such process."""

    def __init__(self) -> None:
        """Start it; raises PatternsUnavailable."""
        import subprocess  # late: most commands need none, and it takes a while

        ids = child_ids()
        self._process = subprocess.Popen(
            python_command(f"from {main.__module__} import main; main()"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            bufsize=0, env=child_environment(), start_new_session=True,
            user=ids.user, group=ids.group,
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._questions, self._answers = self._process.stdin, self._process.stdout
        self._poll = select.poll()
        self._poll.register(self._answers, select.POLLIN)
        try:
            self._read_frame(lambda: False)
        except PatternLimit:
            self.close()
            raise PatternsUnavailable(
                f"the process that patterns run in does not start (exit code {self._process.returncode})"
            ) from None

    def ask(self, question: bytes, should_stop: Stop) -> bytes:
        """Ask one question; the answer is empty where there is no end.

        After an error the process is of no use. Raises PatternLimit where it is gone, and PatternsStopped.
        """
        try:
            for data in (LENGTH.pack(len(question)), question):
                view = memoryview(data)
                while view:
                    view = view[self._questions.write(view[:PIECE]) :]
        except BrokenPipeError:
            raise PatternLimit from None
        return self._read_frame(should_stop)

    def close(self) -> None:
        """Kill it, with the child that answers for it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._questions.close()
        self._answers.close()

    def leave(self) -> None:
        """Let go of a process of our parent's: close our copies of its pipes, which would keep it alive."""
        self._process.returncode = 0  # which is not ours to wait for
        self._questions.close()
        self._answers.close()

    def _read_frame(self, should_stop: Stop) -> bytes:
        (length,) = LENGTH.unpack(self._read(LENGTH.size, should_stop))
        return self._read(length, should_stop)

    def _read(self, count: int, should_stop: Stop) -> bytes:
        parts: list[bytes] = []
        while count:
            while not self._poll.poll(LOOK_MILLISECONDS):
                if should_stop():
                    raise PatternsStopped
            part = self._answers.read(min(count, PIECE))
            if not part:
                raise PatternLimit
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


class PatternProcesses:
    """All of them; safe to use from several threads."""

    def __init__(self) -> None:
        self._idle: list[PatternProcess] = []
        os.register_at_fork(after_in_child=self._leave)
        atexit.register(self.close)

    def ask(self, question: Question, answer: type[A], should_stop: Stop = lambda: False) -> A:
        """Ask a question; raises PatternLimit, and PatternsStopped where ``should_stop``."""
        data = msgspec.msgpack.encode(question)
        try:
            process = self._idle.pop()
        except IndexError:
            process = PatternProcess()
        try:
            found = process.ask(data, should_stop)
        except BaseException:
            process.close()
            raise
        if len(self._idle) < MOST_IDLE:
            self._idle.append(process)
        else:
            process.close()
        if not found:
            raise PatternLimit
        return msgspec.msgpack.decode(found, type=answer)

    def close(self) -> None:
        """End those that are idle."""
        while self._idle:
            self._idle.pop().close()

    def _leave(self) -> None:
        while self._idle:
            self._idle.pop().leave()


PROCESSES: Final = PatternProcesses()


def in_groups(items: Iterable[Item], size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Put items into groups that are asked about together."""
    group: list[Item] = []
    total = 0
    for item in items:
        if group and (len(group) >= AT_ONCE or total + size(item) > BYTES_AT_ONCE):
            yield group
            group, total = [], 0
        group.append(item)
        total += size(item)
    if group:
        yield group
