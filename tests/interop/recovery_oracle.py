"""The recovery of the official broker's own store classes, run on one store after the other in one JVM."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from interop.jars import compiled, jars, tool
from interop.official_broker import OPEN_MODULES, SMALL_JVM

SOURCE = Path(__file__).with_name("RecoveryOracle.java")


@dataclass(frozen=True)
class Sizes:
    """What a broker is configured with."""

    segment: int
    queue_file: int
    batch_file: int = 46 * 4
    slots: int = 31
    entries: int = 150


@dataclass(frozen=True)
class Recovered:
    """Whether the store could be loaded, and what of its log is left."""

    is_loaded: bool
    end: int
    segments: tuple[str, ...]


class RecoveryOracle:
    """A JVM that loads stores, which changes them as a start does."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def load(self, root: Path, sizes: Sizes) -> Recovered:
        """Load a store, and say what became of its log."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        numbers = (sizes.segment, sizes.queue_file, sizes.batch_file, sizes.slots, sizes.entries)
        self._process.stdin.write(" ".join(map(str, (root, *numbers))) + "\n")
        self._process.stdin.flush()
        is_loaded, end, *names = self._process.stdout.readline().split()
        return Recovered(is_loaded == "true", int(end), tuple(names[0].split(",")) if names else ())


@contextlib.contextmanager
def recovery_oracle(home: Path) -> Iterator[RecoveryOracle]:
    """Run the oracle; ``home`` gets its logs."""
    class_path = f"{jars()}/*{os.pathsep}{compiled(jars(), SOURCE)}"
    command = [tool("java"), *SMALL_JVM, *OPEN_MODULES, f"-Drocketmq.home.dir={home}", f"-Duser.home={home}"]
    with (home / "output.log").open("w") as output:
        process = subprocess.Popen(
            [*command, "-cp", class_path, "RecoveryOracle"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            cwd=home,
        )
    try:
        yield RecoveryOracle(process)
    finally:
        process.kill()
        process.communicate()
