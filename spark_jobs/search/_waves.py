"""Tasks in waves, whose answers come in order and take bounded room: as many at once as there are cores, twice.

The log is cut into stretches, and each wave has a task for each of the next ones. A task comes back when its part of
the room is full, and the next wave goes on behind it. What the stretches behind it have found is held meanwhile, not
searched again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from spark_jobs.run.engine import Engine

WAVES_OF: Final = 2
"""Stretches a core and wave."""

WAVE_BYTES: Final = 256 * 1024 * 1024
"""Bytes of records that the driver holds; each task of a wave brings back an equal part of them, or one record."""

Task_co = TypeVar("Task_co", covariant=True)
Answer_contra = TypeVar("Answer_contra", contravariant=True)
Task = TypeVar("Task")
Answer = TypeVar("Answer")
Found = TypeVar("Found")
Asked = TypeVar("Asked")
Given = TypeVar("Given")


class Stretch(Protocol, Generic[Task_co, Answer_contra, Found]):
    """A part of the work, done from its beginning to its end; `held` is what the last task found, in order."""

    held: list[Found]

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        ...

    def task(self, most: int) -> Task_co:
        """Return the task for the rest of the work, which is to bring about `most` bytes."""
        ...

    def take(self, answer: Answer_contra) -> None:
        """Store the results of a task, and continue behind them."""
        ...


def answers_in_waves(
    engine: Engine, name: str, tasks: Sequence[Task], function: Callable[[Task], Answer]
) -> Iterator[Answer]:
    """What tasks answer, in order; the driver holds the answers of one wave. Raises TaskFailed."""
    at_once = WAVES_OF * engine.tasks_at_once
    for first in range(0, len(tasks), at_once):
        yield from engine.run_tasks(name, tasks[first : first + at_once], function)


def in_waves(
    engine: Engine,
    name: str,
    stretches: Iterable[Stretch[Asked, Given, Found]],
    function: Callable[[Asked], Given],
) -> Iterator[Found]:
    """Yield the results of tasks over stretches, in order. Raises TaskFailed."""
    at_once = WAVES_OF * engine.tasks_at_once
    waiting = iter(stretches)
    wave = list(islice(waiting, at_once))
    while wave:
        asked = [each for each in wave if not each.held]
        tasks = [each.task(WAVE_BYTES // at_once) for each in asked]
        for each, answer in zip(asked, engine.run_tasks(name, tasks, function), strict=True):
            each.take(answer)
        while wave:
            held, wave[0].held = wave[0].held, []
            yield from held
            if not wave[0].is_done:
                break
            wave.pop(0)
        wave += islice(waiting, at_once - len(wave))
