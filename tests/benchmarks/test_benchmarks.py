"""The benchmark in miniature: its store is what its plan says, and its load generator counts what really happens."""

import json
import socket
import threading
from contextlib import contextmanager, suppress

import pytest

from benchmark_store import SMALL
from benchmarks.load import run_load
from benchmarks.measure import MODES
from benchmarks.remoting import FRAME_PREFIX
from benchmarks.store_plan import TOPIC, StorePlan
from benchmarks.workload import WORKLOADS, build_requests
from oracles import parse_properties, read_log
from protocol.message import decode_message


@pytest.fixture(scope="module")
def records(store):
    return read_log(store / "commitlog")


def raw_record(store, record):
    base_offset, position = divmod(record.physical_offset, SMALL.segment_size)
    segment = store / "commitlog" / f"{base_offset * SMALL.segment_size:020d}"
    return segment.read_bytes()[position : position + record.total_size]


def test_the_log_decodes_to_the_planned_messages(store, plan, records) -> None:
    assert len(records) == SMALL.count
    for number, record in enumerate(records):
        message = decode_message(raw_record(store, record), physical_offset=int(plan.physical_offsets[number]))
        described = plan.describe(number)
        assert message.total_size == described["size"]
        assert message.offset_message_id == described["offset_message_id"]
        assert message.unique_key == described["unique_key"]
        assert message.topic == TOPIC
        properties = parse_properties(bytes(message.properties_bytes).decode())
        assert properties["KEYS"].split(" ") == described["keys"]
        assert properties["TAGS"] == described["tag"]
        assert (properties["amount"], properties["region"]) == (described["amount"], described["region"])


def test_foretold_bytes_are_those_of_the_messages_with_the_key(plan, records) -> None:
    requests = build_requests(plan, "key", 200, 5)
    wanted = [json.loads(requests.frame(number)[8:])["extFields"]["key"] for number in range(200)]
    keys = [(record.properties["KEYS"].split(" "), record.total_size) for record in records]
    assert requests.body_bytes == sum(size for key in wanted for held, size in keys if key in held)


def answer(opaque: int, code: int = 0, body: bytes = b"body") -> bytes:
    header = json.dumps({"code": code, "flag": 1, "opaque": opaque}, separators=(",", ":")).encode()
    return FRAME_PREFIX.pack(4 + len(header) + len(body), len(header)) + header + body


@contextmanager
def scripted_server(reply):
    """A server on the yielded port that sends ``reply(opaque)`` to each request; None closes the connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        # A load generator that is done leaves without reading what is still to come.
        with suppress(ConnectionError), connection, connection.makefile("rb") as reader:
            while prefix := reader.read(FRAME_PREFIX.size):
                length, _ = FRAME_PREFIX.unpack(prefix)
                data = reply(json.loads(reader.read(length - 4))["opaque"])
                if data is None:
                    break
                for piece in (data[:7], data[7:]):  # frames come torn apart too
                    connection.sendall(piece)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threads.append(threading.Thread(target=serve, args=(connection,), daemon=True))
            threads[-1].start()

    threads = [threading.Thread(target=accept, daemon=True)]
    threads[0].start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in threads:
            thread.join(60)


def some_requests(count):
    plan = StorePlan(SMALL, unlucky_keys=("U0000000000",))
    return build_requests(plan, "view", count, 1)


@pytest.mark.parametrize(("connections", "in_flight"), [(1, 1), (4, 16), (3, 7)])
def test_every_answer_is_counted_once(connections: int, in_flight: int) -> None:
    with scripted_server(answer) as port:
        outcome = run_load(port, some_requests(500), connections, in_flight)
    assert (outcome.requests, outcome.errors, outcome.first_error) == (500, 0, None)
    assert outcome.body_bytes == 500 * len(b"body")
    assert outcome.answer_bytes == sum(len(answer(opaque)) for opaque in range(500))
    assert 0 < outcome.p50_us <= outcome.p99_us


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(lambda opaque: answer(opaque, code=22), id="another code"),
        pytest.param(lambda opaque: answer(opaque, body=b""), id="no body"),
        pytest.param(lambda opaque: answer(opaque + 100_000), id="nobody's opaque"),
    ],
)
def test_an_answer_that_is_none_is_an_error(bad) -> None:
    with scripted_server(lambda opaque: bad(opaque) if opaque % 10 == 3 else answer(opaque)) as port:
        outcome = run_load(port, some_requests(100), 2, 4)
    assert (outcome.requests, outcome.errors) == (100, 10)
    assert '"opaque":' in outcome.first_error


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_our_server_answers_each_workload_exactly(server, plan, workload, mode) -> None:
    outcome = run_load(server.port, build_requests(plan, workload, 200, 3), *MODES[mode], pid=server.pid)
    assert (outcome.errors, outcome.first_error) == (0, None)
    assert outcome.body_bytes == outcome.expected_body_bytes
    assert outcome.server_cpu_us is not None
    assert outcome.server_cpu_us > 0
