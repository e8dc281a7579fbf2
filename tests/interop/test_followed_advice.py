"""What the doctor says of a broker's start on a damaged store, an official broker does; what it advises helps."""

import itertools
import os
import random
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from command_line import rocketlens
from damaged_stores import INDEX_KINDS, LOG_KINDS, QUEUE_KINDS, SHAPES_OF, Unfit, damage
from doctoring import make_store, put
from interop.jars import OLD_CLIENT_VERSION, SERVER_VERSION
from interop.rescued import compare, sizes_of_mended, whole_messages
from loop_engine import run_jobs_here
from storage.doctor._config_files import SET_BACK
from storage.doctor.examine import examine
from storage.doctor.finding import Severity
from store_kinds import Ledger, with_rocksdb_queues

pytestmark = pytest.mark.interop

COMMANDS = ("rocketlens rescue ", "rocketlens rebuild ", "rocketlens compact ", "cp ", "rm ", "mkdir ")
"""How the commands begin that mend something; a look is none."""

DAMAGED = 4
MOST_ROUNDS = 4


def commands(findings) -> list[str]:
    return list(dict.fromkeys(each.remedy for each in findings if each.remedy.startswith(COMMANDS)))


@pytest.fixture(scope="module")
def typing(tmp_path_factory):
    """A line that goes on by how its commands ended is for a shell that finds the command; others run here, at once."""
    command = tmp_path_factory.mktemp("bin") / "rocketlens"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m rocketlens "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(Path(__file__).parents[2])}

    def in_a_shell(line: str) -> int:
        return subprocess.run(["bash", "-c", line], env=environment, check=False).returncode

    def type_line(line: str) -> int:
        if "; " in line:
            return in_a_shell(line)
        for part in line.split(" && "):
            words = shlex.split(part)
            code = rocketlens(*words[1:]).code if words[0] == "rocketlens" else in_a_shell(part)
            if code not in (0, DAMAGED):
                return code
        return 0

    return type_line


@pytest.fixture(autouse=True)
def jobs_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    run_jobs_here(monkeypatch)


def follow(root, typing) -> list[str]:
    """Type what the doctor prints until it prints no command any more; what was typed. None is refused or repeated."""
    typed: list[str] = []
    for _ in range(MOST_ROUNDS):
        printed = commands(examine(root).findings)
        if not printed:
            return typed
        for line in printed:
            assert line not in typed, f"once more: {line}"
            typed.append(line)
            assert typing(line) in (0, DAMAGED), line
    raise AssertionError(f"no end: {typed}")


def directory_for_a_queue_file(root: Path) -> None:
    path = sorted((root / "consumequeue" / "T" / "0").iterdir())[0]
    path.unlink()
    path.mkdir()


def foreign_names_in_queues(root: Path) -> None:
    (root / "consumequeue" / "T" / "0" / "00000000000000000000.swp").write_text("x")
    (root / "consumequeue" / "old" / "0").mkdir(parents=True)  # without messages: a rebuild takes it over as it is
    (root / "consumequeue" / "old" / "0" / f"{0:020d}").write_bytes(bytes(1000))
    (root / "consumequeue" / "old" / "0" / "notes").write_text("x")


def foreign_names_in_the_index(root: Path) -> None:
    (root / "index" / "20260101000000001.bak").write_text("x")
    (root / "index" / "20990101000000001").mkdir()


def empty_last_queue_file(root: Path) -> None:
    (root / "consumequeue" / "T" / "1" / f"{4000:020d}").write_bytes(b"")


def queue_gone(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "T" / "1")


def index_file_gone(root: Path) -> None:
    next(each for each in sorted((root / "index").iterdir()) if each.is_file()).unlink()


def file_for_queues_of_batches(root: Path) -> None:
    (root / "batchconsumequeue").write_text("x")


BESIDE_EACH_OTHER = (
    foreign_names_in_queues, foreign_names_in_the_index, empty_last_queue_file, directory_for_a_queue_file, queue_gone,
    index_file_gone, file_for_queues_of_batches
)  # fmt: skip
"""Faults of queues and index of which each has a line of its own, in an order in which all can be made."""


@pytest.mark.parametrize(
    "faults",
    [
        {foreign_names_in_queues, foreign_names_in_the_index, queue_gone, index_file_gone},
        {empty_last_queue_file, file_for_queues_of_batches, index_file_gone},
    ],
    ids=lambda faults: " and ".join(sorted(each.__name__ for each in faults)),
)
def test_no_line_takes_away_what_the_line_before_it_has_made(tmp_path, typing, faults) -> None:
    root = tmp_path / "store"
    make_store(root)[0].close()
    queues = {path: path.read_bytes() for path in (root / "consumequeue" / "T").rglob("0*") if path.is_file()}
    for fault in BESIDE_EACH_OTHER:
        if fault in faults:
            fault(root)
    assert follow(root, typing)
    assert left_over(root) == []
    assert {path: path.read_bytes() for path in queues} == queues


def left_over(root):
    return [each for each in examine(root).findings if each.severity is not Severity.INFO]


def keys_and_a_queue_missing(root: Path) -> None:
    writer, _ = make_store(root, 0)
    for number in range(200):
        writer.append("T", keys=f"k{number}", queue_id=number % 2, index=number != 100)
    writer.close()
    queue_gone(root)


def last_segment_gone(root: Path) -> None:
    make_store(root)[0].close()
    max((root / "commitlog").iterdir()).unlink()


def damaged_before_queues_in_rocksdb(root: Path) -> None:
    make_store(root)[0].close()
    with_rocksdb_queues(root)
    (root / "abort").write_text("")
    put(root / "commitlog" / f"{0:020d}", 2000, bytes(700))


def damaged_ledger(root: Path) -> None:
    ledger = Ledger(root)
    ledger.fill(60)
    ledger.writer.close()
    put(sorted(root.rglob(f"{0:020d}"), key=lambda path: "consumequeue" in str(path))[0], 2000, bytes(700))


@pytest.mark.parametrize(
    ("make", "begins"),
    [
        (keys_and_a_queue_missing, "rocketlens rebuild all "),
        (last_segment_gone, "rm ROOT/checkpoint && rocketlens rebuild "),
        pytest.param(damaged_before_queues_in_rocksdb, "rocketlens rescue ", marks=pytest.mark.soak),
        (damaged_ledger, "rocketlens rescue "),
    ],
)
def test_one_line_mends_what_has_one_cause(tmp_path, typing, make, begins) -> None:
    root = tmp_path / "store"
    make(root)
    (line,) = follow(root, typing)
    assert line.startswith(begins.replace("ROOT", str(root)))
    assert left_over(root) == []


def test_where_all_messages_are_gone_the_advice_ends_where_nothing_is_to_be_done(tmp_path, typing) -> None:
    root = tmp_path / "store"
    writer, _ = make_store(root)
    writer.consumer_offsets = {"T@g": {0: 60, 1: 100}}
    writer.close()
    for path in (root / "commitlog").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    assert follow(root, typing)
    assert {(each.check, each.remedy) for each in left_over(root)} == {("config", SET_BACK)}


def restore(oracle, good, root, kinds, seed, typing) -> str:
    if any(good.shape not in SHAPES_OF.get(kind, (good.shape,)) for kind in kinds):
        return "unfit"
    try:
        noted = damage(good, root, *kinds, seed=seed).noted
    except Unfit:
        return "unfit"
    if not any(path.stat().st_size for path in (root / "commitlog").glob("[0-9]" * 20)):
        return "unfit"
    readable = whole_messages(good, root)
    sizes = sizes_of_mended(good, root)
    typed = follow(root, typing)
    left = oracle.load(root, sizes)
    trace = (good.shape, kinds, seed, noted, typed)
    assert left.is_loaded, trace
    oracle.clean()
    compare(good, readable, oracle.consume(), trace)
    return "followed" if typed else "left"


def fit_together(kinds, version) -> bool:
    return any(all(shape in SHAPES_OF.get(kind, (shape,)) for kind in kinds) for shape in SHAPES_BY[version])


def mixtures(version, seed, count):
    rng = random.Random(f"advice {seed}")
    drawn = (rng.sample(ALL_KINDS, rng.choice((2, 2, 3))) for _ in itertools.count())
    fitting = (kinds for kinds in drawn if fit_together(kinds, version))
    return [*zip(itertools.islice(fitting, count), itertools.count(seed))]


def few_kinds(version):
    return [*(((kind,), 1) for kind in FEW), (("segments_lost_in_front",), EXPIRED_FILE), *mixtures(version, 1, 1)]


def every_kind(version):
    return [((kind,), 1) for kind in ALL_KINDS if fit_together([kind], version)]


def many_mixtures(version):
    return mixtures(version, 100, 30)


SHAPES_BY = {SERVER_VERSION: ("small", "classic", "ext"), OLD_CLIENT_VERSION: ("old",)}
"""The shapes of stores that a broker of each version writes."""

ALL_KINDS = (*LOG_KINDS, *QUEUE_KINDS, *INDEX_KINDS)
FEW = ("segment_cut_in_the_middle", "batch_file_zeroed")

EXPIRED_FILE = 4
"""A seed by which the first file of a queue holds expired messages alone."""


@pytest.mark.untraced
@pytest.mark.parametrize(
    "trials",
    [few_kinds, pytest.param(every_kind, marks=pytest.mark.soak), pytest.param(many_mixtures, marks=pytest.mark.soak)],
)
def test_advice_that_is_typed_as_printed_ends_with_every_readable_message(
    tmp_path, typing, oracle, goods, version, trials
) -> None:
    came = Counter[str]()
    tried = trials(version)
    for number, (kinds, seed) in enumerate(tried):
        for name in SHAPES_BY[version]:
            outcome = restore(oracle, goods[name], tmp_path / f"trial-{number}", kinds, seed, typing)
            for path in tmp_path.glob(f"trial-{number}*"):
                shutil.rmtree(path)
            if outcome != "unfit":
                break
        came[outcome] += 1
    assert came["followed"] > len(tried) // 3
