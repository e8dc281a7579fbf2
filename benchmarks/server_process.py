"""A server as a child process, and what the kernel knows about it: CPU time and memory.

CPU is the process's user and system time, all threads, ended ones included: the sum that /proc/PID/stat shows in
ticks of 10 ms, read from the process's POSIX CPU clock, which has it in nanoseconds. Memory is from /proc/PID/status.
"""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from benchmarks.remoting import Peer
from benchmarks.store_plan import TOPIC

_CPU_CLOCK_OF_PROCESS = 2  # CPUCLOCK_SCHED; the clock id of a process is (~pid << 3) | this (clock_getcpuclockid(3))
_POLL_SECONDS = 0.002
_PORTS_OF_SERVERS = 15_000, 32_000


class ServerFailed(Exception):
    """A server did not start, or did not do in time what it should; the message holds the end of its output."""


@dataclass(frozen=True)
class FirstAnswer:
    """Seconds from the start of the process."""

    port_opened_seconds: float
    answered_seconds: float


class ServerProcess:
    """A running server. ``log`` collects its output; use as a context manager or call ``stop``."""

    def __init__(
        self,
        command: Sequence[str],
        port: int,
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        self.command, self.port, self._log = tuple(command), port, log
        self.started_at = time.perf_counter()
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                cwd=directory,
            )

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._child.pid

    def wait_for(self, condition: Callable[[], bool], timeout_seconds: float, what: str) -> None:
        """Polls until the condition holds. Raises ServerFailed at the deadline or when the process ends."""
        deadline = time.perf_counter() + timeout_seconds
        while not condition():
            if self._child.poll() is not None:
                raise ServerFailed(f"exit code {self._child.returncode} before {what}: {self.output_end()}")
            if time.perf_counter() > deadline:
                raise ServerFailed(f"no {what} within {timeout_seconds} s: {self.output_end()}")
            time.sleep(_POLL_SECONDS)

    def wait_until_open(self, timeout_seconds: float = 120) -> None:
        """Returns once the port accepts a connection."""
        self.wait_for(lambda: _is_open(self.port), timeout_seconds, f"listener on port {self.port}")

    def first_answer(self, physical_offset: int, timeout_seconds: float = 120, topic: str = TOPIC) -> FirstAnswer:
        """Waits for the port, asks for one message of a topic at once; returns when each came."""
        self.wait_until_open(timeout_seconds)
        opened = time.perf_counter()
        with Peer(self.port, timeout_seconds=timeout_seconds) as peer:
            peer.view(physical_offset, topic)
        return FirstAnswer(opened - self.started_at, time.perf_counter() - self.started_at)

    def output_end(self) -> str:
        """The last 2,000 bytes the server printed."""
        return self._log.read_bytes()[-2000:].decode(errors="replace")

    def stop(self, timeout_seconds: float = 30) -> int:
        """SIGTERM, then SIGKILL at the deadline; the exit code."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
        try:
            return self._child.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self._child.kill()
            return self._child.wait()


def cpu_ns(pid: int) -> int:
    """CPU time a process has used, in nanoseconds: user and system, every thread it ever had."""
    try:
        return time.clock_gettime_ns((~pid << 3) | _CPU_CLOCK_OF_PROCESS)
    except OSError:  # a kernel that refuses another process's clock: the same sum in ticks
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> dict[str, float]:
    """``RssAnon`` (private) and ``VmRSS`` (with mapped files) in MB of 10**6 bytes."""
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {line[0][:-1]: int(line[1]) * 1024 / 1e6 for line in lines if line[0] in ("RssAnon:", "VmRSS:")}


def private_mb(pid: int) -> float:
    """Memory that a process has written to and shares with no other, in MB of 10**6 bytes."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(rollup.partition("Private_Dirty:")[2].split()[0]) * 1024 / 1e6


def free_port(neighbours: Sequence[int] = (), host: str = "127.0.0.1") -> int:
    """A port of a loopback address that is free, and so are its neighbours.

    It is taken later, so it is below those that the system gives to outgoing connections and for port 0: only a process
    that names it can take it meanwhile.
    """
    while True:
        port = random.SystemRandom().randrange(*_PORTS_OF_SERVERS)
        if not any(_is_taken(host, port + distance) for distance in (0, *neighbours)):
            return port


def children_of(pid: int) -> list[int]:
    """The processes that a process has started and that run."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def rocketlens_command(store: Path, port: int, state_directory: Path, workers: int = 0) -> list[str]:
    """How the benchmark starts our server: defaults, but in the one process that is measured, or in several."""
    options = ["--listen", f"127.0.0.1:{port}", "--state-dir", str(state_directory)]
    return [str(Path(sys.executable).with_name("rocketlens")), "serve", str(store), "--workers", str(workers), *options]


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _is_taken(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError:
        return True
    return False
