"""Runs again and again: what is shown and counted of each."""

import urllib.request
from pathlib import Path

import pytest

from exported_files import append
from protocol.errors import ConfigError, RocketLensError, StoreError
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.run.report import Report
from spark_jobs.tables.days import parse_pause
from spark_jobs.tables.every import TableMetrics, append_every, served
from spark_jobs.tables.table_request import TableDetails
from store_writer import StoreWriter


class Stopped(BaseException):
    """What a signal makes of the waiting."""


def figures(port: int) -> dict[str, float]:
    """The metrics by name and labels, without the times at which counters were made."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs if "_created" not in name}


def test_each_run_is_shown_and_counted(tmp_path: Path) -> None:
    store = StoreWriter(tmp_path / "store", segment_size=4096)
    place = OutputPlace(f"file://{tmp_path}/table")
    damaged = [store.append("Orders", b"x" * 40) for _ in range(5)][1]
    store.flush()
    store.overwrite(damaged.physical_offset + 8, b"\xff" * 8)
    shown: list[Report[TableDetails] | RocketLensError] = []
    waited: list[float] = []

    def run() -> Report[TableDetails]:
        if len(shown) == 2:
            raise StoreError("s3://stores/x", what="cannot be used: it does not answer")
        return append(store, place)

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            raise Stopped

    metrics = TableMetrics()
    with served(metrics, "127.0.0.1", 0) as port:
        with pytest.raises(Stopped):
            append_every(run, 300, metrics, shown.append, wait)
        found = figures(port)
    first, second, third = shown
    assert isinstance(first, Report)
    assert isinstance(second, Report)
    assert (first.messages, second.details.is_empty, "does not answer" in str(third)) == (4, True, True)
    assert all(0 < seconds < 300 for seconds in waited)
    files = sum(each.size for each in place.objects("data").values())
    end = sum(each.size for each in store.written)
    names = ("messages_total", "log_bytes_total", "file_bytes_total", "damaged_places_total", "gap_bytes_total")
    assert [found[f"rocketlens_table_{name}"] for name in names] == [4, end, files, 1, 0]
    assert found["rocketlens_table_position"] == end
    runs = {
        result: found[f'rocketlens_table_runs_total{{result="{result}"}}']
        for result in ("committed", "empty", "failed")
    }
    assert runs == {"committed": 1, "empty": 1, "failed": 1}


def test_what_cannot_succeed_later_ends_it() -> None:
    def run() -> Report[TableDetails]:
        raise ConfigError("another store")

    with pytest.raises(ConfigError, match="another store"):
        append_every(run, 1, TableMetrics(), lambda _: None, lambda _: pytest.fail("it waits"))


@pytest.mark.parametrize("text", ["", "5", "0m", "-1m", "1.5h", "m", "5 m"])
def test_a_pause_is_a_number_and_a_unit(text: str) -> None:
    assert list(map(parse_pause, ("30s", "5m", "2h", "1d"))) == [30, 300, 7200, 86400]
    with pytest.raises(ConfigError, match="is no time like 30s"):
        parse_pause(text)
