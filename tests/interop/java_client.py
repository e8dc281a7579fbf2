"""Official Java clients and mqadmin, driven from Python: a JVM a version and header form, a line of JSON a command."""

import json
import os
import selectors
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interop.jars import compiled, jars
from interop.official_broker import QUICK_JVM, class_archive
from needed_tools import tool

SOURCES = [Path(__file__).with_name(name) for name in ("Harness.java", "Consumers.java")]
SOURCES_OF_5 = [Path(__file__).with_name("Dashboard.java")]
"""What uses classes that 4.9 has in other packages."""
ANSWER_SECONDS = 180
SMALL_JVM = ["-Xms32m", "-Xmx256m", *QUICK_JVM]
TOOLS_LOGBACK = "<configuration><root level='OFF'/></configuration>\n"


@dataclass(frozen=True)
class Subscription:
    """How a consumer is started. ``kind`` is push, orderly, broadcasting (both push too) or lite.

    A push consumer takes ``limit`` messages. What comes beyond it refuses or, if it ``holds``, keeps undecided.
    It pulls on while it has less than ``cached`` messages of a queue.
    """

    kind: str
    group: str
    topic: str
    expression: str = "*"
    expression_type: str = "TAG"
    limit: int = 2**62
    holds: bool = False
    cached: int = 1000
    credentials: tuple[str, str] | None = None
    traced: bool = False
    """Whether a push consumer sends a trace of what it consumed."""
    client_rebalance: bool = True
    """Whether members share out the queues themselves; if not, they ask the server (clients of 5.x only)."""
    heartbeat_millis: int = 1000
    """Not the default, 30 s: a client of 5.x may fail to tell a change of its own subscription at once, since it has
    another heartbeat under way, and any broker then refuses its pulls (code 25) until the next one."""
    route_millis: int = 30_000
    """How often the client asks its name server who there is; the default is a client's own."""

    def options(self) -> dict[str, Any]:
        keys = {} if self.credentials is None else dict(zip(("accessKey", "secretKey"), self.credentials, strict=True))
        return keys | {
            "kind": self.kind, "group": self.group, "topic": self.topic, "expression": self.expression,
            "expressionType": self.expression_type, "limit": self.limit, "holds": self.holds, "cached": self.cached,
            "traced": self.traced, "clientRebalance": self.client_rebalance, "heartbeatMillis": self.heartbeat_millis,
            "routeMillis": self.route_millis
        }  # fmt: skip


@dataclass(frozen=True)
class Consumed:
    """What a consumer received, in that order, how often it refused each (queue, queue offset), and what it holds."""

    messages: list[dict[str, Any]]
    refused: dict[tuple[int, int], int]
    queues: set[tuple[str, int]]

    @classmethod
    def of(cls, answer: dict[str, Any]) -> "Consumed":
        refused = {_two_numbers(place): times for place, times in answer["refused"].items()}
        queues = {(topic, int(number)) for topic, number in (text.split(" ") for text in answer.get("queues", ()))}
        return cls(answer["messages"], refused, queues)

    @property
    def places(self) -> list[tuple[int, int]]:
        return [(message["queueId"], message["queueOffset"]) for message in self.messages]


def _two_numbers(text: str) -> tuple[int, int]:
    first, second = text.split(" ")
    return int(first), int(second)


class JavaError(Exception):
    """What a Java client threw: its class and message."""


class JavaClient:
    """A JVM with the jars of one version; ``form`` is JSON or ROCKETMQ, the form in which it writes its headers."""

    def __init__(self, version: str, form: str, work: Path, *properties: str) -> None:
        """Starts the harness with that version's jars; ``work`` is its home and gets its logs.

        ``properties`` are system properties for it, like ``-Dtls.enable=true``.
        """
        self.version, self.form = version, form
        self._used: set[str] = set()
        home = work / "home"
        (home / "conf").mkdir(parents=True)
        (home / "conf" / "logback_tools.xml").write_text(TOOLS_LOGBACK)
        classes = compiled(jars(version), *SOURCES, *(SOURCES_OF_5 if version.startswith("5.") else ()))
        command = [tool("java"), *SMALL_JVM, *class_archive(version), "-Duser.timezone=UTC", "-Dfile.encoding=UTF-8"]
        command += [f"-Duser.home={home}", f"-Drocketmq.home.dir={home}", f"-Drocketmq.serialize.type={form}"]
        command += properties
        command += ["-cp", f"{jars(version)}/*{os.pathsep}{classes}", "Harness"]
        self.conf = home / "conf"
        self._log = home / "stderr.log"
        with self._log.open("wb") as log:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, cwd=home)
        self._pending = b""

    def mqadmin(self, *arguments: str, limit_millis: int = 0) -> str:
        """What ``mqadmin`` prints for these arguments, without the stack frames of the harness beneath it."""
        command = {"command": "mqadmin", "arguments": arguments, "limitMillis": limit_millis}
        printed: str = self._ask(command)["output"]
        return "".join(line for line in printed.splitlines(keepends=True) if not line.startswith("\tat Harness."))

    def commands(self) -> list[str]:
        names: list[str] = self._ask({"command": "commands"})["names"]
        return names

    def view(self, name_server: str, client: str, message_id: str, topic: str | None) -> dict[str, Any]:
        """``viewMessage(topic, id)`` of the admin, producer or consumer; without topic the one-argument form of 4.x."""
        command = {"command": "view", "nameServer": name_server, "client": client, "id": message_id, "topic": topic}
        message: dict[str, Any] = self._use(name_server, command)["messages"][0]
        return message

    def query(self, name_server, client, topic, key, window=(0, 2**63 - 1)) -> list[dict[str, Any]]:
        command = {"command": "query", "nameServer": name_server, "client": client, "topic": topic, "key": key}
        command |= {"maximum": 64, "begin": window[0], "end": window[1]}
        messages: list[dict[str, Any]] = self._use(name_server, command)["messages"]
        return messages

    def send(self, name_server: str, topic: str, queue_id: int | None = None) -> str:
        command = {"command": "send", "nameServer": name_server, "client": "producer", "topic": topic}
        status: str = self._use(name_server, command | {"queueId": queue_id})["status"]
        return status

    def consume(self, name_server: str, consumers: dict[str, Subscription]) -> None:
        """Starts consumers beside each other, each in a client of its own, under these names."""
        options = [one.options() | {"name": name, "nameServer": name_server} for name, one in consumers.items()]
        self._ask({"command": "consume", "consumers": options})

    def look(self, name: str) -> Consumed:
        return Consumed.of(self._ask({"command": "look", "name": name})["consumed"])

    def limit(self, name: str, limit: int) -> None:
        self._ask({"command": "limit", "name": name, "limit": limit})

    def offset_for_timestamp(self, name: str, queue_id: int, timestamp: int) -> int:
        command = {"command": "offsetForTimestamp", "name": name, "queueId": queue_id, "timestamp": timestamp}
        offset: int = self._ask(command)["offset"]
        return offset

    def end(self, *names: str) -> dict[str, Consumed]:
        ended: dict[str, Any] = self._ask({"command": "end", "names": names})["consumed"]
        return {name: Consumed.of(consumed) for name, consumed in ended.items()}

    def dashboard(self, name_server: str, page: str, **options: Any) -> Any:
        command = {"command": "dashboard", "nameServer": name_server, "page": page}
        return self._ask(command | options)["shown"]

    def pull(self, name_server: str, group: str, topic: str, expression: str) -> list[str]:
        command = {"command": "pull", "nameServer": name_server, "group": group, "topic": topic}
        lines: list[str] = self._ask(command | {"expression": expression})["lines"]
        return lines

    def disconnect(self, name_server: str) -> None:
        if name_server in self._used:
            self._ask({"command": "disconnect", "nameServer": name_server})
            self._used.remove(name_server)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _use(self, name_server: str, command: dict[str, Any]) -> dict[str, Any]:
        self._used.add(name_server)
        return self._ask(command)

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._read_line(command))
        if "error" in answer:
            raise JavaError(answer["error"])
        return answer

    def _read_line(self, command: dict[str, Any]) -> bytes:
        deadline = time.monotonic() + ANSWER_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError(f"no answer from Java {self.version} to {command} after {ANSWER_SECONDS} s")
                chunk = os.read(self._process.stdout.fileno(), 1 << 20)
                if not chunk:
                    raise RuntimeError(f"Java {self.version} ended at {command}:\n{self._log.read_text()[-4000:]}")
                self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line
