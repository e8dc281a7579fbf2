"""Jobs, conversions and commands on damaged stores and giant files: each ends, as documented."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import rocketlens
from damage_trials import Trials, few_and_many
from giant_files import COMPACTED, GIANT, KINDS, make_giant, write_store
from golden_store import GOLDEN, unpack
from loop_engine import run_jobs_here
from process import ROOT
from protocol.errors import RocketLensError, StoreError
from read_only import state_of
from spark_jobs.commands.run import run_convert
from spark_jobs.convert.convert_request import ConvertRequest
from spark_jobs.run.progress import Silence
from store_kinds import Ledger
from verifying import verify_here

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
    signal.alarm(300)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    return Trials(tmp_path_factory.mktemp("trials"))


@pytest.mark.parametrize(("chosen", "least"), few_and_many(37, 24, 300))
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


def problems(store, *commands):
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests" / "support")))
    run = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "support" / "giant_files.py"), str(store), *commands],
        capture_output=True, text=True, timeout=240, env=os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert run.stdout.endswith("all commands were run\n"), (run.stdout, run.stderr)
    return run.stdout.removesuffix("all commands were run\n")


SMALL = ("abort", "lock", "timerwheel", "timerlog/00000000000000000000", "config/timercheck")
BACKUPS = tuple(kind for kind in KINDS if kind.endswith(".bak"))
TOGETHER = (
    *(*SMALL, *BACKUPS, "checkpoint", "subscriptionGroup.json", "delayOffset.json", "consumerOffset.json"),
    *("queue file", "file of a queue of batches", "extension file", *COMPACTED, "index file"),
)
"""Kinds none of which hides another from those who read it; `make soak` has each alone."""


@pytest.mark.parametrize("kinds",
    [pytest.param(TOGETHER, id="many"), *(pytest.param((kind,), marks=pytest.mark.soak) for kind in KINDS)],
    ids=" and ".join)  # fmt: skip
def test_every_command_does_with_little_memory_where_files_of_any_kind_are_giants(disk_path, kinds) -> None:
    root = disk_path / "store"
    write_store(root)
    for kind in kinds:
        giant = KINDS[kind](root)
        make_giant(giant)
        assert giant.stat().st_size == GIANT
        assert giant.stat().st_blocks * 512 < 1 << 20
    assert problems(root) == ""


@pytest.mark.parametrize("kind", [
    "last segment",
    *(
        pytest.param(kind, marks=pytest.mark.soak)
        for kind in ("queue file", "file of a queue of batches", "index file")
    ),
])  # fmt: skip
def test_a_giant_of_which_the_last_byte_is_there_is_read_where_it_has_bytes(disk_path, kind) -> None:
    root = disk_path / "store"
    write_store(root)
    make_giant(KINDS[kind](root), last=b"\x01")
    commands = ("doctor", "info", "queues", "batches", "tag", "subscription", "tail", "search", "verify")
    assert problems(root, *commands) == ""


@pytest.mark.parametrize(("kind", "place"), [
    ("COMMIT_LOG", max),
    pytest.param("COMMIT_LOG", min, marks=pytest.mark.soak),
    *(pytest.param(kind, place, marks=pytest.mark.soak) for kind in ("CONSUME_QUEUE", "INDEX") for place in (min, max)),
])  # fmt: skip
def test_a_giant_in_a_tier_takes_little_memory_too(disk_path, kind, place) -> None:
    root = unpack("store", disk_path, archives=GOLDEN / "g2" / "g2-tier")
    topic = "rmq_sys_INDEX" if kind == "INDEX" else "TierTopic"
    files = sorted(root.glob(f"tiered/*/*/{topic}/0/{kind}/*"), key=lambda path: path.name[-20:])
    make_giant(place(files))
    assert problems(root) == ""


WAYS = ("overwrite", "zero", "cut", "remove", "lengthen", "exchange")

Damage = tuple[str, int, float, int]
DAMAGES = st.lists(
    st.tuples(st.sampled_from(WAYS), st.integers(0, 99), st.floats(0, 1), st.integers(1, 300)), min_size=1, max_size=4
)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Ledger(tmp_path_factory.mktemp("ledger") / "store")
    for number in range(4):
        made.transaction(number, 25)
        made.timer(number)
    made.write_timer_log()
    made.writer.close()
    return made.root


def damage(store: Path, way: str, number: int, part: float, size: int) -> None:
    files = sorted(path for path in store.rglob("*") if path.is_file())
    path = files[number % len(files)]
    content = path.read_bytes()
    at = int(part * len(content))
    {
        "overwrite": lambda: path.write_bytes(
            content[:at] + bytes(n * 89 % 251 for n in range(size)) + content[at + size :]
        ),
        "zero": lambda: path.write_bytes(content[:at] + bytes(size) + content[at + size :]),
        "cut": lambda: os.truncate(path, at),
        "remove": path.unlink,
        "lengthen": lambda: path.write_bytes(content + content[at : at + size]),
        "exchange": lambda: files[(number + 1) % len(files)].write_bytes(content),
    }[way]()


def check(ledger: Path, damages: list[Damage]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        run_jobs_here(patch)
        store, out = Path(folder) / "store", Path(folder) / "new"
        shutil.copytree(ledger, store)
        for each in damages:
            damage(store, *each)
        before = state_of(store)
        try:
            report = run_convert(ConvertRequest(store=str(store), out=str(out), slots=20, entries=20), Silence())
        except RocketLensError:
            assert not out.exists()
        else:
            assert report.exit_code in (0, 4)
            assert verify_here(out, Path(folder)).messages == report.messages
        assert state_of(store) == before


@settings(max_examples=2, deadline=None)
@given(DAMAGES)
def test_a_damaged_store_of_dledgers_is_converted_with_all_that_is_counted_or_not_at_all(ledger, damages) -> None:
    check(ledger, damages)


def test_a_last_segment_that_is_a_giant_is_named_and_nothing_is_converted(ledger, tmp_path, monkeypatch) -> None:
    store, out = shutil.copytree(ledger, tmp_path / "store"), tmp_path / "new"
    make_giant(max(store.glob("*/data/*")))
    run_jobs_here(monkeypatch)
    with pytest.raises(StoreError, match="more than a broker can map"):
        run_convert(ConvertRequest(store=str(store), out=str(out), slots=20, entries=20), Silence())
    assert not out.exists()


@pytest.mark.soak
@settings(max_examples=1500, deadline=None)
@given(DAMAGES)
def test_no_damage_of_a_store_of_dledgers_ends_its_conversion_otherwise(ledger: Path, damages: list[Damage]) -> None:
    check(ledger, damages)
