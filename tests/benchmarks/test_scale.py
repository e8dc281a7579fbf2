"""What is computed of jobs on large logs: true of jobs on small ones, and what the page says."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.scale import MASTER_CORES, STORE_QUEUES, load_kept
from benchmarks.scale_plan import (
    EXPORT,
    GB,
    GIB,
    JOBS,
    REBUILD,
    SHUFFLE,
    VERIFY,
    Foretold,
    Log,
    Prices,
    Run,
    constants_of,
    foretell,
    tasks_of,
)
from blocking_client import eventually
from oracles import read_log
from spark_events import SparkEvents
from spark_jobs.build import split_queues
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands.run import run_rebuild
from spark_jobs.doctor.deep_check import run_deep_check
from spark_jobs.doctor.deep_request import DeepRequest
from spark_jobs.export.export import run_export
from spark_jobs.export.export_request import ExportRequest
from spark_jobs.run.progress import Silence
from store_writer import StoreWriter

if TYPE_CHECKING:
    from pyspark import SparkContext

SLOTS, ENTRIES, FILE_UNITS, SEGMENT = 97, 301, 20, 1 << 15
MESSAGES = 1100
HOT = ((b"Hot", 0),)
SPARK: dict[str, Any] = {"engine": "spark"}
MOST_OF_A_GB = 0.65
"""CPU seconds that the page allows a GB to take more than was computed."""


# --- jobs on a small log ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One queue has all messages, which have three entries each, so that it is built and checked in parts."""
    sizes = {"segment_size": SEGMENT, "index_slots": SLOTS, "index_entries": ENTRIES}
    writer = StoreWriter(tmp_path_factory.mktemp("scale") / "store", queue_file_size=20 * FILE_UNITS, **sizes)
    for number in range(MESSAGES):
        writer.append("Hot", b"x" * 100, keys=f"k{number:05d}", unique_key=f"u{number:05d}", tags="t")
    writer.close()
    return writer.root


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_queues, "LEAST_UNITS", FILE_UNITS)


def log_of(store: Path) -> Log:
    first, second = (record.physical_offset for record in read_log(store / "commitlog")[:2])
    log = Log(MESSAGES, HOT, second - first, 3, SEGMENT, ENTRIES, SLOTS, FILE_UNITS)
    assert log.segments == len(list((store / "commitlog").iterdir())) > 5
    return log


def rebuild(store: Path, out: Path, exchange: str) -> None:
    bare = out.with_name(f"bare-{exchange}")
    for name in ("commitlog", "config"):
        if (store / name).exists():
            (bare / name).parent.mkdir(exist_ok=True)
            (bare / name).symlink_to(store / name)
    place = f"file://{out}" if exchange == "shuffle" else str(out)
    shape = {"slots": SLOTS, "entries": ENTRIES, "queue_file_size": 20 * FILE_UNITS}
    request = RebuildRequest(store=str(bare), out=place, exchange=exchange, index=True, queues=True, **SPARK, **shape)
    run_rebuild(request, Silence())


RUNS: dict[str, Callable[[Path, Path], object]] = {
    REBUILD: lambda store, out: rebuild(store, out, "files"),
    SHUFFLE: lambda store, out: rebuild(store, out, "shuffle"),
    VERIFY: lambda store, out: run_deep_check(DeepRequest(store=str(store), work=str(out), **SPARK), Silence()),
    EXPORT: lambda store, out: run_export(
        ExportRequest(store=str(store), out=str(out), format="ndjson", **SPARK), Silence()
    ),
}


@pytest.mark.soak  # in each run: tasks of a rebuild by their phases, test_engines.py
@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(
    "job", [REBUILD, *(pytest.param(job, marks=pytest.mark.soak) for job in RUNS if job != REBUILD)]
)
def test_a_job_runs_as_many_tasks_as_are_computed(spark: "SparkContext", store: Path, tmp_path: Path, job: str) -> None:
    expected = tasks_of(job, log_of(store))
    assert (job == EXPORT) == ("survey" not in expected), "the queue is to be split"
    events = SparkEvents(Path(spark.getConf().get("spark.eventLog.dir", "").removeprefix("file://")), spark)
    before = Counter(events.job_tasks())
    RUNS[job](store, tmp_path / "out")

    def ended() -> dict[str, int]:
        return dict(Counter(events.job_tasks()) - before)

    last = next(reversed(expected))
    eventually(lambda: ended().get(last, 0) >= expected[last], "the events of the job")
    assert ended() == expected


# --- the runs that are kept -------------------------------------------------------------------------------------------


def kept() -> Iterator[tuple[Run, Foretold]]:
    """Every run, and what is computed for it."""
    runs = load_kept().runs
    for run in runs:
        constants = constants_of([each for each in runs if each.job == run.job])
        yield run, foretell(run.job, constants, log_of_run(run), MASTER_CORES)


def log_of_run(run: Run) -> Log:
    return Log(run.messages, STORE_QUEUES, run.log_bytes / run.messages)


def test_each_job_was_run_on_logs_of_1_4_and_16_gb() -> None:
    sizes = {job: [round(run.log_bytes / GIB) for run in load_kept().runs if run.job == job] for job in JOBS}
    assert sizes == {job: [1, 4, 16] for job in JOBS}


def test_every_run_had_as_many_tasks_in_each_phase_as_are_computed() -> None:
    for run, _ in kept():
        assert run.tasks == dict(sorted(tasks_of(run.job, log_of_run(run)).items())), run


def test_bytes_of_runs_are_nearly_those_that_are_computed() -> None:
    """The disk of the shuffle is a bound: not all of it is taken at the same time."""
    for run, found in kept():
        assert found.sent == pytest.approx(run.sent, rel=0.03), run
        assert found.out == pytest.approx(run.out, rel=0.03), run
        if run.job == SHUFFLE:
            assert 1 <= found.disk / run.disk < 1.3, run
        else:
            assert found.disk == pytest.approx(run.disk, rel=0.03, abs=1 << 16), run


def test_the_cpu_time_of_the_largest_runs_was_foretold_from_smaller_ones() -> None:
    """The line through 1 and 4 GB, which the memory held, lies below what 16 GB took, which it did not hold."""
    largest = [(run, found) for run, found in kept() if round(run.log_bytes / GIB) == 16]
    assert len(largest) == len(JOBS)
    for run, found in largest:
        more = (run.cpu_seconds - found.cpu_seconds) / (run.log_bytes / GB)
        assert 0 <= more < MOST_OF_A_GB, run


def test_money_is_paid_for_cores_that_wait_too_and_for_a_month_of_the_output() -> None:
    """7,200 seconds of CPU on 4 cores, of which half work: 1 hour; a disk of 730 GB for this hour costs a GB-month."""
    foretold = Foretold(tasks=1, sent=0, disk=730 * 10**9, out=100 * 10**9, cpu_seconds=7200.0)
    prices = Prices(cores=4, busy=0.5, core_hour=0.1, gb_month=0.02)
    assert prices.hours(foretold.cpu_seconds) == 1.0
    assert prices.of(foretold) == pytest.approx((0.4 + 0.02, 2.0))
