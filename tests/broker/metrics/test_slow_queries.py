"""A slow query is one line that says why, and never what was asked for."""

import logging

import pytest

from broker.metrics import metrics_rows as rows
from broker.metrics import slow_queries
from broker.metrics.metrics_meter import Meter
from broker.metrics.slow_queries import SlowQueries, Visit
from broker.service.dispatcher import handles
from broker_harness import FakeStore, connected, service_of, serving
from protocol.codes import RequestCode
from protocol.command import Command, Response, decode_command, encode_request
from protocol.frame import FrameDecoder
from protocol.headers import EmptyRequestHeader
from storage.files.waiting import Lookup, Wait, WaitKind

SECRET = "order-4711-of-somebody"
MILLISECOND = 1_000_000


def command_of(**fields: str) -> Command:
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
    assert record.fields == {  # type: ignore[attr-defined]
        "code": "QUERY_MESSAGE",
        "result": "SUCCESS",
        "peer": "10.0.0.9:1",
        "milliseconds": 1450.0,
        "reason": "cold",
        "topic": "orders",
        "group": "g",
        "queued_milliseconds": 3.0,
        "disk_milliseconds": 1400.0,
        "detail": "000 is cold at 7",
        "requests": 1,
    }
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("visit", "reason"),
    [
        (visit_of(2, 900), rows.COLD),
        (visit_of(2, 0, WaitKind.CHAIN), rows.LONG_CHAIN),
        (visit_of(2, 0, WaitKind.SCAN), rows.SCAN),
        (visit_of(600, 300), rows.POOL_QUEUE),
        (Visit(), rows.ASKED_ANOTHER),
    ],
)
def test_the_reason_is_what_most_of_the_time_went_into(visit: Visit, reason: int) -> None:
    assert visit.reason(1000 * MILLISECOND) == reason


def test_names_that_clients_made_up_stay_on_one_line(caplog: pytest.LogCaptureFixture) -> None:
    command = command_of(topic="a\nERROR all is lost\x1b[2J", consumerGroup="x" * 9999)
    SlowQueries().report_waited(command, 77_777, "somebody", 10**9, Visit())
    message = caplog.records[0].getMessage()
    assert message.isprintable()
    assert len(message) < 600


def test_a_thousand_slow_queries_are_some_lines_and_a_number(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, now = SlowQueries(), [100.0]
    monkeypatch.setattr(slow_queries.time, "monotonic", lambda: now[0])
    for _ in range(1000):
        slow.report_turn(RequestCode.VIEW_MESSAGE_BY_ID, 0, 1, "somebody", 10**9)
    assert len(caplog.records) == slow_queries.LINES
    now[0] += slow_queries.PERIOD_SECONDS
    slow.report_turn(0, 0, 0, "somebody", 10**9)
    assert caplog.records[-2].getMessage() == f"{1000 - slow_queries.LINES} more slow queries were not logged"
    assert "a turn of requests from somebody took 1000 ms; event loop" in caplog.records[-1].getMessage()


class Sleeper:
    """Takes its time on the event loop, or on a thread: it puts the clock forward, which else stands still."""

    def __init__(self) -> None:
        self.now = 0

    @handles(RequestCode.GET_MAX_OFFSET, EmptyRequestHeader)
    def on_the_loop(self, header: EmptyRequestHeader) -> Response:
        self.now += 300 * MILLISECOND
        return Response()

    @handles(RequestCode.GET_MIN_OFFSET, EmptyRequestHeader)
    def on_a_thread(self, header: EmptyRequestHeader) -> Lookup[Response]:
        yield Wait("somewhere deep")
        self.now += 250 * MILLISECOND
        return Response()

    @handles(RequestCode.GET_EARLIEST_MSG_STORETIME, EmptyRequestHeader)
    def quickly(self, header: EmptyRequestHeader) -> Response:
        self.now += 200 * MILLISECOND
        return Response()


@pytest.mark.asyncio
async def test_a_server_tells_of_slow_requests_on_the_loop_and_on_threads(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert [(each["code"], each["reason"], each["milliseconds"]) for each in told] == [
        ("GET_MAX_OFFSET", "event_loop", 300),
        ("GET_MIN_OFFSET", "scan", 250),
    ]
    slow = list(service.meter.row[rows.SLOW : rows.SLOW + len(rows.REASONS)])
    assert slow[rows.SCAN] == 1 <= slow[rows.EVENT_LOOP]  # the turn that handed it to the thread may be another
