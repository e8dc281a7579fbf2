"""What is computed of jobs on large logs: true of jobs on small ones, and what the page says."""

import pytest

from benchmarks.scale import MASTER_CORES, STORE_QUEUES, load_kept
from benchmarks.scale_plan import GB, GIB, JOBS, SHUFFLE, Log, constants_of, foretell, tasks_of

SLOTS, ENTRIES, FILE_UNITS, SEGMENT = 97, 301, 20, 1 << 15
MOST_OF_A_GB = 0.65
"""CPU seconds that the page allows a GB to take more than was computed."""


def kept():
    runs = load_kept().runs
    for run in runs:
        constants = constants_of([each for each in runs if each.job == run.job])
        yield run, foretell(run.job, constants, log_of_run(run), MASTER_CORES)


def log_of_run(run):
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
