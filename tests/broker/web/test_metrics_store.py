"""Figures of the store: what the official tools say of it, and what a damaged or a growing one shows."""

import shutil
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.metrics.metrics_rows import MetricsRows
from broker.service.broker_service import BrokerService
from broker.web._metrics_families import FAMILIES
from broker.web.metrics_collector import Exposition, ServerCollector
from broker.web.metrics_store import MOST_PAIRS, StoreFigures
from broker_harness import service_of
from golden_store import G1
from metric_figures import Figures, figure, figures_of
from storage.queue.queue import Queue
from storage.store.message_store import MessageStore


def told(service: BrokerService, store: StoreFigures | None = None) -> Figures:
    exposition = Exposition(ServerCollector(MetricsRows(), [store or StoreFigures(service)]))
    return figures_of(exposition.render("")[0].decode())


@pytest.fixture
def service(g1_store: Path) -> BrokerService:
    return service_of(MessageStore.open(g1_store))


def test_every_metric_is_served(service: BrokerService) -> None:
    exposition = Exposition(ServerCollector(MetricsRows(), [StoreFigures(service)]))
    text = exposition.render("")[0].decode()
    served = [line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE")]
    assert served == [[family.full_name, family.kind] for family in FAMILIES]
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert figures_of(text) == {(each.name, frozenset(each.labels.items())): each.value for each in samples}


def test_lag_is_what_the_official_mqadmin_printed(service: BrokerService) -> None:
    lines = (G1 / "mqadmin-out" / "consumerProgress.txt").read_text().splitlines()
    progress = {words[0]: int(words[-1]) for words in map(str.split, lines) if words and not words[0].startswith("#")}
    assert progress["CG_TAG"] == 44
    figures = told(service)
    for group, lag in progress.items():
        of_group = [
            value
            for (name, labels), value in figures.items()
            if name == "rocketlens_consumer_group_lag_messages" and ("group", group) in labels
        ]
        assert sum(of_group) == lag, group


def test_the_log_and_its_index_are_where_the_official_broker_status_has_them(service: BrokerService) -> None:
    lines = (G1 / "mqadmin-out" / "brokerStatus.txt").read_text().splitlines()
    status = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    figures = told(service)
    for name, figure_name, factor in (
        ("commitLogMinOffset", "commit_log_min_offset_bytes", 1),
        ("commitLogMaxOffset", "commit_log_max_offset_bytes", 1),
        ("earliestMessageTimeStamp", "commit_log_first_timestamp_seconds", 1000),
    ):
        assert round(figure(figures, figure_name, broker="broker-a") * factor) == int(status[name]), name
    assert figure(figures, "index_files", broker="broker-a") == len(
        list((service.store.layout.root / "index").iterdir())
    )
    assert 0.9 < figure(figures, "index_covered_ratio", broker="broker-a") <= 1
    assert figure(figures, "index_lag_bytes", broker="broker-a") == 0


def test_a_store_without_an_index_covers_nothing_until_it_is_scanned(g1_store: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(g1_store, tmp_path / "copy")
    shutil.rmtree(copy / "index")
    figures = told(service_of(MessageStore.open(copy)))
    assert figure(figures, "index_covered_ratio", broker="broker-a") == 0
    assert figure(figures, "index_lag_bytes", broker="broker-a") == 156_014
    assert figure(figures, "index_scanned_entries", broker="broker-a") > 500
    assert figure(figures, "index_unscanned_bytes", broker="broker-a") == 0


def test_missing_segments_and_broken_files_are_told_by_kind(g1_store: Path, tmp_path: Path) -> None:
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


def test_what_a_group_commits_here_counts_at_once_and_how_late_it_is(service: BrokerService) -> None:
    labels = {"broker": "broker-a", "group": "CG_TAG", "topic": "TopicTest"}
    before = told(service)
    assert figure(before, "consumer_group_lag_messages", **labels) == 44
    assert figure(before, "consumer_group_lag_seconds", **labels) > 60
    offsets = service.offsets.offsets_of("CG_TAG", "TopicTest")
    assert offsets
    for queue_id, end in offsets.items():
        queue = service.store.queues.queue("TopicTest", queue_id)
        assert queue is not None
        assert end < queue.max_offset
        service.offsets.commit("CG_TAG", "TopicTest", queue_id, queue.max_offset)
    after = told(service)
    assert figure(after, "consumer_group_lag_messages", **labels) == 0
    assert figure(after, "consumer_group_lag_seconds", **labels) == 0


def test_groups_without_end_are_not_shown_without_end(service: BrokerService) -> None:
    recorded = len(service.offsets.pairs())
    for number in range(MOST_PAIRS):
        service.offsets.commit(f"group-{number}", "TopicTest", 0, 1)
    figures = told(service)
    shown = [labels for name, labels in figures if name == "rocketlens_consumer_group_lag_messages"]
    assert len(shown) == MOST_PAIRS
    assert figure(figures, "consumer_group_pairs_left_out", broker="broker-a") == recorded
    assert any(("group", "CG_TAG") in labels for labels in shown)


def test_one_reading_looks_for_so_many_messages_in_the_log_and_the_next_ones_for_the_rest(
    service: BrokerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.web.metrics_store.MOST_READS", 3)
    looked: list[Queue] = []
    stored_at = type(service.store.queues.queue("TopicTest", 0)).store_timestamp_at  # type: ignore[union-attr]
    monkeypatch.setattr(
        "storage.queue.consume_queue.ConsumeQueue.store_timestamp_at",
        lambda queue, offset: looked.append(queue) or stored_at(queue, offset),  # type: ignore[func-returns-value]
    )
    store, name = StoreFigures(service), "rocketlens_consumer_group_lag_seconds"
    labels = frozenset({"broker": "broker-a", "group": "CG_TAG", "topic": "TopicTest"}.items())
    seen = []
    for _ in range(4):
        figures = told(service, store)
        assert len(looked) <= 3
        looked.clear()
        seen.append((name, labels) in figures)
    assert seen[0] is False
    assert seen[-1] is True
