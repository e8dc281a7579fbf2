"""`rocketlens serve --http` as processes: one, several, and what is left of the figures when one dies."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from acl_file import ADMIN, ADMIN_SECRET, READER, READER_SECRET, SECRETS, write_accounts
from benchmarks.server_process import free_port
from blocking_client import eventually
from broker.endpoint import Endpoint
from certificates import Authority
from lane_requests import query, view
from metric_figures import Figures, figure, read_figures
from process import ROOT, Serving, serving_process
from protocol.frame import FrameDecoder
from web_questions import keys

DEADLINE_SECONDS = 60.0


def ask(endpoint: Endpoint, frames: bytes, count: int) -> None:
    """Send requests on a connection of their own, and wait for all answers."""
    decoder = FrameDecoder()
    with socket.create_connection(endpoint, DEADLINE_SECONDS) as connection:
        connection.sendall(frames)
        while count:
            count -= len(decoder.feed(connection.recv(1 << 16)))


def status_of(server: Serving, path: str, **headers: str) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{server.http_port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def figures_that(server: Serving, check: Callable[[Figures], bool]) -> Figures:
    """The figures, once they are as they should be."""

    def look() -> Figures | None:
        with contextlib.suppress(OSError):
            if check(figures := read_figures(server.http_port)):
                return figures
        return None

    return eventually(look)


def test_one_process_tells_its_figures_and_health(g1_store: Path, tmp_path: Path) -> None:
    with serving_process(g1_store, tmp_path, "--http", "0", "--workers", "0", "--loop", "asyncio") as server:
        ask(server.endpoints[0], view(0) * 3 + query("TopicTest", "none"), 4)
        assert (status_of(server, "/healthz"), status_of(server, "/readyz")) == (200, 200)
        figures = read_figures(server.http_port)
        assert figure(figures, "requests_total", code="VIEW_MESSAGE_BY_ID", result="SUCCESS") == 3
        assert figure(figures, "requests_total", code="QUERY_MESSAGE", result="QUERY_NOT_FOUND") == 1
        assert figure(figures, "worker_up", worker="0") == 1
        assert figure(figures, "cpu_seconds_total") > 0
        assert server.stop() == 0
        assert "Traceback" not in server.errors.read_text()


def test_figures_are_of_all_workers_and_outlive_each_of_them(g1_store: Path, tmp_path: Path) -> None:
    with serving_process(g1_store, tmp_path, "--http", "0", "--workers", "3") as server:

        def views(figures: Figures) -> float:
            return figure(figures, "requests_total", code="VIEW_MESSAGE_BY_ID", result="SUCCESS")

        for _ in range(30):
            ask(server.endpoints[0], view(0) * 2, 2)
        figures_that(server, lambda figures: views(figures) == 60)
        for number in (2, 0):
            os.kill(server.workers[number], signal.SIGKILL)
            figures = figures_that(
                server,
                lambda figures, number=number: (
                    figure(figures, "worker_starts_total", worker=str(number)) == 2
                    and figure(figures, "worker_up", worker=str(number)) == 1
                ),
            )
            assert views(figures) == 60
        assert status_of(server, "/readyz") == 200
        for _ in range(10):
            ask(server.endpoints[0], view(0), 1)
        figures_that(server, lambda figures: views(figures) == 70)
        assert server.stop() == 0


def test_the_log_in_json_is_an_object_a_line_and_slow_queries_are_in_it(g1_store: Path, tmp_path: Path) -> None:
    options = ("--log-format", "json", "--slow-query", "0.001")
    with serving_process(g1_store, tmp_path, *options) as server:
        ask(server.endpoints[0], query("TopicTest", "secret-key-4711"), 1)
        assert server.stop() == 0
    lines = server.errors.read_text().splitlines()
    told = [json.loads(line) for line in lines]
    (slow,) = [each for each in told if each["logger"] == "broker.metrics.slow_queries"]
    assert (slow["code"], slow["result"], slow["reason"]) == ("QUERY_MESSAGE", "QUERY_NOT_FOUND", "event_loop")
    assert not any("secret-key-4711" in line for line in lines)


def test_without_http_and_grpc_nothing_of_them_is_loaded() -> None:
    """Memory and start are those of a server that nobody watches."""
    code = "import sys, rocketlens.cli.serving, broker.app, broker.service.request_families; print(*sys.modules)"
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert not {"prometheus_client", "starlette", "h11", "anyio", "grpc"} & {*outcome.stdout.split()}


def api_status(server: Serving, path: str, **headers: str) -> int:
    return status_of(server, f"/api/v1{path}", **headers)


def test_several_workers_serve_one_page_that_asks_for_the_keys_of_the_port(g1_store: Path, tmp_path: Path) -> None:
    write_accounts(tmp_path / "plain_acl.yml")
    options = ["--http", "0", "--workers", "2", "--acl", str(tmp_path / "plain_acl.yml"), "--http-host", "ops.example"]
    with serving_process(g1_store, tmp_path, *options, "--mask", "tags") as server:
        assert status_of(server, "/") == 200
        assert status_of(server, "/page/main.js") == 200
        assert api_status(server, "/store") == 401
        for host, status in (("ops.example", 200), ("localhost", 200), ("evil.example", 403)):
            assert api_status(server, "/find?text=hotkey", Host=host, **keys(READER, READER_SECRET)) == status
            assert status_of(server, "/metrics", Host=host) == status
            assert status_of(server, "/healthz", Host=host) == status_of(server, "/readyz", Host=host) == 200
        assert api_status(server, "/health", **keys(READER, READER_SECRET)) == 403
        assert api_status(server, "/health", **keys(ADMIN, ADMIN_SECRET)) == 200
        for path, status in (("/messages?topic=TopicTest", 200), ("/messages?topic=TopicTest&tag=TagA", 400)):
            assert api_status(server, path, **keys(ADMIN, ADMIN_SECRET)) == status  # tags are masked
        assert server.stop() == 0
        assert not any(secret in server.errors.read_text() for secret in SECRETS)


def test_a_page_by_tls_asks_for_a_login_and_probes_need_neither(g1_store: Path, tmp_path: Path) -> None:
    authority = Authority.make(tmp_path / "tls")
    certificate, key = authority.sign("server")
    acl, log = write_accounts(tmp_path / "plain_acl.yml"), tmp_path / "audit.jsonl"
    options = ["--http", "0.0.0.0:0", "--http-auth", "basic-metrics", "--http-tls", "--acl", str(acl)]
    files = ["--tls-cert", str(certificate), "--tls-key", str(key), "--audit-log", str(log)]
    with serving_process(g1_store, tmp_path, *options, *files) as server:

        def status(path: str, **headers: str) -> int:
            request = urllib.request.Request(f"https://127.0.0.1:{server.http_port}{path}", headers=headers)
            try:
                trusted = authority.client_context()
                with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS, context=trusted) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                return error.code

        reader = keys(READER, READER_SECRET)
        assert status_of(server, "/healthz") == status_of(server, "/readyz") == status("/readyz") == 200
        for path in ("/", "/page/main.js", "/api/v1/message?offset=0", "/metrics"):
            assert status_of(server, path, **reader) == 403
            assert status(path) == 401
            assert status(path, **reader) == (403 if path == "/metrics" else 200)
        assert status("/metrics", **keys(ADMIN, ADMIN_SECRET)) == 200
        assert server.stop() == 0
        assert not any(secret in server.errors.read_text() for secret in SECRETS)
    looks = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(look["account"], look["result"]) for look in looks if look["messages"]] == [(READER, "SUCCESS")]


OPENS_LATE = """
import os, sys, time
from rocketlens.cli import serving
from rocketlens.cli.main import main

gate, opened = sys.argv.pop(), serving._open

def open_late(*arguments):
    while not os.path.exists(gate):
        time.sleep(0.01)
    return opened(*arguments)

serving._open = open_late
main(prog_name="rocketlens")
"""


def test_health_answers_while_the_store_is_being_opened(tmp_path: Path, g1_store: Path) -> None:
    port, gate = free_port(), tmp_path / "gate"
    arguments = [
        "serve",
        g1_store,
        "--listen",
        "127.0.0.1:0",
        "--http",
        f"127.0.0.1:{port}",
        "--state-dir",
        tmp_path / "s",
    ]
    command = [sys.executable, "-c", OPENS_LATE, *map(str, arguments), str(gate)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            eventually(lambda: answer_of(port, "/healthz")[0] == 200)
            code, text = answer_of(port, "/readyz")
            assert (code, text.startswith("starting: opening the store, ")) == (503, True)
            gate.touch()
            assert process.stdout is not None
            assert process.stdout.readline().startswith("rocketlens: serving ")
            assert answer_of(port, "/readyz")[0] == 200
        finally:
            process.terminate()


def answer_of(port: int, path: str) -> tuple[int, str]:
    """Status and text; nothing while nobody answers at the port."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=DEADLINE_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""
