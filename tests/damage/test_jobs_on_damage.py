"""Whatever is damaged, each job ends as its documentation says: with an exit code, a sentence, and in time."""

import contextlib
import json
import shutil
import signal

import pytest

from command_line import rocketlens
from damage_trials import Trials, few_and_many
from loop_engine import run_jobs_here

SEED = 37
VARIANTS = 300

SECONDS = 300

NOTHING, UNREADABLE, DAMAGED = 1, 3, 4
JOBS: dict[str, tuple[tuple[str, ...], frozenset[int]]] = {
    "doctor": (("--deep", "--json"), frozenset({0, UNREADABLE, DAMAGED})),
    "rebuild all": (("--json", "--out"), frozenset({0, UNREADABLE, DAMAGED})),
    "compact index": (("--json", "--out"), frozenset({0, UNREADABLE, DAMAGED})),
    "export": (("--json", "--format", "ndjson", "--out"), frozenset({0, NOTHING, UNREADABLE, DAMAGED})),
}
"""Options of each job, and the exit codes that it may end with on a store that is damaged (docs/cli.md)."""


class Hangs(BaseException):
    """A job took too long; nothing catches this on its way."""


@contextlib.contextmanager
def limited(what):
    """Raise `Hangs` in a block that does not end in time."""

    def give_up(_number, _frame) -> None:
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


@pytest.mark.parametrize(("chosen", "least"), few_and_many(SEED, 24, VARIANTS))
def test_each_job_ends_as_documented_on_a_damaged_store(chosen, least, trials, tmp_path, monkeypatch) -> None:
    """An exception that is no exit fails the test."""
    run_jobs_here(monkeypatch)
    count = 0
    for trial, damaged in trials.all_damaged(chosen):
        root = damaged.root
        for job, (options, codes) in JOBS.items():
            out = [tmp_path / job] if options[-1] == "--out" else []
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
            shutil.rmtree(tmp_path / job, ignore_errors=True)
        count += 1
    assert count >= least
