"""A command that kills itself: `python killed_command.py PHASE NUMBER rebuild all STORE …`.

It dies in a phase, at the NUMBER-th step of the driver, counted from 0. In the phases of scanning, building and
exporting a step is the answer of a task; in the others a look at an entry, an fsync, a rename. There is no hook in the
product: what the driver calls is wrapped here. Exits as usual where there are not so many steps.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

WITH_TASKS = ("scan", "build", "export")


def main() -> None:
    """Arrange the end, then run the command line."""
    phase, number = sys.argv[1], int(sys.argv[2])
    sys.argv[1:] = sys.argv[3:]
    from spark_jobs.build import chosen_names, place_entries, rebuild
    from spark_jobs.publish import _atomic_rename, publish
    from spark_jobs.run import local_engine, work_directory

    entered = threading.Event()
    watch(work_directory.WorkDirectory, phase, entered)
    step = countdown(entered, number)
    if phase in WITH_TASKS:
        wrap(local_engine, "_result", step)
    elif phase == "place":
        wrap(place_entries, "entry_place", step)
        wrap(chosen_names, "entry_places", step)
        wrap(rebuild, "place", step)
    elif phase == "fsync":
        wrap(os, "fsync", step)
    elif phase == "exchange":
        wrap(os, "rename", step)
        wrap(os, "fsync", step)
        wrap(_atomic_rename, "renameat2", step)
    assert publish.EXCHANGE == "exchange"
    from rocketlens.cli.main import main as command_line

    command_line()


def watch(work_directory: Any, phase: str, entered: threading.Event) -> None:
    """See as long as the manifest shows the phase."""
    original = work_directory.enter

    def enter(work: Any, name: str) -> None:
        entered.clear()
        original(work, name)
        if name == phase:
            entered.set()

    work_directory.enter = enter


def wrap(owner: Any, name: str, before: Callable[..., None]) -> None:
    """Call something in front of a function."""
    original = getattr(owner, name)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        before(*arguments)
        return original(*arguments, **named)

    setattr(owner, name, wrapped)


def countdown(entered: threading.Event, number: int) -> Callable[..., None]:
    """Die at the so-manieth call of the phase."""
    left = number

    def step(*_: object) -> None:
        nonlocal left
        if entered.is_set():
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return step


if __name__ == "__main__":
    main()
