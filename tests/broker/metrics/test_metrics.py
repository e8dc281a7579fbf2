"""What is counted of requests on every way that they can take, and what a slow one leaves in the log."""

import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from broker.config import RegisterOptions
from broker.limits import Limits
from broker.metrics import metrics_rows as rows
from broker.metrics.metrics_meter import Meter
from broker.metrics.metrics_rows import MetricsRows
from broker.metrics.slow_queries import SlowQueries, Visit
from broker.service.dispatcher import handles
from broker.web.metrics_collector import Exposition, ServerCollector
from broker.web.metrics_store import StoreFigures
from broker_harness import FakeStore, connected, service_of, serving, until
from lane_requests import pull, query, view
from metric_figures import figure, figures_of
from name_server import NameServer
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response, decode_command, encode_request
from protocol.frame import FrameDecoder
from protocol.headers import EmptyRequestHeader
from storage.files.waiting import Wait, WaitKind
from storage.store.message_store import MessageStore


class Watched:
    def __init__(self, server, service, all_rows) -> None:
        self.server = server
        self._exposition = Exposition(ServerCollector(all_rows, [StoreFigures(service)]))

    def figures(self):
        """On a thread of its own, as the port for figures reads them: the loop's own thread may not wait for a page."""
        self.server.publish()
        with ThreadPoolExecutor(1) as pool:
            return figures_of(pool.submit(self._exposition.render, "").result()[0].decode())


@pytest.fixture
async def watched(g1_store):
    all_rows = MetricsRows()
    service = service_of(MessageStore.open(g1_store), meter=Meter(all_rows.begin(0)))
    async with serving(service) as server:
        yield Watched(server, service, all_rows)


async def test_it_is_told_how_many_name_servers_list_the_server(g1_store) -> None:
    told, refusing, all_rows = NameServer(), NameServer(), MetricsRows()
    refusing.register_code = ResponseCode.SYSTEM_ERROR
    register = RegisterOptions((await told.start(), await refusing.start()))
    service = service_of(MessageStore.open(g1_store), meter=Meter(all_rows.begin(0)), register=register)
    async with serving(service) as server:
        watched = Watched(server, service, all_rows)
        await until(lambda: figure(watched.figures(), "name_servers_registered") == 1)
        assert figure(watched.figures(), "name_servers") == 2
    told.close()
    refusing.close()


async def answers(client, count) -> list[int]:
    return [(await client.answer()).code for _ in range(count)]


@pytest.mark.lane
async def test_requests_are_counted_by_code_and_result_in_the_fast_lane_and_beside_it(watched: Watched) -> None:
    async with connected(watched.server.addresses[0]) as client:
        sent = view(0) * 3 + query("TopicTest", "hotkey") + view(5) + query("TopicTest", "none") + view(0)
        client.writer.write(sent)
        assert sorted(await answers(client, 7)) == [0, 0, 0, 0, 0, 1, ResponseCode.QUERY_NOT_FOUND]
        client.writer.write(pull("TopicTest", 99))
        await client.answer()
        await client.ask(77_777)
        await client.ask(77_778)
        figures = watched.figures()
    assert figure(figures, "requests_total", code="VIEW_MESSAGE_BY_ID", result="SUCCESS") == 4
    assert figure(figures, "requests_total", code="VIEW_MESSAGE_BY_ID", result="SYSTEM_ERROR") == 1
    assert figure(figures, "requests_total", code="QUERY_MESSAGE", result="SUCCESS") == 1
    assert figure(figures, "requests_total", code="QUERY_MESSAGE", result="QUERY_NOT_FOUND") == 1
    assert figure(figures, "requests_total", code="OTHER", result="REQUEST_CODE_NOT_SUPPORTED") == 2
    assert figure(figures, "fast_lane_requests_total") == 5
    assert figure(figures, "request_duration_seconds_count", code="VIEW_MESSAGE_BY_ID") == 1
    assert figure(figures, "request_duration_seconds_count", code="QUERY_MESSAGE") == 1
    assert figure(figures, "turn_duration_seconds_count") >= 4
    assert 0 < figure(figures, "turn_duration_seconds_sum") < 20


async def test_connections_are_counted_in_and_out(g1_store) -> None:
    all_rows, limits = MetricsRows(), Limits(connections=2)
    service = service_of(MessageStore.open(g1_store), meter=Meter(all_rows.begin(0)), limits=limits)
    async with serving(service) as server:
        watched = Watched(server, service, all_rows)
        async with connected(server.addresses[0]), connected(server.addresses[0]):
            await until(lambda: figure(watched.figures(), "connections") == 2)
            async with connected(server.addresses[0]) as client:
                assert await client.is_closed_by_the_server()
        await until(lambda: figure(watched.figures(), "connections") == 0)
        figures = watched.figures()
    assert figure(figures, "connections_accepted_total") == 2
    assert figure(figures, "connections_dropped_total") == 1


def test_what_a_process_counted_outlives_it_and_what_was_so_at_the_time_does_not() -> None:
    shared = MetricsRows(2)
    child = os.fork()
    if not child:
        row = shared.begin(1)
        row[rows.ACCEPTED] += 5
        row[rows.CONNECTIONS] = 3
        row[rows.STATE], row[rows.HEARTBEAT] = rows.SERVING, time.monotonic_ns()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert shared.are_serving() == [False, True]
    assert shared.totals()[rows.CONNECTIONS] == 3
    row = shared.begin(1)
    row[rows.ACCEPTED] += 1
    assert shared.are_serving() == [False, False]
    assert shared.totals()[[rows.ACCEPTED, rows.CONNECTIONS, rows.STARTS]].tolist() == [6, 0, 2]
    assert shared.column(rows.PROCESS) == [0, os.getpid()]


SECRET = "order-4711-of-somebody"
MILLISECOND = 1_000_000


def command_of(**fields):
    (frame,) = FrameDecoder().feed(encode_request(RequestCode.QUERY_MESSAGE, fields, opaque=1, body=SECRET.encode()))
    return decode_command(frame)


def visit_of(queued: int, disk: int, kind: WaitKind = WaitKind.PAGE) -> Visit:
    visit = Visit(Wait("000 is cold at 7", kind=kind))
    visit.begun = visit.asked + queued * MILLISECOND
    visit.warmed = visit.begun + disk * MILLISECOND
    return visit


def test_a_line_names_topic_group_and_reason_but_no_key(caplog: pytest.LogCaptureFixture) -> None:
    command = command_of(topic="orders", key=SECRET, consumerGroup="g", Signature=SECRET, AccessKey=SECRET)
    SlowQueries().report_waited(command, 0, "10.0.0.9:1", 1450 * MILLISECOND, visit_of(3, 1400))
    (record,) = caplog.records
    assert record.getMessage() == (
        "slow query: QUERY_MESSAGE topic orders group g from 10.0.0.9:1 took 1450 ms and ended with SUCCESS; "
        "cold, 3 ms for a thread, 1400 ms for the disk (000 is cold at 7)"
    )
    assert record.fields == {
        "code": "QUERY_MESSAGE", "result": "SUCCESS", "peer": "10.0.0.9:1", "milliseconds": 1450.0, "reason": "cold",
        "topic": "orders", "group": "g", "queued_milliseconds": 3.0, "disk_milliseconds": 1400.0,
        "detail": "000 is cold at 7", "requests": 1
    }  # fmt: skip
    assert SECRET not in caplog.text


def test_names_that_clients_made_up_stay_on_one_line(caplog: pytest.LogCaptureFixture) -> None:
    command = command_of(topic="a\nERROR all is lost\x1b[2J", consumerGroup="x" * 9999)
    SlowQueries().report_waited(command, 77_777, "somebody", 10**9, Visit())
    message = caplog.records[0].getMessage()
    assert message.isprintable()
    assert len(message) < 600


class Sleeper:
    """Takes its time on the event loop, or on a thread: it puts the clock forward, which else stands still."""

    def __init__(self) -> None:
        self.now = 0

    @handles(RequestCode.GET_MAX_OFFSET, EmptyRequestHeader)
    def on_the_loop(self, header: EmptyRequestHeader) -> Response:
        self.now += 300 * MILLISECOND
        return Response()

    @handles(RequestCode.GET_MIN_OFFSET, EmptyRequestHeader)
    def on_a_thread(self, header):
        yield Wait("somewhere deep")
        self.now += 250 * MILLISECOND
        return Response()

    @handles(RequestCode.GET_EARLIEST_MSG_STORETIME, EmptyRequestHeader)
    def quickly(self, header: EmptyRequestHeader) -> Response:
        self.now += 200 * MILLISECOND
        return Response()


async def test_a_server_tells_of_slow_requests_on_the_loop_and_on_threads(caplog, monkeypatch) -> None:
    sleeper, service = Sleeper(), service_of(FakeStore(), meter=Meter(slow=SlowQueries(200)))
    for place in ("time.perf_counter_ns", "broker.net._request_reader.perf_counter_ns"):
        monkeypatch.setattr(place, lambda: sleeper.now)
    with caplog.at_level(logging.WARNING, logger="broker.metrics.slow_queries"):
        async with serving(service, [sleeper]) as server, connected(server.addresses[0]) as client:
            for code in (
                RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET, RequestCode.GET_EARLIEST_MSG_STORETIME, 99_999
            ):  # fmt: skip
                await client.ask(code)
    told = [record.fields for record in caplog.records if "code" in getattr(record, "fields", {})]
    found = [(each["code"], each["reason"], each["milliseconds"]) for each in told]
    assert found == [("GET_MAX_OFFSET", "event_loop", 300), ("GET_MIN_OFFSET", "scan", 250)]
    slow = list(service.meter.row[rows.SLOW : rows.SLOW + len(rows.REASONS)])
    assert slow[rows.SCAN] == 1 <= slow[rows.EVENT_LOOP]  # the turn that handed it to the thread may be another
