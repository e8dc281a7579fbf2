"""A command that kills itself: `python killed_command.py PHASE NUMBER rebuild all STORE …`.

In the phases of scanning, building and exporting it dies while tasks run, when NUMBER of them are finished; in the
others at the NUMBER-th step of the driver: a look at an entry, an fsync, a rename. There is no hook in the product:
what the driver calls is wrapped here. Exits as usual where there are not so many steps.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOOK_AGAIN_SECONDS = 0.001
WITH_TASKS = ("scan", "build", "export")


def main() -> None:
    """Arrange the end, then run the command line."""
    phase, number = sys.argv[1], int(sys.argv[2])
    sys.argv[1:] = sys.argv[3:]
    from spark_jobs.build import chosen_names, place_entries, rebuild
    from spark_jobs.publish import atomic_rename, publish
    from spark_jobs.run import work_directory

    entered = threading.Event()
    watch(work_directory.WorkDirectory, phase, entered, number if phase in WITH_TASKS else None)
    if phase == "place":
        step = countdown(entered, number)
        wrap(place_entries, "entry_place", step)
        wrap(chosen_names, "entry_places", step)
        wrap(rebuild, "place", step)
    elif phase == "fsync":
        wrap(os, "fsync", countdown(entered, number))
    elif phase == "exchange":
        step = countdown(entered, number)
        wrap(os, "rename", step)
        wrap(os, "fsync", step)
        wrap(atomic_rename, "renameat2", step)
    assert publish.EXCHANGE == "exchange"
    from rocketlens.cli.main import main as command_line

    command_line()


def watch(work_directory: Any, phase: str, entered: threading.Event, tasks: int | None) -> None:
    """See as long as the manifest shows the phase; with `tasks`, die when so many of the phase's are finished."""
    original = work_directory.enter

    def enter(work: Any, name: str) -> None:
        entered.clear()
        original(work, name)
        if name == phase:
            entered.set()
            if tasks is not None:
                threading.Thread(target=die_after, args=(work.root / "done", phase, tasks), daemon=True).start()

    work_directory.enter = enter


def die_after(done: Path, phase: str, tasks: int) -> None:
    """Die when so many tasks of a phase have left their records."""
    while len(list(done.glob(f"{phase}-*"))) < tasks:
        threading.Event().wait(LOOK_AGAIN_SECONDS)
    die()


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
                die()

    return step


def die() -> None:
    """As the power goes off."""
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
