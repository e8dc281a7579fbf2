"""An official producer that sends all the time, and what the broker answered it about each message."""

import contextlib
import os
import queue
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

from interop.jars import SERVER_VERSION, compiled, jars
from interop.java_client import SMALL_JVM
from interop.official_broker import class_archive
from needed_tools import tool

SOURCE = Path(__file__).with_name("Producing.java")


@dataclass(frozen=True)
class Sent:
    """One message that the broker has taken; see `Producing.java` for what it holds."""

    number: int
    topic: str
    queue_id: int
    queue_offset: int
    unique_key: str
    physical_offset: int

    @classmethod
    def of(cls, line: str) -> "Sent":
        number, *rest = line.rstrip("\n").split("\t")
        if number == "failed":
            raise RuntimeError(rest[0])
        topic, queue_id, queue_offset, unique_key, offset_message_id = rest
        return cls(int(number), topic, int(queue_id), int(queue_offset), unique_key, int(offset_message_id[-16:], 16))

    @property
    def keys(self) -> str:
        return f"key{self.number} all"

    @property
    def tag(self) -> str:
        return f"tag{self.number // 8}"

    @property
    def body(self) -> bytes:
        unit = f"body {self.number} ".encode()
        size = 100 + self.number * 7919 % 6000
        return (unit * (size // len(unit) + 1))[:size]


class Producer:
    """The running producer; what it sent lies in `sent`, in order, and is handed out once by `take`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._new: queue.Queue[Sent] = queue.Queue()
        self.sent: list[Sent] = []
        self.failure: Exception | None = None
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def send_to(self, topic: str) -> None:
        self._process.stdin.write(f"{topic}\n")
        self._process.stdin.flush()

    def take(self) -> Sent:
        """The next message; `queue.Empty` after a second without one."""
        return self._new.get(timeout=1)

    def stop(self) -> None:
        self._process.stdin.close()
        self._process.wait(60)
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                sent = Sent.of(line)
            except Exception as error:
                self.failure = error
            else:
                self.sent.append(sent)
                self._new.put(sent)


@contextlib.contextmanager
def producing(name_server, work, per_second):
    home = work / "producing-home"
    home.mkdir()
    class_path = f"{jars(SERVER_VERSION)}/*{os.pathsep}{compiled(jars(SERVER_VERSION), SOURCE)}"
    command = [tool("java"), *SMALL_JVM, *class_archive(), f"-Duser.home={home}", "-cp", class_path]
    with (home / "stderr.log").open("wb") as log:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
        process = subprocess.Popen([*command, "Producing", name_server, str(per_second)], **pipes, cwd=home, text=True)
    try:
        producer = Producer(process)
        yield producer
        producer.stop()
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
