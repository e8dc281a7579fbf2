"""How long one client waits for messages that are in memory while another reads segments that are not.

    python -m benchmarks.cold_neighbour

The log is dropped from the page cache first. One connection asks for a few hundred messages again and again, one at a
time; then the same beside another that asks for messages all over the log, sixteen at a time, without a pause.
"""

import os
import random
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.java_broker import find_jars
from benchmarks.make_store import DEFAULT_STORE_DIRECTORY, make_store
from benchmarks.measure import our_server, warm_kernel_cache
from benchmarks.remoting import encode_request
from benchmarks.report import machine
from benchmarks.store_plan import StoreParameters, StorePlan

VIEW_MESSAGE_BY_ID = 33
HOT_MESSAGES = 300
IN_FLIGHT = 16
PREFIX = 4


def view(offset: int) -> bytes:
    """A request for the message at an offset."""
    return encode_request(VIEW_MESSAGE_BY_ID, f'{{"offset":"{offset}"}}', 1)


class Client:
    """One connection, blocking."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    def send(self, frames: Sequence[bytes]) -> None:
        """Send requests."""
        self._socket.sendall(b"".join(frames))

    def receive(self, count: int) -> None:
        """Wait for so many answers."""
        while count:
            while count and len(self._received) >= PREFIX:
                end = PREFIX + int.from_bytes(self._received[:PREFIX])
                if len(self._received) < end:
                    break
                self._received = self._received[end:]
                count -= 1
            if count:
                self._received += self._socket.recv(1 << 18)


def waits(client: Client, offsets: Sequence[int], seconds: float) -> list[float]:
    """Microseconds waited for each answer, asked for one at a time."""
    measured = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for offset in offsets:
            started = time.perf_counter()
            client.send([view(offset)])
            client.receive(1)
            measured.append((time.perf_counter() - started) * 1e6)
    return measured


def drop_from_memory(store: Path) -> None:
    """Have the kernel forget the pages of the log; it keeps those that some process has mapped."""
    for path in sorted((store / "commitlog").iterdir()):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_all_over(port: int, offsets: Sequence[int], stop: threading.Event, answered: list[int]) -> None:
    """Ask for messages in random order until `stop` is set."""
    client, chooser = Client(port), random.Random(7)
    client.send([view(chooser.choice(offsets)) for _ in range(IN_FLIGHT)])
    while not stop.is_set():
        client.receive(1)
        answered[0] += 1
        client.send([view(chooser.choice(offsets))])


@click.command()
@click.option("--store-dir", type=click.Path(path_type=Path), default=DEFAULT_STORE_DIRECTORY, show_default=True)
@click.option("--count", default=StoreParameters.count, show_default=True, help="Messages, 500 bytes each.")
@click.option("--seconds", default=5.0, show_default=True, help="How long to measure each.")
def main(store_dir: Path, count: int, seconds: float) -> None:
    """Measure and print."""
    parameters = StoreParameters(count=count)
    # With its index: what no index covers is read at the start, and would be in memory.
    store = make_store(store_dir, parameters, find_jars(None))
    offsets = StorePlan(parameters).physical_offsets.tolist()
    warm_kernel_cache(store)
    drop_from_memory(store)
    with tempfile.TemporaryDirectory() as state, our_server(store, Path(state)) as server:
        server.wait_until_open()
        hot = offsets[-HOT_MESSAGES - 1 : -1]
        client = Client(server.port)
        waits(client, hot, 1.0)
        quiet = waits(client, hot, seconds)
        stop, answered = threading.Event(), [0]
        neighbour = threading.Thread(
            target=read_all_over, args=(server.port, offsets[: -2 * HOT_MESSAGES], stop, answered)
        )
        neighbour.start()
        beside = waits(client, hot, seconds)
        stop.set()
        neighbour.join()
    print(machine())
    for name, measured in (("alone", quiet), ("beside cold reads", beside)):
        figures = statistics.quantiles(measured, n=100)
        print(f"{name}: p50 {figures[49]:.0f} µs, p99 {figures[98]:.0f} µs, most {max(measured):.0f} µs")
    print(f"the neighbour was answered {answered[0] / seconds:.0f} times a second")


if __name__ == "__main__":
    main()
