"""The metrics of all workers and of the store, rendered as Prometheus reads them."""

import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from broker.config import installed_version
from broker.metrics import metrics_rows as rows
from broker.metrics.metrics_rows import MetricsRows
from broker.web._metrics_families import Samples
from broker.web.metrics_store import StoreFigures

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")

PLAIN: Final = {
    "fast_lane_requests": rows.LANE_REQUESTS,
    "received_bytes": rows.RECEIVED_BYTES,
    "sent_bytes": rows.SENT_BYTES,
    "connections": rows.CONNECTIONS,
    "connections_accepted": rows.ACCEPTED,
    "connections_dropped": rows.DROPPED,
    "long_polls": rows.HELD_PULLS,
    "long_polls_held": rows.HELD_TOTAL,
    "waiting_bytes": rows.IN_FLIGHT_BYTES,
    "unfinished_bytes": rows.UNFINISHED_BYTES,
    "unsent_bytes": rows.UNSENT_BYTES,
    "pool_work": rows.POOL_WORK,
    "registry_bytes": rows.REGISTRY_BYTES,
    "registry_refusals": rows.REGISTRY_REFUSED,
    "queue_holes_searching": rows.HOLES,
    "queue_search_left_bytes": rows.SEARCH_LEFT,
    "name_servers": rows.NAME_SERVERS,
    "name_servers_registered": rows.REGISTERED,
}
"""Metrics that are one place of a row."""


BOUNDS: Final = (*(repr(bound) for bound in rows.bucket_bounds()), "+Inf")


class ServerCollector(Collector):
    """All metrics of a server; collecting waits for the disk."""

    def __init__(self, all_rows: MetricsRows, stores: Sequence[StoreFigures]) -> None:
        """Take `stores` in the order in which the rows have them."""
        self._rows, self._stores = all_rows, stores

    def collect(self) -> Iterator[Metric]:
        """Every family of `broker.web._metrics_families`, those without a sample too."""
        samples = Samples()
        samples.put("build_info", 1, installed_version())
        self._put_workers(samples)
        for number, store in enumerate(self._stores):
            totals = self._rows.totals(number).tolist()
            if not number:
                samples.put("cpu_seconds", totals[rows.CPU] / 1e9)
            _put_totals(samples, totals, store.broker)
            _put_requests(samples, totals, store.broker)
            _put_calls(samples, totals, store.broker)
            store.read(samples)
        yield from samples.all()

    def _put_workers(self, samples: Samples) -> None:
        samples.put("workers", len(self._rows))
        serving, starts = self._rows.are_serving(), self._rows.column(rows.STARTS)
        stuck = self._rows.column(rows.STUCK)
        for number, process in enumerate(self._rows.column(rows.PROCESS)):
            samples.put("worker_up", float(serving[number]), str(number))
            samples.put("worker_starts", starts[number], str(number))
            samples.put("worker_stuck", stuck[number], str(number))
            memory = _resident_bytes(process) if serving[number] else None
            if memory is not None:
                samples.put("worker_resident_memory_bytes", memory, str(number))


class Exposition:
    """What `/metrics` answers."""

    def __init__(self, collector: Collector) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(collector)

    def render(self, accept: str) -> tuple[bytes, str]:
        """The figures as they are now in the form that an Accept header asks for, and its content type. Waits."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


def _put_totals(samples: Samples, totals: list[int], broker: str) -> None:
    for name, place in PLAIN.items():
        samples.put(name, totals[place], broker)
    samples.put("pool_wait_seconds", totals[rows.POOL_WAIT] / 1e9, broker)
    for number, reason in enumerate(rows.REASONS):
        if number not in (rows.POOL_QUEUE, rows.EVENT_LOOP):
            samples.put("waited_requests", totals[rows.WAITED + number], broker, reason)
        samples.put("slow_queries", totals[rows.SLOW + number], broker, reason)
    searches = {figure: totals[rows.SEARCH + number] for number, figure in enumerate(rows.SEARCH_FIGURES)}
    samples.put("key_queries", searches["queries"], broker)
    samples.put("chain_steps", searches["steps"], broker)
    samples.put("collisions_refused", searches["refused"], broker)
    samples.put("damage_met", searches["bad_pointers"], broker, "bad_pointer")
    samples.put("damage_met", searches["strays"], broker, "no_record")
    for number, outcome in enumerate(rows.HOLE_OUTCOMES):
        samples.put("queue_hole_messages", totals[rows.HOLE_MESSAGES + number], broker, outcome)


def _put_requests(samples: Samples, totals: list[int], broker: str) -> None:
    """Requests and their durations, of codes that were asked for."""
    _put_durations(samples, "turn_duration_seconds", totals, rows.TURNS, broker)
    for number, code in enumerate(rows.CODES):
        first = rows.REQUESTS + number * len(rows.RESULTS)
        for result, count in zip(rows.RESULTS, totals[first : first + len(rows.RESULTS)], strict=True):
            if count:
                samples.put("requests", count, broker, code, result)
        first = rows.DURATIONS + number * rows.DURATION_PLACES
        if any(totals[first : first + rows.BUCKETS]):
            _put_durations(samples, "request_duration_seconds", totals, first, broker, code)


def _put_calls(samples: Samples, totals: list[int], broker: str) -> None:
    """Calls by gRPC and their durations, of methods that were called."""
    for number, method in enumerate(rows.METHODS):
        first = rows.CALLS + number * len(rows.CALL_RESULTS)
        counts = totals[first : first + len(rows.CALL_RESULTS)]
        for result, count in zip(rows.CALL_RESULTS, counts, strict=True):
            if count:
                samples.put("grpc_calls", count, broker, method, result)
        if any(counts):
            first = rows.CALL_DURATIONS + number * rows.DURATION_PLACES
            _put_durations(samples, "grpc_call_duration_seconds", totals, first, broker, method)


def _put_durations(samples: Samples, name: str, totals: list[int], first: int, *labels: str) -> None:
    counts = itertools.accumulate(totals[first : first + rows.BUCKETS])
    buckets = [(bound, float(count)) for bound, count in zip(BOUNDS, counts, strict=True)]
    samples.put_histogram(name, buckets, totals[first + rows.BUCKETS] / 1e9, *labels)


def _resident_bytes(process: int) -> int | None:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None
