"""Figures: what is counted is reported as the sum over workers, and of the store what the official tools say."""

import shutil
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.metrics import metrics_rows as rows
from broker.metrics.metrics_rows import MetricsRows, places_of
from broker.web._metrics_families import COUNTER, FAMILIES
from broker.web.metrics_collector import PLAIN, Exposition, ServerCollector
from broker.web.metrics_store import MOST_PAIRS, StoreFigures
from broker_harness import service_of
from golden_store import G1
from metric_figures import figure, figures_of
from protocol.codes import RequestCode
from storage.store.message_store import MessageStore

WORKERS = 3
STORES = ("broker-a", "broker-b")
OF_WORKERS = {"build_info", "workers", "worker_up", "worker_starts_total", "worker_stuck_total"}
OF_WORKERS.add("worker_resident_memory_bytes")
"""What is no sum."""

NANOSECONDS = {"pool_wait_seconds": rows.POOL_WAIT}
BY_REASON = {"waited_requests": rows.WAITED, "slow_queries": rows.SLOW}
OF_SEARCHES = ("key_queries", "chain_steps", "collisions_refused")
"""In the order in which the rows have what key queries cost."""

KINDS = ("bad_pointer", "no_record")


def value_at(worker: int, store: int, place: int) -> int:
    return 1_000_000 * (worker + 1) + 10_000_000 * store + 100 * place


def total_of(store: int, place: int) -> int:
    return sum(value_at(worker, store, place) for worker in range(WORKERS))


@pytest.fixture(scope="module")
def figures():
    shared = MetricsRows(WORKERS, len(STORES))
    for worker in range(WORKERS):
        for store in range(len(STORES)):
            row = shared.begin(worker, store)
            for place in range(rows.CONNECTIONS, rows.ROW_LENGTH):
                row[place] = value_at(worker, store, place)
            row[rows.CPU] = 2_000_000_000 if not store else 0
            row[rows.STATE], row[rows.HEARTBEAT] = rows.SERVING, 2**62
    stores = [SimpleNamespace(broker=name, read=lambda _samples: None) for name in STORES]
    return figures_of(Exposition(ServerCollector(shared, stores)).render("")[0].decode())


def expected(store):
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


def test_every_figure_of_a_store_is_the_sum_over_the_workers(figures) -> None:
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


def test_a_worker_that_is_gone_has_counted_but_has_no_connections() -> None:
    shared = MetricsRows(2)
    for worker, heard in enumerate((2**62, 0)):
        row = shared.begin(worker)
        row[rows.CONNECTIONS] = row[rows.ACCEPTED] = 5
        row[rows.STATE], row[rows.HEARTBEAT] = rows.SERVING, heard
    stores = [SimpleNamespace(broker="broker-a", read=lambda _samples: None)]
    figures = figures_of(Exposition(ServerCollector(shared, stores)).render("")[0].decode())
    assert figure(figures, "connections") == 5
    assert figure(figures, "connections_accepted_total") == 10
    assert [figure(figures, "worker_up", worker=worker) for worker in "01"] == [1, 0]
    assert figure(figures, "worker_resident_memory_bytes", worker="0") > 1_000_000


def told(service, store=None):
    exposition = Exposition(ServerCollector(MetricsRows(), [store or StoreFigures(service)]))
    return figures_of(exposition.render("")[0].decode())


@pytest.fixture
def service(g1_store):
    return service_of(MessageStore.open(g1_store))


def test_every_metric_is_served(service) -> None:
    exposition = Exposition(ServerCollector(MetricsRows(), [StoreFigures(service)]))
    text = exposition.render("")[0].decode()
    served = [line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE")]
    assert served == [[family.full_name, family.kind] for family in FAMILIES]
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert figures_of(text) == {(each.name, frozenset(each.labels.items())): each.value for each in samples}


def test_lag_is_what_the_official_mqadmin_printed(service) -> None:
    lines = (G1 / "mqadmin-out" / "consumerProgress.txt").read_text().splitlines()
    progress = {words[0]: int(words[-1]) for words in map(str.split, lines) if words and not words[0].startswith("#")}
    assert progress["CG_TAG"] == 44
    figures = told(service)
    for group, lag in progress.items():
        lags = {labels: value for (name, labels), value in figures.items() if name.endswith("_group_lag_messages")}
        of_group = [value for labels, value in lags.items() if ("group", group) in labels]
        assert sum(of_group) == lag, group


def test_a_store_without_an_index_covers_nothing_until_it_is_scanned(g1_store, tmp_path) -> None:
    copy = shutil.copytree(g1_store, tmp_path / "copy")
    shutil.rmtree(copy / "index")
    figures = told(service_of(MessageStore.open(copy)))
    assert figure(figures, "index_covered_ratio", broker="broker-a") == 0
    assert figure(figures, "index_lag_bytes", broker="broker-a") == 156_014
    assert figure(figures, "index_scanned_entries", broker="broker-a") > 500
    assert figure(figures, "index_unscanned_bytes", broker="broker-a") == 0


def test_missing_segments_and_broken_files_are_told_by_kind(g1_store, tmp_path) -> None:
    copy = shutil.copytree(g1_store, tmp_path / "copy")
    segments = sorted((copy / "commitlog").iterdir())
    (copy / "config" / "consumerOffset.json").write_text("{")
    (copy / "config" / "consumerOffset.json.bak").unlink(missing_ok=True)
    index = min((copy / "index").iterdir())
    index.write_bytes(index.read_bytes()[:30])
    with segments[0].open("r+b") as file:
        file.truncate(53_248)
    figures = told(service_of(MessageStore.open(copy)))
    for kind in ("hole", "config", "index_file"):
        assert figure(figures, "damage", broker="broker-a", kind=kind) >= 1, kind
    assert figure(figures, "damage", broker="broker-a", kind="queue") == 0


def test_groups_without_end_are_not_shown_without_end(service) -> None:
    recorded = len(service.offsets.pairs())
    for number in range(MOST_PAIRS):
        service.offsets.commit(f"group-{number}", "TopicTest", 0, 1)
    figures = told(service)
    shown = [labels for name, labels in figures if name == "rocketlens_consumer_group_lag_messages"]
    assert len(shown) == MOST_PAIRS
    assert figure(figures, "consumer_group_pairs_left_out", broker="broker-a") == recorded
    assert any(("group", "CG_TAG") in labels for labels in shown)
