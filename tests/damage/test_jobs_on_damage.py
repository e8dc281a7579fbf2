"""Whatever is damaged, each job ends as its documentation says: with an exit code, a sentence, and in time."""

import contextlib
import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from command_line import rocketlens
from damage_trials import Trial, Trials, each_kind, random_trials
from damaged_stores import Unfit

SEED = 37
VARIANTS = 300
"""Damaged stores of `make soak`."""

SECONDS = 300
"""In which a job on a small store ends, however busy the machine is."""

NOTHING, UNREADABLE, DAMAGED = 1, 3, 4
JOBS: dict[str, tuple[tuple[str, ...], frozenset[int]]] = {
    "doctor": (("--deep", "--json"), frozenset({0, UNREADABLE, DAMAGED})),
    "rebuild all": (("--json", "--out"), frozenset({0, UNREADABLE, DAMAGED})),
    "compact index": (("--json", "--out"), frozenset({0, UNREADABLE, DAMAGED})),
    "export": (("--json", "--format", "ndjson", "--out"), frozenset({0, NOTHING, UNREADABLE, DAMAGED})),
}
"""Options of each job, and the exit codes that it may end with on a store that is damaged (docs/cli.md)."""

pytestmark = pytest.mark.usefixtures("spark")


class Hangs(BaseException):
    """A job took too long; nothing catches this on its way."""


@contextlib.contextmanager
def limited(what: str) -> Iterator[None]:
    """Raise `Hangs` in a block that does not end in time."""

    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise Hangs(what)

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    return Trials(tmp_path_factory.mktemp("trials"))


def run_jobs(trials: Trials, chosen: Iterator[Trial], folder: Path) -> int:
    """Have each job run on damaged stores; how many there were. An exception that is no exit fails the test."""
    count = 0
    for trial in chosen:
        try:
            root = trials.damaged(trial).root
        except Unfit:
            continue
        for job, (options, codes) in JOBS.items():
            out = [folder / job] if options[-1] == "--out" else []
            with limited(f"{trial}: {job}"):
                outcome = rocketlens(*job.split(), root, *options, *out)
            assert outcome.code in codes, f"{trial}: {job}: {outcome.code}: {outcome.errors}"
            assert "Traceback" not in outcome.errors, f"{trial}: {job}"
            if outcome.code == UNREADABLE:
                assert outcome.errors.startswith("rocketlens: "), f"{trial}: {job}"
            else:
                report = json.loads(outcome.output)
                command = report["verify"] and "doctor" if job == "doctor" else report["command"]
                assert command == job.split()[0], f"{trial}: {job}"
            shutil.rmtree(folder / job, ignore_errors=True)
        count += 1
    return count


def test_each_job_ends_as_documented_on_a_damaged_store(trials: Trials, tmp_path: Path) -> None:
    few = [trial for number, trial in enumerate(each_kind(SEED)) if number % 12 == 0]
    assert run_jobs(trials, iter(few), tmp_path) > 4


@pytest.mark.soak
def test_each_job_ends_as_documented_whatever_is_damaged(trials: Trials, tmp_path: Path) -> None:
    assert run_jobs(trials, random_trials(SEED, VARIANTS), tmp_path) > 0.7 * VARIANTS
