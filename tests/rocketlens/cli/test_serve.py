"""`rocketlens serve` as a process: the line, the signals, the exit codes."""

import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from blocking_client import BlockingClient, eventually
from broker.endpoint import Endpoint
from process import serving_process
from protocol.codes import RequestCode


def is_served(endpoint: Endpoint) -> bool:
    with BlockingClient(endpoint) as client:
        return client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"}).code == 0


@pytest.mark.parametrize(("loop", "number"), [("uvloop", signal.SIGTERM), ("asyncio", signal.SIGINT)])
def test_it_says_where_it_serves_and_a_signal_ends_it_with_code_0(
    g1_store: Path, tmp_path: Path, loop: str, number: int
) -> None:
    with serving_process(g1_store, tmp_path, "--loop", loop) as server:
        (endpoint,) = server.endpoints
        assert server.line == f"rocketlens: serving {g1_store} on {endpoint}\n"
        assert is_served(endpoint)
        with socket.create_connection(endpoint) as connection:
            assert server.stop(number) == 0
            assert connection.recv(1) == b""
        assert server.process.stdout is not None
        assert server.process.stdout.read() == ""
        assert "Traceback" not in server.errors.read_text()


def test_a_hangup_signal_makes_it_look_at_the_store_anew(g1_store: Path, tmp_path: Path) -> None:
    with serving_process(g1_store, tmp_path) as server:
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: "the store was reopened" in server.errors.read_text())
        assert is_served(server.endpoints[0])
        assert server.stop() == 0


HOLD_THE_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_broker_that_runs_on_the_store_is_said(g1_store: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(g1_store, tmp_path / "store"))
    (store / "lock").touch()
    command = [sys.executable, "-c", HOLD_THE_LOCK, str(store / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        assert broker.stdin is not None
        assert broker.stdout.readline() == "held\n"
        with serving_process(store, tmp_path) as server:
            assert f"a broker is running on {store}" in server.errors.read_text()
            assert server.stop() == 0
        broker.stdin.close()
