"""Ten thousand pulls held at the end of their queues: what they cost, and how soon all are answered when messages come.

    python -m benchmarks.long_polls [--held 10000] [--queues 1] [--connections 10] [--wakes 5]

A small store is made and served by a process of its own; the pulls are sent over so many connections; then a message is
appended to each queue as a broker appends it, into the log's file and then into the queue's. Printed is a JSON object:
memory of the server (VmRSS, and its part RssAnon) and the share of a core it used while idle, before and with the
pulls; and for each wake how long the writing took, the times from its begin to the first and the last answer, and the
server's CPU time until then.
"""

import json
import os
import selectors
import socket
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct

import click

from benchmarks.make_store import BLANK_RECORD, LENGTH_OF_PROPERTIES, MESSAGE_MAGIC, RECORD_HEAD
from benchmarks.server_process import ServerProcess, cpu_ns, free_port, memory_mb, rocketlens_command
from benchmarks.store_plan import BORN_HOST, FIRST_STORE_TIMESTAMP, STORE_HOST

TOPIC = "Waiting"
SEGMENT_BYTES = 64 * 1024 * 1024
QUEUE_FILE_BYTES = 6_000_000
UNIT = Struct(">qiq")
PULL_MESSAGE = 11
SUCCESS = b'"code":0,'
SUSPEND_AND_SUBSCRIPTION = 6
PATIENCE_MILLISECONDS = 19_000
SETTLE_SECONDS = 2.0
DEADLINE_SECONDS = 30.0


class GrowingStore:
    """A store of one topic, to which messages are appended as a broker does it."""

    def __init__(self, root: Path, queues: int) -> None:
        self._queues = root / "consumequeue" / TOPIC
        self._offsets = [0] * queues
        self._end = 0
        path = root / "commitlog" / f"{0:020d}"
        path.parent.mkdir(parents=True)
        self._log = os.open(path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(self._log, SEGMENT_BYTES)
        topic = {"topicName": TOPIC, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}
        (root / "config").mkdir()
        (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {TOPIC: topic}}))
        for queue_id in range(queues):
            self._queue_path(queue_id).parent.mkdir(parents=True)
            with self._queue_path(queue_id).open("wb") as file:
                file.truncate(QUEUE_FILE_BYTES)

    def append_to_all(self) -> None:
        """A message for each queue."""
        for queue_id in range(len(self._offsets)):
            self._append(queue_id)

    def offset(self, queue_id: int) -> int:
        """Where a queue ends."""
        return self._offsets[queue_id]

    def _queue_path(self, queue_id: int) -> Path:
        return self._queues / str(queue_id) / f"{0:020d}"

    def _append(self, queue_id: int) -> None:
        queue_offset, body = self._offsets[queue_id], b"x" * 200
        name = TOPIC.encode()
        size = RECORD_HEAD.size + len(body) + 1 + len(name) + LENGTH_OF_PROPERTIES.size
        if self._end + size + BLANK_RECORD.size > SEGMENT_BYTES:
            raise click.ClickException("the segment of this benchmark is full: ask for fewer queues or wakes")
        now = FIRST_STORE_TIMESTAMP + self._end
        fields = size, MESSAGE_MAGIC, zlib.crc32(body) & 0x7FFFFFFF, queue_id, 0, queue_offset, self._end, 0
        head = RECORD_HEAD.pack(*fields, now, BORN_HOST, now, STORE_HOST, 0, 0, len(body))
        os.pwrite(self._log, head + body + bytes([len(name)]) + name + LENGTH_OF_PROPERTIES.pack(0), self._end)
        with self._queue_path(queue_id).open("r+b") as file:
            file.seek(queue_offset * UNIT.size)
            file.write(UNIT.pack(self._end, size, 0))
        self._end += size
        self._offsets[queue_id] += 1


class Waiters:
    """Connections with pulls under way, whose answers are counted."""

    def __init__(self, port: int, connections: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
        self._rests = dict.fromkeys(self._sockets, b"")
        self._opaque = 0
        for connection in self._sockets:
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ)

    def send(self, queue_offsets: Sequence[int], held: int) -> None:
        """Send pulls at the ends of queues, in turn."""
        frames: list[list[bytes]] = [[] for _ in self._sockets]
        for number in range(held):
            queue_id = number % len(queue_offsets)
            frames[number % len(frames)].append(self._pull(queue_id, queue_offsets[queue_id]))
        for connection, parts in zip(self._sockets, frames, strict=True):
            connection.setblocking(True)
            connection.sendall(b"".join(parts))
            connection.setblocking(False)

    def answers(self) -> Iterator[tuple[float, bool]]:
        """When each answer came, and whether it brings messages; ends with the deadline."""
        deadline = time.perf_counter() + DEADLINE_SECONDS
        while (left := deadline - time.perf_counter()) > 0:
            for key, _ in self._selector.select(left):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                data = connection.recv(1 << 20)
                if not data:
                    raise click.ClickException("the server closed a connection")
                now = time.perf_counter()
                yield from ((now, is_success) for is_success in self._successes(connection, data))

    def close(self) -> None:
        """Let go of all connections."""
        for connection in self._sockets:
            connection.close()

    def _successes(self, connection: socket.socket, data: bytes) -> list[bool]:
        data = self._rests[connection] + data
        position, found = 0, []
        while len(data) - position >= 4:
            end = position + 4 + int.from_bytes(data[position : position + 4])
            if end > len(data):
                break
            # No more than that is looked at: reading JSON takes longer than the server takes to answer.
            header_length = int.from_bytes(data[position + 5 : position + 8])
            found.append(data.find(SUCCESS, position + 8, position + 8 + header_length) >= 0)
            position = end
        self._rests[connection] = data[position:]
        return found

    def _pull(self, queue_id: int, queue_offset: int) -> bytes:
        self._opaque += 1
        fields = {
            "consumerGroup": "G", "topic": TOPIC, "queueId": queue_id, "queueOffset": queue_offset, "maxMsgNums": 32,
            "sysFlag": SUSPEND_AND_SUBSCRIPTION, "commitOffset": 0, "suspendTimeoutMillis": PATIENCE_MILLISECONDS,
            "subscription": "*", "subVersion": 0,
        }  # fmt: skip
        texts = {name: str(value) for name, value in fields.items()}
        header = json.dumps({"code": PULL_MESSAGE, "opaque": self._opaque, "flag": 0, "extFields": texts}).encode()
        return (4 + len(header)).to_bytes(4) + len(header).to_bytes(4) + header


def measure(server: ServerProcess, store: GrowingStore, queues: int, held: int, connections: int, wakes: int) -> object:
    """Hold the pulls, be idle for a while, wake them all; a few times."""
    before, idle_before = memory_mb(server.pid), _share_of_a_core(server.pid)
    waiters = Waiters(server.port, connections)
    rounds, memory, idle = [], before, 0.0
    try:
        for _ in range(wakes):
            waiters.send([store.offset(queue_id) for queue_id in range(queues)], held)
            time.sleep(SETTLE_SECONDS)
            idle = max(idle, _share_of_a_core(server.pid))
            memory = max(memory, memory_mb(server.pid), key=lambda found: found["VmRSS"])
            cpu, written_at = cpu_ns(server.pid), time.perf_counter()
            store.append_to_all()
            write_ms = (time.perf_counter() - written_at) * 1e3
            times = _wake(waiters, held, written_at)
            rounds.append({"write_ms": write_ms, **times, "server_cpu_ms": (cpu_ns(server.pid) - cpu) / 1e6})
    finally:
        waiters.close()
    sizes = {"held": held, "queues": queues, "connections": connections}
    return {
        **sizes,
        "memory_before_mb": before,
        "memory_held_mb": memory,
        "idle_core_share_before": idle_before,
        "idle_core_share_held": idle,
        "wakes": rounds,
    }


def _wake(waiters: Waiters, held: int, written_at: float) -> dict[str, float]:
    times: list[float] = []
    for now, is_success in waiters.answers():
        if not is_success:
            raise click.ClickException("a pull was answered without a message")
        times.append(now)
        if len(times) == held:
            return {"first_ms": (times[0] - written_at) * 1e3, "last_ms": (times[-1] - written_at) * 1e3}
    raise click.ClickException(f"{len(times)} of {held} pulls were answered")


def _share_of_a_core(pid: int, seconds: float = 5.0) -> float:
    cpu, start = cpu_ns(pid), time.perf_counter_ns()
    time.sleep(seconds)
    return (cpu_ns(pid) - cpu) / (time.perf_counter_ns() - start)


@click.command()
@click.option("--held", default=10_000, show_default=True, help="Pulls.")
@click.option("--queues", default=1, show_default=True, help="Queues they wait at.")
@click.option("--connections", default=10, show_default=True)
@click.option("--wakes", default=5, show_default=True, help="How often all are woken.")
def main(held: int, queues: int, connections: int, wakes: int) -> None:
    """Measure what held pulls cost and how soon they are answered, and print it as JSON."""
    with tempfile.TemporaryDirectory(prefix="long-polls-") as directory:
        root = Path(directory, "store")
        store = GrowingStore(root, queues)
        store.append_to_all()
        port = free_port()
        command = rocketlens_command(root, port, Path(directory, "state"))
        with ServerProcess(command, port, log=Path(directory, "log")) as server:
            server.wait_until_open()
            time.sleep(SETTLE_SECONDS)
            click.echo(json.dumps(measure(server, store, queues, held, connections, wakes), indent=1))


if __name__ == "__main__":
    main()
