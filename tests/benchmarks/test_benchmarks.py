"""The benchmark in miniature: its store is what its plan says, and its load generator counts what really happens."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from benchmark_store import SMALL
from benchmarks.compare import Comparison, compare_servers, filter_as_client, split_records
from benchmarks.load import LoadFailed, run_beside, run_load
from benchmarks.measure import MODES
from benchmarks.remoting import FRAME_PREFIX, Peer
from benchmarks.server_process import ServerProcess
from benchmarks.store_plan import (
    TOPIC,
    StorePlan,
    order_key,
    unique_key,
)
from benchmarks.workload import WORKLOADS, Requests, build_requests
from oracles import Record, index_hash, parse_properties, read_log
from protocol.message import decode_message
from store_writer import StoreWriter


@pytest.fixture(scope="module")
def records(store: Path) -> list[Record]:
    return read_log(store / "commitlog")


# --- the store --------------------------------------------------------------------------------------------------------


def raw_record(store: Path, record: Record) -> bytes:
    """The record's bytes in its segment."""
    base_offset, position = divmod(record.physical_offset, SMALL.segment_size)
    segment = store / "commitlog" / f"{base_offset * SMALL.segment_size:020d}"
    return segment.read_bytes()[position : position + record.total_size]


def test_the_log_decodes_to_the_planned_messages(store: Path, plan: StorePlan, records: list[Record]) -> None:
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


def test_the_segments_are_those_of_an_independent_writer(store: Path, records: list[Record], tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, segment_size=SMALL.segment_size)
    for record in records:
        writer.append_record(record)
    writer.close()
    written = sorted((tmp_path / "commitlog").iterdir())
    assert len(written) > 3
    assert [path.read_bytes() for path in sorted((store / "commitlog").iterdir())] == [p.read_bytes() for p in written]


def test_unlucky_keys_share_the_slot_of_the_first_tag_but_no_hash(plan: StorePlan) -> None:
    hashes = [index_hash(f"{TOPIC}#{key}") for key in plan.unlucky_keys]
    assert len(set(hashes)) == SMALL.unlucky_keys
    assert {value % 97 for value in hashes} == {index_hash(f"{TOPIC}#T#Tag0") % 97}


# --- the requests -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", WORKLOADS)
def test_requests_are_random_but_the_same_for_the_same_seed(plan: StorePlan, workload: str) -> None:
    first, again, other = (build_requests(plan, workload, 50, seed) for seed in (1, 1, 2))
    assert first.frames == again.frames
    assert first.frames != other.frames
    for number in range(len(first)):
        frame = first.frame(number)
        assert FRAME_PREFIX.unpack_from(frame) == (len(frame) - 4, len(frame) - 8)
        assert json.loads(frame[8:])["opaque"] == number


def test_foretold_bytes_are_those_of_the_messages_with_the_key(plan: StorePlan, records: list[Record]) -> None:
    requests = build_requests(plan, "key", 200, 5)
    wanted = [json.loads(requests.frame(number)[8:])["extFields"]["key"] for number in range(200)]
    keys = [(record.properties["KEYS"].split(" "), record.total_size) for record in records]
    assert requests.body_bytes == sum(size for key in wanted for held, size in keys if key in held)


# --- the load generator, on a server that answers as told -------------------------------------------------------------


def answer(opaque: int, code: int = 0, body: bytes = b"body") -> bytes:
    header = json.dumps({"code": code, "flag": 1, "opaque": opaque}, separators=(",", ":")).encode()
    return FRAME_PREFIX.pack(4 + len(header) + len(body), len(header)) + header + body


@contextmanager
def scripted_server(reply: Callable[[int], bytes | None]) -> Iterator[int]:
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


def some_requests(count: int) -> Requests:
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
def test_an_answer_that_is_none_is_an_error(bad: Callable[[int], bytes]) -> None:
    with scripted_server(lambda opaque: bad(opaque) if opaque % 10 == 3 else answer(opaque)) as port:
        outcome = run_load(port, some_requests(100), 2, 4)
    assert (outcome.requests, outcome.errors) == (100, 10)
    assert outcome.first_error is not None
    assert '"opaque":' in outcome.first_error


def test_answers_in_reverse_order_find_their_requests() -> None:
    """Each pair comes answered second one first; were latencies matched by order, opaques would not matter."""
    reply = {True: lambda opaque: b"", False: lambda opaque: answer(opaque) + answer(opaque - 1)}
    with scripted_server(lambda opaque: reply[opaque % 2 == 0](opaque)) as port:
        outcome = run_load(port, some_requests(40), 1, 2)
    assert (outcome.requests, outcome.errors) == (40, 0)


def test_a_closed_connection_ends_the_run() -> None:
    closing = scripted_server(lambda opaque: None if opaque == 5 else answer(opaque))
    with closing as port, pytest.raises(LoadFailed, match="closed"):
        run_load(port, some_requests(10), 1, 1)


def test_a_run_beside_another_ends_with_the_first() -> None:
    second_requests: list[int] = []
    both_have_an_answer = threading.Event()

    def reply(opaque: int) -> bytes:
        if opaque == 1:
            second_requests.append(opaque)
        if len(second_requests) == 2:
            both_have_an_answer.set()
        assert opaque < 49 or both_have_an_answer.wait(30)
        return answer(opaque)

    with scripted_server(reply) as port:
        outcome, beside = run_beside(port, some_requests(50), some_requests(100_000))
    assert (outcome.requests, outcome.errors, beside.errors) == (50, 0, 0)
    assert 0 < beside.requests < 100_000


# --- our server -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_our_server_answers_each_workload_exactly(
    server: ServerProcess, plan: StorePlan, workload: str, mode: str
) -> None:
    outcome = run_load(server.port, build_requests(plan, workload, 200, 3), *MODES[mode], pid=server.pid)
    assert (outcome.errors, outcome.first_error) == (0, None)
    assert outcome.body_bytes == outcome.expected_body_bytes
    assert outcome.server_cpu_us is not None
    assert outcome.server_cpu_us > 0


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_server_compared_with_itself_never_differs(server: ServerProcess, plan: StorePlan, workload: str) -> None:
    comparison = compare_servers(workload, build_requests(plan, workload, 100, 4), server.port, server.port)
    assert comparison == Comparison(workload, 100, 0, 0, None)


def test_a_server_that_answers_otherwise_is_noticed(server: ServerProcess, plan: StorePlan) -> None:
    requests = build_requests(plan, "view", 20, 4)
    with scripted_server(answer) as port:
        comparison = compare_servers("view", requests, server.port, port)
    assert comparison.differing == 20
    assert comparison.first_difference is not None


# --- judging answers --------------------------------------------------------------------------------------------------


def test_records_without_the_key_are_dropped_as_a_client_drops_them(plan: StorePlan, server: ServerProcess) -> None:
    with Peer(server.port) as peer:
        records = [peer.view(int(plan.physical_offsets[number])) for number in (10, 11)]
    body = b"".join(records)
    assert list(split_records(body)) == records
    for workload, key in (("unique", unique_key(11)), ("key", order_key(11)), ("key", plan.second_key(11))):
        frame = build_requests(plan, workload, 1, 1).frame(0)
        wanted = json.loads(frame[8:])
        wanted["extFields"]["key"] = key
        assert filter_as_client(body, frame[:8] + json.dumps(wanted).encode()) == records[1]
        wanted["extFields"]["topic"] = "OtherTopic"
        assert filter_as_client(body, frame[:8] + json.dumps(wanted).encode()) == b""


# --- the report -------------------------------------------------------------------------------------------------------
