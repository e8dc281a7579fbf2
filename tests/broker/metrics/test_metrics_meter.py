"""What is counted for requests on every way that they can take."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import pytest_asyncio

from broker.config import RegisterOptions
from broker.limits import Limits
from broker.metrics import metrics_rows as rows
from broker.metrics.metrics_meter import MOST_NOTED, RESULT_BITS, Meter
from broker.metrics.metrics_rows import MetricsRows
from broker.server import Server
from broker.service.broker_service import BrokerService
from broker.service.dispatcher import handles
from broker.web.metrics_collector import Exposition, ServerCollector
from broker.web.metrics_store import StoreFigures
from broker_harness import FakeStore, RawClient, connected, service_of, serving, until
from draining import pull_of
from lane_requests import pull, query, view
from metric_figures import Figures, figure, figures_of
from name_server import NameServer
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response
from protocol.frame import FrameDecoder
from protocol.headers import EmptyRequestHeader
from storage.files.waiting import Lookup, Wait, WaitKind
from storage.store.message_store import MessageStore

pytestmark = pytest.mark.asyncio


class Client:
    """A client's connection, as far as a meter sees it."""

    peer_address = "somebody"


class Watched:
    """A server and its figures."""

    def __init__(self, server: Server, service: BrokerService, all_rows: MetricsRows) -> None:
        self.server = server
        self._exposition = Exposition(ServerCollector(all_rows, [StoreFigures(service)]))

    def figures(self) -> Figures:
        """On a thread of its own, as the port for figures reads them: the loop's own thread may not wait for a page."""
        self.server.publish()
        with ThreadPoolExecutor(1) as pool:
            return figures_of(pool.submit(self._exposition.render, "").result()[0].decode())


@pytest_asyncio.fixture
async def watched(g1_store: Path) -> AsyncIterator[Watched]:
    all_rows = MetricsRows()
    service = service_of(MessageStore.open(g1_store), meter=Meter(all_rows.begin(0)))
    async with serving(service) as server:
        yield Watched(server, service, all_rows)


async def test_it_is_told_how_many_name_servers_list_the_server(g1_store: Path) -> None:
    told, refusing = NameServer(), NameServer()
    refusing.register_code = ResponseCode.SYSTEM_ERROR
    options = RegisterOptions((await told.start(), await refusing.start()))
    all_rows = MetricsRows()
    service = service_of(MessageStore.open(g1_store), meter=Meter(all_rows.begin(0)), register=options)
    try:
        async with serving(service) as server:
            watched = Watched(server, service, all_rows)
            await until(lambda: figure(watched.figures(), "name_servers_registered") == 1)
            assert figure(watched.figures(), "name_servers") == 2
    finally:
        told.close()
        refusing.close()


async def answers(client: RawClient, count: int) -> list[int]:
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


async def test_every_byte_in_and_out_is_counted(watched: Watched) -> None:
    async with connected(watched.server.addresses[0]) as client:
        sent = view(0) * 2 + query("TopicTest", "none") + view(7)
        for start in range(0, len(sent), 100):
            client.writer.write(sent[start : start + 100])
            await client.writer.drain()
            await asyncio.sleep(0)
        decoder, received, frames = FrameDecoder(), 0, 0
        while frames < 4:
            async with asyncio.timeout(60):
                data = await client.reader.read(1 << 20)
            received += len(data)
            frames += len(decoder.feed(data))
        figures = watched.figures()
    assert figure(figures, "received_bytes_total") == len(sent)
    assert figure(figures, "sent_bytes_total") == received
    assert sum(value for (name, _), value in figures.items() if name == "rocketlens_requests_total") == 4


@pytest.mark.lane
async def test_key_queries_tell_what_they_cost_whichever_way_they_take(watched: Watched) -> None:
    async with connected(watched.server.addresses[0]) as client:
        before = watched.figures()
        client.writer.write(query("TopicTest", "hotkey"))
        await client.answer()
        lane = watched.figures()
        # With flags that the lane does not know it is for the ordinary way.
        client.writer.write(query("TopicTest", "hotkey").replace(b'"flag":0', b'"flag":8'))
        await client.answer()
        ordinary = watched.figures()
    walked = figure(lane, "chain_steps_total") - figure(before, "chain_steps_total")
    assert walked > 32
    assert figure(ordinary, "chain_steps_total") - figure(lane, "chain_steps_total") == walked
    assert [figure(each, "key_queries_total") for each in (before, lane, ordinary)] == [0, 1, 2]
    assert figure(ordinary, "fast_lane_requests_total") == 1


async def test_connections_are_counted_in_and_out(g1_store: Path) -> None:
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


async def test_held_pulls_are_told_while_they_wait_and_counted_when_answered(watched: Watched) -> None:
    fields = pull_of("TopicTest", 0, 12, consumerGroup="CG_TAG", sysFlag=6, suspendTimeoutMillis=300, subVersion=1)
    async with connected(watched.server.addresses[0]) as client:
        client.send(RequestCode.PULL_MESSAGE, fields)
        await until(lambda: figure(watched.figures(), "long_polls") == 1)
        assert (await client.answer()).code == ResponseCode.PULL_NOT_FOUND
        figures = watched.figures()
    assert figure(figures, "long_polls") == 0
    assert figure(figures, "long_polls_held_total") == 1
    assert figure(figures, "requests_total", code="PULL_MESSAGE", result="PULL_NOT_FOUND") == 1
    assert figure(figures, "request_duration_seconds_count", code="PULL_MESSAGE") == 0


class ColdShelf:
    """Three look-ups that have to wait, each for another reason."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def _look_up(self, kind: WaitKind) -> Lookup[Response]:
        yield Wait("it is there", kind=kind)
        assert self.release.wait(60)
        return Response()

    @handles(RequestCode.GET_MAX_OFFSET, EmptyRequestHeader)
    def page(self, header: EmptyRequestHeader) -> Lookup[Response]:
        return self._look_up(WaitKind.PAGE)

    @handles(RequestCode.GET_MIN_OFFSET, EmptyRequestHeader)
    def chain(self, header: EmptyRequestHeader) -> Lookup[Response]:
        return self._look_up(WaitKind.CHAIN)

    @handles(RequestCode.GET_EARLIEST_MSG_STORETIME, EmptyRequestHeader)
    def scan(self, header: EmptyRequestHeader) -> Lookup[Response]:
        return self._look_up(WaitKind.SCAN)


async def test_requests_that_wait_are_counted_by_reason_and_take_as_long_as_they_wait() -> None:
    shelf, shared = ColdShelf(), MetricsRows()
    service = service_of(FakeStore(), meter=Meter(shared.begin(0)))
    async with serving(service, [shelf]) as server, connected(server.addresses[0]) as client:
        codes = [RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET, RequestCode.GET_EARLIEST_MSG_STORETIME]
        for code in codes:
            client.send(code)
        await until(lambda: shared.totals()[rows.WAITED : rows.WAITED + 3].tolist() == [1, 1, 1])
        server.publish()
        assert shared.totals()[rows.POOL_WORK] == 3
        started = time.perf_counter_ns()
        await asyncio.sleep(0.02)
        waited = time.perf_counter_ns() - started
        shelf.release.set()
        assert await answers(client, 3) == [0, 0, 0]
        server.publish()
        totals = shared.totals()
    for code in codes:
        request, duration = rows.places_of(code, 0)
        assert totals[request] == 1
        assert totals[duration : duration + rows.BUCKETS].sum() == 1
        assert totals[duration + rows.BUCKETS] >= waited


async def test_made_up_codes_take_no_memory() -> None:
    meter = Meter()
    for number in range(3 * MOST_NOTED):
        meter.answers.append(50_000 + number % 9_999 << RESULT_BITS)
        meter.end_turn(time.perf_counter_ns(), 0, Client())
    assert len(meter._keys) <= MOST_NOTED
    meter.add_up()
    assert meter.row[rows.places_of(50_000, 0)[0]] == 3 * MOST_NOTED


async def test_a_turn_of_many_requests_counts_each_of_them() -> None:
    meter = Meter()
    meter.answers += [11 << RESULT_BITS] * 5 + [33 << RESULT_BITS | 1] * 2 + [11 << RESULT_BITS]
    meter.end_turn(time.perf_counter_ns() - 1_000_000, 100, Client())
    meter.add_up()
    for code, result, count in ((RequestCode.PULL_MESSAGE, 0, 6), (RequestCode.VIEW_MESSAGE_BY_ID, 1, 2)):
        request, duration = rows.places_of(code, result)
        assert meter.row[request] == count
        assert meter.row[duration + rows.BUCKETS] >= 1_000_000 * count
    assert sum(meter.row[rows.TURNS : rows.TURNS + rows.BUCKETS]) == 1
    meter.add_up()
    assert meter.row[rows.SENT_BYTES] == 100
