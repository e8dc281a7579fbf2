"""Progress for a person: a bar on a terminal, else a line now and then. Both go to stderr, beside the answer.

scan  ━━━━━━━━━━━━━━━━━━╸━━━━━━━━━━  62%  2.7 of 4.3 GB · 5,616,000 messages · 1.21 GB/s · 0:00:01 left
"""

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TextIO

from protocol.printable import one_line
from storage.amounts import amount_text, clock_text, count_text, rate_text, share_text

if TYPE_CHECKING:  # rich takes long to import: it is where there is a terminal
    from rich.progress import Progress as RichProgress

    from spark_jobs.run.progress import JobProgress

Clock = Callable[[], float]

WINDOW_SECONDS: Final = 10.0
"""Rates are those of so much of the past: tasks start and end in batches."""

LINE_SECONDS: Final = 5.0


def progress_on(stream: TextIO | None = None) -> "JobProgress":
    """A bar if the stream (stderr) is a terminal, else lines."""
    stream = stream or sys.stderr
    return ProgressBar(stream) if stream.isatty() else ProgressLines(stream)


class PhaseMeter:
    """How far a phase is, how fast and for how long yet."""

    def __init__(self, phase: str, total: int, unit: str, clock: Clock) -> None:
        """A phase that is over at `total` of `unit` starts now; `clock` returns seconds."""
        self.phase, self.total, self.unit = phase, total, unit
        self.done = self.messages = 0
        self._clock = clock
        self._started = clock()
        # What an earlier run has done is there at the first look: no speed of ours.
        self._earlier: int | None = None
        self._past: deque[tuple[float, int]] = deque()

    def update(self, done: int, messages: int) -> None:
        """Take note of how much of the phase is done, by earlier runs too."""
        now = self._clock()
        if self._earlier is None:
            self._earlier = done
        self.done, self.messages = done, messages
        self._past.append((now, done))
        while len(self._past) > 2 and now - self._past[1][0] >= WINDOW_SECONDS:
            self._past.popleft()

    @property
    def seconds(self) -> float:
        """Since the phase started."""
        return self._clock() - self._started

    @property
    def rate(self) -> float:
        """Units a second lately; 0 as long as there is none."""
        if len(self._past) < 2:
            return 0.0
        (began, first), (ended, last) = self._past[0], self._past[-1]
        return (last - first) / (ended - began) if ended > began else 0.0

    @property
    def mean_rate(self) -> float:
        """Units a second of this run."""
        seconds = self.seconds
        return (self.done - (self._earlier or 0)) / seconds if seconds > 0 else 0.0

    def state(self) -> str:
        """All that is known at the moment, as a line without the phase's name."""
        parts = [share_text(self.done, self.total, self.unit), *self._messages()]
        if self.rate > 0:
            parts += [rate_text(self.rate, self.unit), self._left()]
        return " · ".join(filter(None, parts))

    def outcome(self) -> str:
        """Amounts, time and mean rate of a phase that is over."""
        parts = [amount_text(self.done, self.unit), *self._messages(), f"{self.seconds:.1f} s"]
        return " · ".join([*parts, rate_text(self.mean_rate, self.unit)] if self.mean_rate > 0 else parts)

    def _messages(self) -> list[str]:
        return [f"{count_text(self.messages)} messages"] if self.messages and self.unit == "bytes" else []

    def _left(self) -> str:
        left = self.total - self.done
        return f"{clock_text(left / self.rate)} left" if left > 0 else ""


class ProgressLines:
    """A line every few seconds and one at the end of each phase."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        """Write to `stream`; `clock` returns seconds."""
        self._stream, self._clock = stream, clock
        self._meter: PhaseMeter | None = None
        self._said = 0.0

    def begin(self, phase: str, total: int, unit: str) -> None:
        """A phase starts."""
        self._meter = PhaseMeter(phase, total, unit, self._clock)
        self._said = self._clock()

    def update(self, done: int, messages: int) -> None:
        """Take note of how much of the phase is done, and show it."""
        if self._meter is None:
            return
        self._meter.update(done, messages)
        if self._clock() - self._said >= LINE_SECONDS:
            self._said = self._clock()
            self._write(f"{self._meter.phase}: {self._meter.state()}")

    def end(self) -> None:
        """The phase is over."""
        if self._meter is not None:
            self._write(f"{self._meter.phase}: {self._meter.outcome()}")
        self._meter = None

    def note(self, text: str) -> None:
        """One line for the person who waits."""
        self._write(text)

    def _write(self, text: str) -> None:
        self._stream.write(f"rocketlens: {one_line(text)}\n")
        self._stream.flush()


class ProgressBar:
    """A bar for each phase, on a terminal."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        """Draw on `stream`; `clock` returns seconds."""
        from rich.console import Console

        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._clock = clock
        self._meter: PhaseMeter | None = None
        self._bar: RichProgress | None = None

    def begin(self, phase: str, total: int, unit: str) -> None:
        """A phase starts."""
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._meter = PhaseMeter(phase, total, unit, self._clock)
        columns = (
            TextColumn("{task.description:<6}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[state]}", markup=False),
        )
        self._bar = RichProgress(*columns, console=self._console)
        # A bar of nothing to do would pulse for ever.
        self._bar.add_task(one_line(phase), total=max(total, 1), completed=0 if total else 1, state="")
        self._bar.start()

    def update(self, done: int, messages: int) -> None:
        """Take note of how much of the phase is done, and show it."""
        if self._meter is not None and self._bar is not None:
            self._meter.update(done, messages)
            self._show(self._meter.state())

    def end(self) -> None:
        """The phase is over."""
        if self._meter is not None and self._bar is not None:
            self._show(self._meter.outcome())
            self._bar.stop()
        self._meter = self._bar = None

    def note(self, text: str) -> None:
        """One line for the person who waits, above the bar."""
        self._console.print(f"rocketlens: {one_line(text)}", soft_wrap=True)

    def _show(self, state: str) -> None:
        assert self._meter is not None
        assert self._bar is not None
        (task,) = self._bar.task_ids
        completed = self._meter.done if self._meter.total else 1
        self._bar.update(task, completed=completed, state=state)
