"""`rocketlens serve` as processes: its line, signals, figures, health, stores, and what it keeps."""

import contextlib
import ipaddress
import json
import os
import shutil
import signal
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path

import grpc
import httpx
import pytest

from acl_file import ADMIN, ADMIN_SECRET, READER, READER_SECRET, SECRETS, write_accounts
from base_directory import small_disk
from benchmarks.server_process import free_port
from blocking_client import BlockingClient, eventually
from broker.cluster.several_stores import folder_of
from broker.config import RegisterOptions, ServeOptions, TlsOptions
from broker.endpoint import Endpoint
from broker.grpc.messages.definition_pb2 import Code, Resource
from broker.limits import Limits
from certificates import Authority
from command_line import rocketlens
from connected_consumer import ConnectedConsumer
from golden_frames import parse_java_json, value_of
from grpc_client import GrpcClient
from heartbeats import consumer, heartbeat, subscription
from lane_requests import query, view
from metric_figures import figure, read_figures
from name_server import name_server_in_a_thread
from process import serving_process
from protocol.codes import RequestCode
from protocol.command import ext_fields_of
from protocol.frame import FrameDecoder
from rocketlens.cli import serving
from store_writer import appended, closed_store
from web_questions import keys


def is_served(endpoint: Endpoint) -> bool:
    with BlockingClient(endpoint) as client:
        return client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"}).code == 0


@pytest.mark.parametrize(("loop", "number"), [("uvloop", signal.SIGTERM), ("asyncio", signal.SIGINT)])
def test_it_says_where_it_serves_and_a_signal_ends_it_with_code_0(g1_store, tmp_path, loop, number) -> None:
    with serving_process(g1_store, tmp_path, "--loop", loop) as server:
        (endpoint,) = server.endpoints
        assert server.line == f"rocketlens: serving {g1_store} on {endpoint}\n"
        assert is_served(endpoint)
        with socket.create_connection(endpoint) as connection:
            assert server.stop(number) == 0
            assert connection.recv(1) == b""
        assert server.process.stdout.read() == ""
        assert "Traceback" not in server.errors.read_text()


def test_a_hangup_signal_makes_it_look_at_the_store_anew(g1_store: Path, tmp_path: Path) -> None:
    with serving_process(g1_store, tmp_path) as server:
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: "the store was reopened" in server.errors.read_text())
        assert is_served(server.endpoints[0])
        assert server.stop() == 0


DEADLINE_SECONDS = 60.0


def address_of(server) -> str:
    return server.line.rpartition("; gRPC at ")[2].strip()


def answers(client: GrpcClient) -> bool:
    """Whether a call is answered; one that was under way when the process died is not."""
    try:
        return bool(client.admin("GetProxyRuntimeStats").status.code == Code.OK)
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.UNAVAILABLE:
            raise
        return False


def test_the_port_is_served_by_a_process_that_is_replaced_and_ends_with_the_server(g1_store, tmp_path) -> None:
    with serving_process(g1_store, tmp_path, "--grpc", "0", "--http", "0") as server:
        client = GrpcClient(address_of(server))
        assert client.admin("GetProxyRuntimeStats").status.code == Code.OK
        first, grpc_process = server.workers
        assert b"serve_grpc" in Path(f"/proc/{grpc_process}/cmdline").read_bytes()
        assert "cygrpc" not in Path(f"/proc/{first}/maps").read_text()
        os.kill(grpc_process, signal.SIGKILL)
        eventually(lambda: answers(client))
        eventually(lambda: figure(read_figures(server.http_port), "worker_up", worker="1") == 1)
        figures = read_figures(server.http_port)
        assert figure(figures, "worker_starts_total", worker="1") == 2
        assert figure(figures, "grpc_calls_total", method="Admin/GetProxyRuntimeStats", result="OK") == 2
        client.channel.close()
        processes = server.workers
        assert server.stop() == 0
        assert not [each for each in processes if Path(f"/proc/{each}").exists()]
        assert "Traceback" not in server.errors.read_text()


@pytest.mark.soak  # in each run, in one process: tests/broker/grpc/test_groups.py
@pytest.mark.parametrize("workers", ["1", "2"])
def test_groups_and_their_offsets_are_those_of_worker_0(workers: str, g1_store: Path, tmp_path: Path) -> None:
    with serving_process(g1_store, tmp_path, "--grpc", "0", "--workers", workers) as server:
        body = heartbeat("10.0.0.1@7", consumer("CG_NEW", subscription("TopicTest", "TagA")))
        online = ConnectedConsumer(server.endpoints[0], body)
        commit = {"consumerGroup": "CG_NEW", "topic": "TopicTest", "queueId": "1", "commitOffset": "5"}
        assert online.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == 0
        client = GrpcClient(address_of(server))
        group = Resource(name="CG_NEW")
        (found,) = client.admin("ListConsumerConnection", group=group).client_info
        assert found.client_id == "10.0.0.1@7"
        (info,) = client.admin("ListSubscription", group=group).subscription_info
        assert (info.expression.expression, info.online) == ("TagA", True)
        spans = client.admin("QueryTimeSpan", group=group, topics=[Resource(name="TopicTest")]).queue_time_span_list
        consumed = {each.message_queue.id: each.consume_timestamp for each in spans}
        first = {each.message_queue.id: each.min_timestamp for each in spans}
        assert [queue for queue in consumed if consumed[queue] != first[queue]] == [1]
        trace = client.admin("PrintThreadStackTrace", group=group, client_id="10.0.0.1@7")
        assert trace.thread_stack_trace == "main RUNNABLE"
        online.close()
        client.channel.close()
        assert server.stop() == 0
        assert "Traceback" not in server.errors.read_text()


def ask(endpoint: Endpoint, frames: bytes, count: int) -> None:
    decoder = FrameDecoder()
    with socket.create_connection(endpoint, DEADLINE_SECONDS) as connection:
        connection.sendall(frames)
        while count:
            count -= len(decoder.feed(connection.recv(1 << 16)))


def status_of(server, path, trusted=True, **headers) -> int:
    place = f"http{'' if trusted is True else 's'}://127.0.0.1:{server.http_port}{path}"
    return httpx.get(place, headers=headers, verify=trusted, timeout=DEADLINE_SECONDS).status_code


def figures_that(server, check):
    """The figures, once they are as they should be."""

    def look():
        with contextlib.suppress(OSError):
            if check(figures := read_figures(server.http_port)):
                return figures
        return None

    return eventually(look)


def test_figures_are_of_all_workers_and_outlive_each_of_them(g1_store: Path, tmp_path: Path) -> None:
    with serving_process(g1_store, tmp_path, "--http", "0", "--workers", "3") as server:

        def views(figures) -> float:
            return figure(figures, "requests_total", code="VIEW_MESSAGE_BY_ID", result="SUCCESS")

        for _ in range(30):
            ask(server.endpoints[0], view(0) * 2, 2)
        figures_that(server, lambda figures: views(figures) == 60)
        for number in (2, 0):
            os.kill(server.workers[number], signal.SIGKILL)
            starts = partial(figure, name="worker_starts_total", worker=str(number))
            is_up = partial(figure, name="worker_up", worker=str(number))
            figures = figures_that(server, lambda figures: starts(figures) == 2 and is_up(figures) == 1)  # noqa: B023
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


def test_several_workers_serve_one_page_that_asks_for_the_keys_of_the_port(g1_store: Path, tmp_path: Path) -> None:
    write_accounts(tmp_path / "plain_acl.yml")
    options = ["--http", "0", "--workers", "2", "--acl", str(tmp_path / "plain_acl.yml"), "--http-host", "ops.example"]
    with serving_process(g1_store, tmp_path, *options, "--mask", "tags") as server:
        assert status_of(server, "/") == 200
        assert status_of(server, "/page/main.js") == 200
        assert status_of(server, "/api/v1/store") == 401
        for host, status in (("ops.example", 200), ("localhost", 200), ("evil.example", 403)):
            assert status_of(server, "/api/v1/find?text=hotkey", Host=host, **keys(READER, READER_SECRET)) == status
            assert status_of(server, "/metrics", Host=host) == status
            assert status_of(server, "/healthz", Host=host) == status_of(server, "/readyz", Host=host) == 200
        assert status_of(server, "/api/v1/health", **keys(READER, READER_SECRET)) == 403
        assert status_of(server, "/api/v1/health", **keys(ADMIN, ADMIN_SECRET)) == 200
        for path, status in (("/messages?topic=TopicTest", 200), ("/messages?topic=TopicTest&tag=TagA", 400)):
            assert status_of(server, f"/api/v1{path}", **keys(ADMIN, ADMIN_SECRET)) == status  # tags are masked
        assert server.stop() == 0
        assert not any(secret in server.errors.read_text() for secret in SECRETS)


def test_a_page_by_tls_asks_for_a_login_and_probes_need_neither(g1_store: Path, tmp_path: Path) -> None:
    authority = Authority.make(tmp_path / "tls")
    certificate, key = authority.sign("server")
    acl, log = write_accounts(tmp_path / "plain_acl.yml"), tmp_path / "audit.jsonl"
    options = ["--http", "0.0.0.0:0", "--http-auth", "basic-metrics", "--http-tls", "--acl", str(acl)]
    files = ["--tls-cert", str(certificate), "--tls-key", str(key), "--audit-log", str(log)]
    with serving_process(g1_store, tmp_path, *options, *files) as server:
        status = partial(status_of, server, trusted=authority.client_context())
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


def entries(name_server, code) -> list[tuple[str, str, str]]:
    names = ("brokerName", "brokerId", "brokerAddr")
    return [(*(fields[name] for name in names),) for fields, _ in name_server.received(code)]


def test_each_store_is_registered_again_when_a_worker_was_replaced_and_taken_off_at_the_end(g1_store, tmp_path) -> None:
    writer = closed_store(tmp_path / "second", appended("Other"))
    names = ("--broker-name", "broker-a", "--broker-name", "broker-b")
    options = ("--workers", "2", *names, "--state-dir", str(tmp_path / "state"))
    with (
        name_server_in_a_thread() as (name_server, address),
        serving_process(g1_store, tmp_path, str(writer.root), *options, "--register", f";{address};") as server,
    ):
        places = zip(("broker-a", "broker-b"), server.places, strict=True)
        wanted = {(name, "990001", str(endpoint)) for name, (_, (endpoint, *_)) in places}

        def is_registered(times: int) -> bool:
            requests = entries(name_server, RequestCode.REGISTER_BROKER)
            return all(requests.count(entry) == times for entry in wanted)

        eventually(lambda: is_registered(1))
        os.kill(server.workers[0], signal.SIGKILL)
        eventually(lambda: is_registered(2))
        # A line is logged only when the name server's answer has come back, later than it has the request.
        eventually(lambda: server.errors.read_text().count("registered with name server") == 4)
        assert entries(name_server, RequestCode.UNREGISTER_BROKER) == []
        assert server.stop() == 0
        assert sorted(entries(name_server, RequestCode.UNREGISTER_BROKER)) == sorted(wanted)
    assert server.errors.read_text().count("registered with name server") == 4


@pytest.fixture(scope="module")
def second_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of another broker, with a topic of its own and one that g1 has too."""
    root = tmp_path_factory.mktemp("second")
    messages = (appended(topic, b"in the second store", keys="second") for topic in ("TopicTest", "OtherTopic"))
    closed_store(root, *messages)
    return root


def ask_of_serve_several(endpoint, code, fields):
    with BlockingClient(endpoint) as client:
        return client.ask(code, fields)


def value(endpoint, code, **fields):
    answer = ask_of_serve_several(endpoint, code, fields)
    assert answer.code == 0, answer.remark
    return value_of(bytes(answer.body))


@pytest.mark.parametrize("workers", [pytest.param("0", marks=pytest.mark.soak), "3"])
def test_three_stores_are_three_brokers_at_ports_ten_apart_in_one_cluster(
    workers, g1_store, second_store, tmp_path
) -> None:
    copy = shutil.copytree(g1_store, tmp_path / "copy")
    port = free_port((10, 20))
    stores = (str(second_store), str(copy), "--listen", f"127.0.0.1:{port}", "--workers", workers, "--http", "0")
    with serving_process(g1_store, tmp_path, *stores, "--state-dir", str(tmp_path / "state")) as server:
        stores = (g1_store, second_store, copy)
        places = [(str(each), [Endpoint("127.0.0.1", port + 10 * number)]) for number, each in enumerate(stores)]
        assert server.places == places
        check_stores(server)
        assert server.stop() == 0
    log = server.errors.read_text()
    assert f"{copy} is broker broker-a-3 of cluster DefaultCluster (its own name is broker-a)" in log
    assert log.count(f"{second_store} is broker broker-a-2 of") == 1
    assert "Traceback" not in log
    folders = {path.parent.name for path in (tmp_path / "state").glob("*/serving.lock")}
    assert folders == {folder_of(store) for store in (g1_store, second_store, copy)}


def check_stores(server) -> None:
    endpoints = [addresses[0] for _, addresses in server.places]
    names = ["broker-a", "broker-a-2", "broker-a-3"]
    records = []
    for endpoint in endpoints:
        assert value(endpoint, RequestCode.GET_BROKER_CLUSTER_INFO)["clusterAddrTable"] == {"DefaultCluster": names}
        route = value(endpoint, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TopicTest")
        assert [each["brokerAddrs"]["0"] for each in route["brokerDatas"]] == [str(each) for each in endpoints]
        (only,) = value(endpoint, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="OtherTopic")["brokerDatas"]
        assert only["brokerName"] == "broker-a-2"
        records.append(bytes(ask_of_serve_several(endpoint, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"}).body))
    assert records[0] == records[2] != records[1]
    os.kill(server.process.pid, signal.SIGHUP)
    for number, name in enumerate(names):
        for _ in range(number):
            ask_of_serve_several(endpoints[number], RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"})
        figures = eventually(partial(figures_after, server, name, number + 1))
        assert figure(figures, "commit_log_max_offset_bytes", broker=name) > 0
    assert 0 < figure(figures, "cpu_seconds_total") < 1000


def figures_after(server, broker, views):
    figures = read_figures(server.http_port)
    told = figure(figures, "requests_total", broker=broker, code="VIEW_MESSAGE_BY_ID")
    assert told <= views, figures
    return figures if told == views else None


FIELDS = {"consumerGroup": "G", "topic": "TopicTest", "queueId": "1"}


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "xdg"
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    return home


class Client(BlockingClient):
    def commit(self, offset: int) -> None:
        body = heartbeat("c", consumer("G", subscription("TopicTest")))
        assert self.ask(RequestCode.HEART_BEAT, body=body).code == 0
        assert self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, FIELDS | {"commitOffset": str(offset)}).code == 0

    def committed(self) -> int | None:
        answer = self.ask(RequestCode.QUERY_CONSUMER_OFFSET, FIELDS | {"setZeroIfNotFound": "false"})
        return int(ext_fields_of(answer)["offset"]) if answer.code == 0 else None


def test_a_restart_loses_no_progress_and_the_store_stays_as_it_was(g1_store, tmp_path, own_home) -> None:
    before = {path: path.stat().st_mtime_ns for path in g1_store.rglob("*")}
    with serving_process(g1_store, tmp_path) as server, Client(server.endpoints[0]) as client:
        assert client.committed() is None
        client.commit(7)
        assert server.stop() == 0
    (file,) = own_home.rglob("consumerOffset.json")
    assert parse_java_json(file.read_text())["offsetTable"]["TopicTest@G"] == {"1": 7}
    with serving_process(g1_store, tmp_path) as server, Client(server.endpoints[0]) as client:
        assert client.committed() == 7
    assert {path: path.stat().st_mtime_ns for path in g1_store.rglob("*")} == before


def test_a_kill_leaves_a_whole_file_and_what_was_written_in_it(g1_store: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    serving = (g1_store, tmp_path, "--state-dir", str(state))
    with serving_process(*serving) as server, Client(server.endpoints[0]) as client:
        client.commit(1)
        eventually((state / "consumerOffset.json").exists)
        for offset in range(2, 200):
            client.commit(offset)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(60)
    written = parse_java_json((state / "consumerOffset.json").read_text())["offsetTable"]["TopicTest@G"]["1"]
    with serving_process(*serving) as server, Client(server.endpoints[0]) as client:
        assert client.committed() == written >= 1


FULL = "offsets cannot be kept: No space left on device"


def test_a_server_whose_state_has_no_room_serves_on_and_writes_when_there_is(g1_store: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as give:
        state = give("size=16k,nr_inodes=100") / "state"
        (state.parent / "filler").write_bytes(bytes(16_384))
        serving = (g1_store, tmp_path, "--state-dir", str(state))
        with serving_process(*serving) as server, Client(server.endpoints[0]) as client:
            client.commit(5)
            eventually(lambda: FULL in server.errors.read_text())
            client.commit(6)
            assert client.committed() == 6
            assert {path.name for path in state.iterdir()} <= {"serving.lock", "consumerOffset.json.new"}
            give("size=1m,nr_inodes=100")
            eventually((state / "consumerOffset.json").exists)
            client.commit(7)
            assert server.stop() == 0
            assert server.errors.read_text().count("No space left on device") == 1
        with serving_process(*serving) as server, Client(server.endpoints[0]) as client:
            assert client.committed() == 7


STORE = Path("/store")
STOPPED = 7
"""The exit code of the server that is not started."""

OPTIONS = {
    "--listen 5 --listen 0.0.0.0:6": {"listen": (Endpoint("127.0.0.1", 5), Endpoint("0.0.0.0", 6))},
    "--listen 127.0.0.1:5 --listen [::1]:6": {"listen": (Endpoint("127.0.0.1", 5), Endpoint("::1", 6))},
    "--advertise broker.example:10911": {"advertise": Endpoint("broker.example", 10911)},
    "--broker-name b-1": {"broker_name": "b-1"},
    "--cluster archive": {"cluster": "archive"},
    "--vip": {"vip": True},
    "--rewrite-store-host": {"rewrite_store_host": True},
    "--filter-support-retry": {"filter_support_retry": True},
    "--loop asyncio": {"loop": "asyncio"},
    "--fast-lane": {"fast_lane": True},
    "--no-fast-lane": {"fast_lane": False},
    "--workers 3": {"workers": 3},
    "--worker-timeout 2.5": {"worker_timeout_seconds": 2.5},
    "--frame-limit 70000": {"frame_limit": 70000},
    "--limit connections=9": {"limits": Limits(connections=9)},
    "--register 127.0.0.1:9876;[::1]:9877 --register-id 5000": {
        "register": RegisterOptions((Endpoint("127.0.0.1", 9876), Endpoint("::1", 9877)), broker_id=5000)
    },
    "--register-as broker": {"register": RegisterOptions(is_replica=False)},
    "--http 8080": {"http": Endpoint("127.0.0.1", 8080)},
    "--http 0.0.0.0:8080 --http-host a.example --http-host b.example": {
        "http": Endpoint("0.0.0.0", 8080),
        "http_hosts": ("a.example", "b.example"),
    },
    "--trusted-proxy 10.0.0.0/8 --trusted-proxy ::1": {
        "http_proxies": (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("::1"))
    },
    "--slow-query 5": {"slow_query_milliseconds": 5.0},
    "--log-format json": {},
    "--tls-mode permissive --tls-cert /c --tls-key /k --tls-key-password-file /p": {
        "tls": TlsOptions("permissive", Path("/c"), Path("/k"), Path("/p"))
    },
    "--tls-mode enforcing --tls-cert /c --tls-client-ca /a --tls-client-auth required": {
        "tls": TlsOptions("enforcing", Path("/c"), client_ca=Path("/a"), client_auth="required")
    },
    "--proxy-protocol-from 10.1.0.0/16": {"proxies": (ipaddress.ip_network("10.1.0.0/16"),)},
    "--acl /acl.yml": {"acl": Path("/acl.yml")},
    "--acl /acl.yml --acl-admin-has-all": {"acl": Path("/acl.yml"), "acl_admin_has_all": True},
    "--audit-log /audit": {"audit_log": Path("/audit")},
    "--commit-log /a,/b": {"commit_log_directories": (Path("/a"), Path("/b"))},
    "--index-slots 97 --index-entries 150": {"index_slots": 97, "index_entries": 150},
    "--state-dir /state": {"state_directory": Path("/state")},
    "--tier /tier": {"tier": Path("/tier")},
    "--mask keys --mask $.phone": {"masked": ("keys", "$.phone")},
}


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[list[ServeOptions]]:
    """The options with which servers were to run."""
    found: list[list[ServeOptions]] = []

    def run(all_options: list[ServeOptions]) -> int:
        found.append(list(all_options))
        return STOPPED

    monkeypatch.setattr(serving, "run_server", run)
    monkeypatch.setattr("rocketlens.cli.serve.configure_logging", lambda log_format: None)
    monkeypatch.setattr("rocketlens.cli.serve._stop_quietly_while_starting", lambda: None)
    monkeypatch.setattr("rocketlens.cli.serve._allow_many_files", lambda: None)
    return found


@pytest.mark.parametrize("options", [*OPTIONS, ""])
def test_an_option_reaches_the_server(served: list[list[ServeOptions]], options: str) -> None:
    outcome = rocketlens("serve", STORE, *options.split())
    assert outcome.code == STOPPED, outcome.errors
    assert served == [[replace(ServeOptions(STORE), **OPTIONS.get(options, {}))]]


def test_rules_of_masks_come_from_files_too(served: list[list[ServeOptions]], tmp_path: Path) -> None:
    (tmp_path / "masks").write_text("tags\n$.mail\n")
    outcome = rocketlens("serve", STORE, "--mask", "keys", "--mask-file", tmp_path / "masks")
    assert outcome.code == STOPPED, outcome.errors
    assert served == [[ServeOptions(STORE, masked=("keys", "tags", "$.mail"))]]


def test_options_that_contradict_each_other_start_no_server(served: list[list[ServeOptions]]) -> None:
    for options, says in (
        ("--tls-cert /c", "TLS files have no effect"),
        ("--tls-mode enforcing", "needs a certificate"),
        ("--register 127.0.0.1:9876 --register-id 5", "expected 100 or more"),
        ("--index-slots 97", "give both or neither"),
        ("--state-dir /store/state", "lies inside the store"),
        ("--proxy-protocol-from 10.1.0.0/99", "is not an IP address or a network"),
        ("--listen store", "expected HOST:PORT"),
        ("--advertise a:0", "cannot connect to port 0"),
        ("--http 0.0.0.0:9180 --http-auth basic --acl /acl.yml", "keys would pass the network in plain text"),
        ("--grpc 0 --workers 0", "a process of its own"),
        ("--grpc 0 --tls-mode enforcing --tls-cert c.pem --tls-key-password-file p", "no key with a password"),
    ):
        outcome = rocketlens("serve", STORE, *options.split())
        assert (outcome.code, outcome.output) == (2, b""), options
        assert says in outcome.errors
    assert served == []
