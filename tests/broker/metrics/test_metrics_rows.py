"""Rows of figures: where what stands, and what outlives a worker."""

import os
import time

import pytest

from broker.metrics import metrics_rows as rows
from broker.metrics.metrics_rows import MetricsRows, bucket_bounds, places_of
from protocol.codes import RequestCode, ResponseCode


def test_places_do_not_overlap() -> None:
    single = [rows.HEARTBEAT, rows.STATE, rows.PROCESS, rows.STARTS, rows.CPU, rows.CONNECTIONS, rows.HELD_PULLS]
    single += [rows.POOL_WORK, rows.IN_FLIGHT_BYTES, rows.UNFINISHED_BYTES, rows.UNSENT_BYTES, rows.RECEIVED_BYTES]
    single += [rows.NAME_SERVERS, rows.REGISTERED, rows.HOLES]
    single += [rows.SENT_BYTES, rows.ACCEPTED, rows.DROPPED, rows.HELD_TOTAL, rows.LANE_REQUESTS, rows.POOL_WAIT]
    taken = single + [
        first + number
        for first, count in (
            (rows.SEARCH, len(rows.SEARCH_FIGURES)),
            (rows.WAITED, len(rows.REASONS)),
            (rows.SLOW, len(rows.REASONS)),
            (rows.HOLE_MESSAGES, len(rows.HOLE_OUTCOMES)),
            (rows.TURNS, rows.DURATION_PLACES),
        )
        for number in range(count)
    ]
    taken += [places_of(code, result)[0] for code in (0, *RequestCode, -5) for result in (*ResponseCode, 9999)]
    taken += [places_of(code, 0)[1] + at for code in (0, *RequestCode, -5) for at in range(rows.DURATION_PLACES)]
    assert len(set(taken)) == len(taken)
    assert max(taken) < rows.ROW_LENGTH


def test_a_duration_falls_below_the_bound_of_its_bucket() -> None:
    bounds = [0.0, *bucket_bounds(), float("inf")]
    for nanoseconds in (0, 1, 16_383, 16_384, 32_767, 1_000_000, 3_600_000_000_000, 2**63):
        bucket = rows.BUCKET_OF[nanoseconds.bit_length()]
        assert bounds[bucket] <= nanoseconds / 1e9 < bounds[bucket + 1]


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


@pytest.mark.parametrize("state", [rows.GONE, rows.STOPPING])
def test_a_worker_that_stops_does_not_serve(state: int) -> None:
    shared = MetricsRows()
    row = shared.begin(0)
    row[rows.STATE], row[rows.HEARTBEAT] = state, time.monotonic_ns()
    assert shared.are_serving() == [False]
