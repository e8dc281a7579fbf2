"""The benchmark of several workers, in miniature."""

from pathlib import Path

import pytest

from benchmarks import workers
from benchmarks.workers import Figures


def test_one_worker_and_two_are_measured_in_turns(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "COUNTS", {"view": 400, "key": 200})
    figures = workers.measure(store, tmp_path, 2, 3)
    assert list(figures) == ["view", "key"]
    for both in figures.values():
        assert [len(each.rates) for each in both] == [3, 3]
        assert all(figure > 0 for each in both for figure in (*each.rates, *each.cpu_us))
    assert workers.show(figures, 2).count("\n| ") == 2


def test_the_ratio_is_of_neighbouring_slices() -> None:
    both = Figures([100.0, 10.0, 50.0], [1.0] * 3), Figures([110.0, 10.0, 25.0], [2.0] * 3)
    assert workers.ratios(both) == [0.5, 1.0, 1.1]
    assert "| view | 50 | 25 | 0.500 … 1.000 … 1.100 | 1.00 | 2.00 |" in workers.show({"view": both}, 2)
