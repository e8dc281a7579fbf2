"""The benchmark of what counting costs, in miniature."""

import asyncio
from pathlib import Path

import pytest

from benchmarks import metrics_cost
from benchmarks.measure import MANY, ONE
from benchmarks.store_plan import StorePlan


def test_servers_with_and_without_metrics_are_measured_in_turns(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_cost, "COUNTS", {MANY: 500, ONE: 100})
    monkeypatch.setattr(metrics_cost, "SCRAPES", 2)
    figures, scrape = metrics_cost.measure_servers(store, tmp_path, 2)
    assert 0 < scrape < 10_000
    assert {mode: {kind: len(each) for kind, each in kinds.items()} for mode, kinds in figures.items()} == {
        mode: {"without": 2, "with": 2} for mode in (MANY, ONE)
    }
    assert all(figure > 0 for kinds in figures.values() for each in kinds.values() for figure in each)


def test_connections_of_both_kinds_are_measured_on_both_ways(
    store: Path, plan: StorePlan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics_cost, "READS", {1: 20, 16: 5})
    figures = asyncio.run(metrics_cost.measure_connections(store, plan.physical_offsets[:16].tolist(), 2))
    assert list(figures) == [f"{way}, {count} a read" for way in ("fast lane", "ordinary way") for count in (1, 16)]
    metrics_cost._print("title", figures)
    assert capsys.readouterr().out.count("\n| ") == 5
