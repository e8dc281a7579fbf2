"""The load generator: a process of its own that keeps a number of requests in flight and says how they were answered.

Requests are prebuilt frames in one buffer, so that sending the next k is one ``send`` of a slice; answers are parsed
by one kernel call a read, which matches each to its request by opaque and checks code 0 and a body. It costs about 1
µs of its own CPU a request: it must not be what is measured. Its report is one JSON object on stdout.
"""

import json
import select
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np

from benchmarks.kernels.answers import (
    ANSWERS,
    BAD,
    BODY_BYTES,
    COUNTERS,
    FIRST_BAD,
    FRAME_BYTES,
    UNANSWERED,
    read_answers,
)
from benchmarks.server_process import cpu_ns
from benchmarks.store_plan import StorePlan
from benchmarks.workload import WORKLOADS, Requests, build_requests
from storage.kernels.region import Region

_BUFFER_SIZE = 4 << 20
_RECEIVE_ROOM = 1 << 20
_STALL_SECONDS = 60


class LoadFailed(Exception):
    """The server closed a connection or stopped answering."""


@dataclass(frozen=True)
class LoadReport:
    """One run. An answer is an error unless its code is 0, it has a body, and its request was waiting for it."""

    requests: int
    errors: int
    first_error: str | None
    seconds: float
    requests_per_second: float
    p50_us: float
    p99_us: float
    answer_bytes: int
    body_bytes: int
    expected_body_bytes: int
    server_cpu_us: float | None
    load_cpu_us: float


class Course:
    """What becomes of one set of requests: when each was sent, how long its answer took, what went wrong."""

    def __init__(self, requests: Requests) -> None:
        self.requests = requests
        self.sent_at = np.zeros(len(requests), dtype=np.int64)
        self.latency = np.full(len(requests), UNANSWERED, dtype=np.int64)
        self.tally = np.zeros(COUNTERS, dtype=np.int64)
        self.first_error: str | None = None

    def percentile_us(self, percent: float) -> float:
        """Of the answered requests' latencies; NaN when there are none."""
        answered = self.latency[self.latency != UNANSWERED]
        return float(np.percentile(answered, percent)) / 1000 if len(answered) else float("nan")

    def report(self, seconds: float, server_cpu_ns: int | None, load_cpu_ns: int) -> LoadReport:
        """The figures, CPU in microseconds an answer."""
        answers = int(self.tally[ANSWERS])
        return LoadReport(
            requests=answers,
            errors=int(self.tally[BAD]),
            first_error=self.first_error,
            seconds=seconds,
            requests_per_second=answers / seconds,
            p50_us=self.percentile_us(50),
            p99_us=self.percentile_us(99),
            answer_bytes=int(self.tally[FRAME_BYTES]),
            body_bytes=int(self.tally[BODY_BYTES]),
            expected_body_bytes=self.requests.body_bytes,
            server_cpu_us=None if server_cpu_ns is None else server_cpu_ns / 1000 / max(answers, 1),
            load_cpu_us=load_cpu_ns / 1000 / max(answers, 1),
        )


class Lane:
    """One connection and its share of a course: requests ``first`` to ``behind - 1``, ``in_flight`` at a time."""

    def __init__(self, port: int, course: Course, first: int, behind: int, in_flight: int) -> None:
        self._course, self._next, self._behind, self._in_flight = course, first, behind, in_flight
        self._frames = memoryview(course.requests.frames)
        self._bounds: list[int] = course.requests.bounds[first : behind + 1].tolist()
        self._first = first
        self.unanswered = 0
        self._buffer = np.empty(_BUFFER_SIZE, dtype=np.uint8)
        self._region = Region(self._buffer)
        self._view = memoryview(self._buffer.data)
        self._start = self._filled = 0
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # In the kernel: settimeout() would cost a poll(2) before every read.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _STALL_SECONDS, 0))

    def begin(self) -> None:
        """Sends the first requests."""
        self._send(self._in_flight)

    def turn(self) -> None:
        """Reads what has come, and sends as many new requests as were answered."""
        received = self._receive()
        now = time.perf_counter_ns()
        self._filled += received
        course = self._course
        answers, bad = int(course.tally[ANSWERS]), int(course.tally[BAD])
        self._start = read_answers(
            self._region, self._start, self._filled, now, course.sent_at, course.latency, course.tally
        )
        if course.tally[BAD] != bad and course.first_error is None:
            position = int(course.tally[FIRST_BAD])
            course.first_error = bytes(self._view[position : position + 300]).decode(errors="replace")
        answered = int(course.tally[ANSWERS]) - answers
        self.unanswered -= answered
        self._send(answered)

    def _receive(self) -> int:
        if self._start == self._filled:
            self._start = self._filled = 0
        elif _BUFFER_SIZE - self._filled < _RECEIVE_ROOM:
            rest = self._filled - self._start
            self._buffer[:rest] = self._buffer[self._start : self._filled].copy()
            self._start, self._filled = 0, rest
        try:
            received = self.socket.recv_into(self._view[self._filled :])
        except BlockingIOError as error:
            raise LoadFailed(f"no answer for {_STALL_SECONDS} s") from error
        if not received:
            raise LoadFailed("the server closed the connection")
        return received

    def _send(self, count: int) -> None:
        behind = min(self._next + count, self._behind)
        if behind == self._next:
            return
        bounds, first = self._bounds, self._first
        self._course.sent_at[self._next : behind] = time.perf_counter_ns()
        self.socket.sendall(self._frames[bounds[self._next - first] : bounds[behind - first]])
        self.unanswered += behind - self._next
        self._next = behind


def open_lanes(port: int, course: Course, connections: int, in_flight: int) -> list[Lane]:
    """As many connections, each with an equal, contiguous share of the requests."""
    edges = np.linspace(0, len(course.requests), connections + 1).astype(int).tolist()
    return [Lane(port, course, edges[i], edges[i + 1], in_flight) for i in range(connections)]


def drive(lanes: Sequence[Lane], beside: Sequence[Lane] = ()) -> float:
    """Runs ``lanes`` to their end, and ``beside`` for as long; the seconds it took."""
    everyone = {lane.socket.fileno(): lane for lane in (*lanes, *beside)}
    started = time.perf_counter()
    try:
        for lane in everyone.values():
            lane.begin()
        if len(everyone) == 1:
            (only,) = everyone.values()
            while only.unanswered > 0:
                only.turn()
        else:
            _drive_many(everyone, lanes)
        return time.perf_counter() - started
    finally:
        for lane in everyone.values():
            lane.socket.close()


def _drive_many(everyone: dict[int, Lane], lanes: Sequence[Lane]) -> None:
    with select.epoll() as poll:
        for descriptor in everyone:
            poll.register(descriptor, select.EPOLLIN)
        while any(lane.unanswered > 0 for lane in lanes):
            ready = poll.poll(_STALL_SECONDS)
            if not ready:
                raise LoadFailed(f"no answer for {_STALL_SECONDS} s")
            for descriptor, _ in ready:
                everyone[descriptor].turn()


def run_load(port: int, requests: Requests, connections: int, in_flight: int, pid: int | None = None) -> LoadReport:
    """One measurement; with ``pid``, of that server process's CPU too."""
    course = Course(requests)
    lanes = open_lanes(port, course, connections, in_flight)
    server_before, load_before = cpu_ns(pid) if pid else 0, time.process_time_ns()
    seconds = drive(lanes)
    load_cpu = time.process_time_ns() - load_before
    return course.report(seconds, cpu_ns(pid) - server_before if pid else None, load_cpu)


def run_beside(port: int, requests: Requests, beside: Requests) -> tuple[LoadReport, LoadReport]:
    """Two connections with one request in flight each: reports of ``requests`` and of ``beside``, run as long."""
    course, other = Course(requests), Course(beside)
    lanes, other_lanes = open_lanes(port, course, 1, 1), open_lanes(port, other, 1, 1)
    load_before = time.process_time_ns()
    seconds = drive(lanes, other_lanes)
    load_cpu = time.process_time_ns() - load_before
    return course.report(seconds, None, load_cpu), other.report(seconds, None, load_cpu)


@click.command()
@click.option("--port", type=int, required=True, help="Of a server on 127.0.0.1.")
@click.option("--store", type=click.Path(path_type=Path, exists=True), required=True, help="As make_store printed it.")
@click.option("--workload", type=click.Choice(WORKLOADS), required=True)
@click.option("--requests", "count", default=100_000, show_default=True)
@click.option("--connections", default=4, show_default=True)
@click.option("--in-flight", default=16, show_default=True, help="Requests a connection.")
@click.option("--seed", default=1, show_default=True)
@click.option("--pid", type=int, help="Server process whose CPU is read.")
@click.option(
    "--beside", type=click.Choice(WORKLOADS), help="Run 1 x 1, with this workload 1 x 1 on another connection."
)
def main(
    port: int,
    store: Path,
    workload: str,
    count: int,
    connections: int,
    in_flight: int,
    seed: int,
    pid: int | None,
    beside: str | None,
) -> None:
    """Load a server with one workload and print the report as JSON."""
    plan = StorePlan.load(store)
    requests = build_requests(plan, workload, count, seed)
    if beside:
        reports = run_beside(port, requests, build_requests(plan, beside, count, seed))
        print(json.dumps([asdict(report) for report in reports]))
    else:
        print(json.dumps(asdict(run_load(port, requests, connections, in_flight, pid))))


if __name__ == "__main__":
    main()
