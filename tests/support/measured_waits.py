"""What one client waits for its answers, and what memory a server takes meanwhile."""

import socket
import time
from pathlib import Path

from broker.endpoint import Endpoint
from protocol.codes import RequestCode
from protocol.command import encode_request

REQUEST = encode_request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "6581"}, opaque=1)


def waits(endpoint: Endpoint, seconds: float, request: bytes = REQUEST) -> list[float]:
    """How long one client waits for each answer, asking 200 times a second."""
    measured = []
    with socket.create_connection(endpoint, 30) as connection:
        end = time.monotonic() + seconds
        while (started := time.monotonic()) < end:
            connection.sendall(request)
            assert connection.recv(65536)
            measured.append(time.monotonic() - started)
            time.sleep(0.005)
    return sorted(measured)


def private_bytes(worker: Path) -> int:
    """The memory that a process shares with no other."""
    lines = (worker / "smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private"))


def p99(measured: list[float]) -> float:
    """The wait that a hundredth of sorted waits exceeds."""
    return measured[len(measured) * 99 // 100]
