"""Rows become figures: everything that is counted is reported under its own name, as the sum over workers."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from broker.metrics import metrics_rows as rows
from broker.metrics.metrics_rows import MetricsRows, places_of
from broker.web._metrics_families import COUNTER, FAMILIES
from broker.web.metrics_collector import PLAIN, Exposition, ServerCollector
from metric_figures import Figures, figure, figures_of
from protocol.codes import RequestCode

WORKERS = 3
STORES = ("broker-a", "broker-b")
OF_WORKERS = {
    "build_info",
    "workers",
    "worker_up",
    "worker_starts_total",
    "worker_stuck_total",
    "worker_resident_memory_bytes",
}
"""What is no sum."""

NANOSECONDS = {"pool_wait_seconds": rows.POOL_WAIT}
BY_REASON = {"waited_requests": rows.WAITED, "slow_queries": rows.SLOW}
OF_SEARCHES = ("key_queries", "chain_steps", "collisions_refused")
"""In the order in which the rows have what key queries cost."""

KINDS = ("bad_pointer", "no_record")


def value_at(worker: int, store: int, place: int) -> int:
    """What a worker has counted there: every place another number."""
    return 1_000_000 * (worker + 1) + 10_000_000 * store + 100 * place


def total_of(store: int, place: int) -> int:
    return sum(value_at(worker, store, place) for worker in range(WORKERS))


@pytest.fixture(scope="module")
def figures() -> Figures:
    """The figures of three workers that serve two stores each."""
    shared = MetricsRows(WORKERS, len(STORES))
    for worker in range(WORKERS):
        for store in range(len(STORES)):
            row = shared.begin(worker, store)
            for place in range(rows.CONNECTIONS, rows.ROW_LENGTH):
                row[place] = value_at(worker, store, place)
            row[rows.CPU] = 2_000_000_000 if not store else 0
            row[rows.STATE], row[rows.HEARTBEAT] = rows.SERVING, 2**62
    stores = [SimpleNamespace(broker=name, read=lambda _samples: None) for name in STORES]
    return figures_of(Exposition(ServerCollector(shared, stores)).render("")[0].decode())  # type: ignore[arg-type]


def expected(store: int) -> Iterator[tuple[str, dict[str, str], float]]:
    """Name, labels and value of every figure of a store that is one place of the rows, or the sum of two."""
    for name, place in PLAIN.items():
        yield name, {}, total_of(store, place)
    for name, place in NANOSECONDS.items():
        yield name, {}, total_of(store, place) / 1e9
    for name, first in BY_REASON.items():
        for number, reason in enumerate(rows.REASONS):
            if name == "slow_queries" or number not in (rows.POOL_QUEUE, rows.EVENT_LOOP):
                yield name, {"reason": reason}, total_of(store, first + number)
    cost = [total_of(store, rows.SEARCH + at) for at in range(5)]
    yield from ((name, {}, value) for name, value in zip(OF_SEARCHES, cost[:3], strict=True))
    yield from (("damage_met", {"kind": kind}, value) for kind, value in zip(KINDS, cost[3:], strict=True))
    for number, outcome in enumerate(("found", "lost")):
        yield "queue_hole_messages", {"outcome": outcome}, total_of(store, rows.HOLE_MESSAGES + number)
    for code in (0, *RequestCode, 99_999):
        name = "UNREADABLE" if not code else getattr(code, "name", "OTHER")
        durations = places_of(code, 0)[1]
        yield "requests", {"code": name, "result": "PULL_NOT_FOUND"}, total_of(store, places_of(code, 19)[0])
        yield "request_duration_seconds_sum", {"code": name}, total_of(store, durations + rows.BUCKETS) / 1e9
        yield "request_duration_seconds_count", {"code": name}, buckets_of(store, durations)
    for method in (*rows.METHODS[:-1], "Admin/Unknown"):
        name = {"method": method if method in rows.METHODS else "OTHER"}
        place, durations = rows.call_places_of(method, "OK")
        yield "grpc_calls", {**name, "result": "OK"}, total_of(store, place)
        yield "grpc_call_duration_seconds_sum", name, total_of(store, durations + rows.BUCKETS) / 1e9
        yield "grpc_call_duration_seconds_count", name, buckets_of(store, durations)
    yield "turn_duration_seconds_sum", {}, total_of(store, rows.TURNS + rows.BUCKETS) / 1e9
    yield "turn_duration_seconds_count", {}, buckets_of(store, rows.TURNS)


def buckets_of(store: int, first: int) -> int:
    return sum(total_of(store, first + bucket) for bucket in range(rows.BUCKETS))


def test_every_figure_of_a_store_is_the_sum_over_the_workers(figures: Figures) -> None:
    counters = {family.name for family in FAMILIES if family.kind == COUNTER}
    told = set()
    for store, broker in enumerate(STORES):
        for name, labels, value in expected(store):
            full_name = f"{name}_total" if name in counters else name
            labelled = frozenset({"broker": broker, **labels}.items())
            assert figures[f"rocketlens_{full_name}", labelled] == pytest.approx(value, rel=1e-12), full_name
            told.add(full_name)
    served = {name.removeprefix("rocketlens_") for name, _ in figures if not name.endswith("_bucket")}
    # No figure is reported that this test does not know.
    assert served - told == {"cpu_seconds_total", *OF_WORKERS}


def test_the_cpu_is_that_of_all_workers_and_each_of_them_is_told_for_itself(figures: Figures) -> None:
    assert figure(figures, "cpu_seconds_total") == 2 * WORKERS
    assert figure(figures, "workers") == WORKERS
    for number in range(WORKERS):
        assert figure(figures, "worker_up", worker=str(number)) == 1
        assert figure(figures, "worker_starts_total", worker=str(number)) == 1
        assert figure(figures, "worker_stuck_total", worker=str(number)) == value_at(number, 0, rows.STUCK)
        assert figure(figures, "worker_resident_memory_bytes", worker=str(number)) > 1_000_000
    assert figure(figures, "build_info") == 1


def test_the_buckets_of_a_histogram_are_cumulated_and_the_last_one_is_all(figures: Figures) -> None:
    told = [
        (float(dict(labels)["le"]), value)
        for (name, labels), value in figures.items()
        if name == "rocketlens_turn_duration_seconds_bucket" and ("broker", "broker-a") in labels
    ]
    bounds, counts = zip(*sorted(told), strict=True)
    assert bounds == (*rows.bucket_bounds(), float("inf"))
    assert counts[-1] == figure(figures, "turn_duration_seconds_count", broker="broker-a")
    steps = [total_of(0, rows.TURNS + bucket) for bucket in range(rows.BUCKETS)]
    assert [after - before for before, after in zip((0, *counts), counts, strict=False)] == steps


def test_a_worker_that_is_gone_has_counted_but_has_no_connections() -> None:
    shared = MetricsRows(2)
    for worker, heard in enumerate((2**62, 0)):
        row = shared.begin(worker)
        row[rows.CONNECTIONS] = row[rows.ACCEPTED] = 5
        row[rows.STATE], row[rows.HEARTBEAT] = rows.SERVING, heard
    stores = [SimpleNamespace(broker="broker-a", read=lambda _samples: None)]
    figures = figures_of(Exposition(ServerCollector(shared, stores)).render("")[0].decode())  # type: ignore[arg-type]
    assert figure(figures, "connections") == 5
    assert figure(figures, "connections_accepted_total") == 10
    assert [figure(figures, "worker_up", worker=worker) for worker in "01"] == [1, 0]
