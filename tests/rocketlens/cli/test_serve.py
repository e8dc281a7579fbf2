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
from process import STOP_SECONDS, serving_process
from protocol.codes import RequestCode
from protocol.command import decode_command, encode_request
from protocol.frame import FrameDecoder


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


def test_it_serves_ipv6_several_addresses_and_the_vip_port(g1_store: Path, tmp_path: Path) -> None:
    arguments = ("--listen", "127.0.0.1:0", "--listen", "[::1]:0", "--vip")
    with serving_process(g1_store, tmp_path, *arguments) as server:
        v4, v6, v4_vip, v6_vip = server.endpoints
        assert (v4_vip, v6_vip) == (v4._replace(port=v4.port - 2), v6._replace(port=v6.port - 2))
        assert all(map(is_served, server.endpoints))
        # Only the addresses that were given are bound.
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", v4.port))
        assert server.stop() == 0


def test_routes_name_the_advertised_address_and_the_given_names(g1_store: Path, tmp_path: Path) -> None:
    arguments = ("--advertise", "archive.example.org:12345", "--broker-name", "old-b", "--cluster", "Old")
    with serving_process(g1_store, tmp_path, *arguments) as server:
        with BlockingClient(server.endpoints[0]) as client:
            route = bytes(client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicTest"}).body).decode()
        assert "archive.example.org:12345" in route
        assert '"old-b"' in route
        assert '"Old"' in route
        assert server.stop() == 0


def test_what_is_in_flight_is_answered_before_it_ends(g1_store: Path, tmp_path: Path) -> None:
    wanted = 2000
    fields = {"topic": "TopicTest", "key": "hotkey", "maxNum": "64", "beginTimestamp": "0", "endTimestamp": "9" * 18}
    with serving_process(g1_store, tmp_path) as server, socket.create_connection(server.endpoints[0]) as connection:
        connection.sendall(
            b"".join(encode_request(RequestCode.QUERY_MESSAGE, fields, opaque=number) for number in range(wanted))
        )
        data = connection.recv(65536)
        server.process.send_signal(signal.SIGTERM)
        # Read while it ends: a client that does not is cut off once the sockets between the two are full.
        while chunk := connection.recv(1 << 20):
            data += chunk
        assert server.process.wait(STOP_SECONDS) == 0
    frames = FrameDecoder()
    answers = [decode_command(frame) for frame in frames.feed(data)]
    # What had not been read when the signal came was never received; what was, is answered whole.
    assert answers
    assert not frames.needs_more
    assert [answer.opaque for answer in answers] == list(range(len(answers)))


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
