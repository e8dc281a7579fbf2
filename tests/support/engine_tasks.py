"""Tasks for engines to be tried by: what processes import that do them."""

import contextlib
import os
import signal
import sys
from pathlib import Path

from blocking_client import eventually
from protocol.errors import StoreError

END_SECONDS = 60


def double(number: int) -> int:
    return 2 * number


def number_of_process(_: int) -> int:
    return os.getpid()


def fail(error: Exception) -> None:
    raise error


def die(how: int) -> None:
    os.kill(os.getpid(), how)
    signal.pause()


def leave(code: int) -> None:
    os._exit(code)


def first_fails(task: tuple[int, str]) -> str:
    number, directory = task
    place = Path(directory)
    if number == 0:
        eventually(lambda: len(list(place.glob("running-*"))) >= 1, "the other task", END_SECONDS)
        raise StoreError(place, what="is not what it was")
    running = place / f"running-{number}"
    running.touch()
    try:
        while True:
            signal.pause()
    finally:
        (place / f"tidied-{number}").touch()
        running.unlink()


def run_for_ever(place: str) -> None:
    (Path(place) / str(os.getpid())).touch()
    while True:
        with contextlib.suppress(SystemExit):  # deaf to all but the kernel
            signal.pause()


def facts_of_process(_: int) -> dict[str, object]:
    status = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":\t", 1) for line in status if ":\t" in line)
    return {
        "ids": (fields["Uid"].split(), fields["Gid"].split()),
        "path": sys.path,
        "safe": sys.flags.safe_path,
        "group": os.getpgrp(),
        "stdin": os.readlink("/proc/self/fd/0"),
        "arguments": Path("/proc/self/cmdline").read_bytes().split(b"\0"),
        "descriptors": len(os.listdir("/proc/self/fd")),
    }


def die_or_stay(task: tuple[str, str]) -> None:
    kind, place = task
    if kind == "stay":
        run_for_ever(place)
    eventually(lambda: bool(os.listdir(place)), "the other task", END_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()
