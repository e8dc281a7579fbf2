"""The recovery of the official broker's own store classes, run on one store after the other in one JVM."""

import contextlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from interop.jars import OLD_CLIENT_VERSION, SERVER_VERSION, compiled, store_jars
from interop.official_broker import OPEN_MODULES, SMALL_JVM
from needed_tools import tool

SHAPES_BY = {SERVER_VERSION: ("small", "ext", "classic", "recut", "expired"), OLD_CLIENT_VERSION: ("old",)}
"""The shapes of stores that a broker of each version writes."""

MOST_LOADED = 40
"""Stores that one JVM loads."""

SOURCE = Path(__file__).with_name("RecoveryOracle.java")


@dataclass(frozen=True)
class Sizes:
    segment: int
    queue_file: int
    batch_file: int = 46 * 4
    slots: int = 31
    entries: int = 150


@dataclass(frozen=True)
class Recovered:
    is_loaded: bool
    end: int
    segments: tuple[str, ...]


@dataclass(frozen=True)
class Consumed:
    minimum: int
    maximum: int
    places: tuple[int, ...]


class RecoveryOracle:
    """A JVM that loads stores, which changes them as a start does; one JVM for some, since each leaves threads."""

    def __init__(self, start) -> None:
        self._start, self._process, self._loaded = start, start(), 0

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def load(self, root: Path, sizes: Sizes) -> Recovered:
        if self._loaded == MOST_LOADED:
            self.close()
            self._process, self._loaded = self._start(), 0
        self._loaded += 1
        numbers = (sizes.segment, sizes.queue_file, sizes.batch_file, sizes.slots, sizes.entries)
        is_loaded, end, *names = self._ask(" ".join(map(str, (root, *numbers)))).split()
        return Recovered(is_loaded == "true", int(end), tuple(names[0].split(",")) if names else ())

    def clean(self) -> None:
        """Have the store delete the files of queues that hold expired messages alone, as a minute after a start.

        Until then such a queue begins at its first file, and a unit that leads to the physical offset 0 delivers what
        stands first in the log (store-format §4.5, §5.3).
        """
        assert self._ask("clean") == "cleaned\n"

    def consume(self) -> dict[tuple[str, int], Consumed]:
        found = {}
        for text in self._ask("consume").split():
            topic, queue_id, minimum, maximum, places = text.split("/")
            numbers = tuple(map(int, places.split(","))) if places else ()
            found[topic, int(queue_id)] = Consumed(int(minimum), int(maximum), numbers)
        return found

    def offsets_by_time(self, topic, queue_id, boundary, times) -> list[int]:
        question = f"times {topic} {queue_id} {boundary} {' '.join(map(str, times))}"
        return [int(text) for text in self._ask(question).split()]

    def pull(self, topic: str, queue_id: int, offset: int, maximum: int) -> tuple[str, int, int, int, list[int]]:
        status, *numbers = self._ask(f"pull {topic} {queue_id} {offset} {maximum}").split()
        following, least, most = map(int, numbers[:3])
        return status, following, least, most, [int(each) for part in numbers[3:] for each in part.split(",")]

    def _ask(self, question: str) -> str:
        self._process.stdin.write(question + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the oracle has ended at: {question}"
        return answer


@contextlib.contextmanager
def recovery_oracle(home, version=SERVER_VERSION):
    classes = store_jars(version)
    class_path = f"{classes}/*{os.pathsep}{compiled(classes, SOURCE)}"
    command = [tool("java"), *SMALL_JVM, *OPEN_MODULES, f"-Drocketmq.home.dir={home}", f"-Duser.home={home}"]

    def start() -> "subprocess.Popen[str]":
        with (home / "output.log").open("a") as output:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": output}
            return subprocess.Popen([*command, "-cp", class_path, "RecoveryOracle"], **pipes, text=True, cwd=home)

    oracle = RecoveryOracle(start)
    try:
        yield oracle
    finally:
        oracle.close()
