"""What the doctor says of a broker's start on a damaged store, an official broker does; what it advises helps.

Zeros in a segment, `abort`, and no checkpoint: the broker cuts its log at the zeros. The printed line, typed into a
shell, makes a whole store, from which the broker delivers every message that can be read. And whatever is damaged:
the commands that are printed, typed one after the other, end where nothing is to be done any more.
"""

import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from damaged_stores import SHAPES_OF, Unfit, damage
from doctoring import make_store, put
from foretold_starts import INDEX_KINDS, LOG_KINDS, QUEUE_KINDS, whole_messages
from interop.jars import OLD_CLIENT_VERSION, SERVER_VERSION
from interop.official_broker import OfficialProcess, official_broker
from interop.pulling import delivered
from interop.recovery_oracle import RecoveryOracle, recovery_oracle
from interop.rescued import compare, sizes_of_mended
from interop.wire import ask
from ledger_stores import Ledger
from rocksdb_stores import with_rocksdb_queues
from storage.doctor._config_files import SET_BACK
from storage.doctor.examine import examine
from storage.doctor.finding import Finding, Severity
from store_writer import StoreWriter, Written
from trial_stores import SHAPES, GoodStore, old

pytestmark = pytest.mark.interop

RUNTIME_INFO = 28
COMMANDS = ("rocketlens rescue ", "rocketlens rebuild ", "rocketlens compact ", "cp ", "rm ", "mkdir ")
"""How the commands begin that mend something; a look is none."""

DAMAGED = 4
MOST_ROUNDS = 4
SEGMENT = 1 << 16
QUEUES = 2
PROPERTIES = {
    "mappedFileSizeCommitLog": str(SEGMENT),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "97",
    "maxIndexNum": "1500",
}


def zeroed_store(root: Path) -> list[Written]:
    """A store whose broker died, with zeros in the fourth of eight segments; the messages that can be read."""
    writer = StoreWriter(root, segment_size=SEGMENT, queue_file_size=20000, index_slots=97, index_entries=1500)
    number = 0
    while writer.log.end < 7.5 * SEGMENT:
        writer.append("T", bytes(200), keys=f"k{number}", unique_key=f"u{number}", queue_id=number % QUEUES)
        number += 1
    writer.crash()
    (root / "checkpoint").write_bytes(bytes(4096))
    start, stop = 3 * SEGMENT + 20_000, 3 * SEGMENT + 36_384
    writer.overwrite(start, bytes(stop - start))
    return [
        each for each in writer.written if each.physical_offset + each.size <= start or each.physical_offset >= stop
    ]


def harm_the_rest(root: Path) -> None:
    """As after a night of trying: no index, and a queue that is cut."""
    shutil.rmtree(root / "index")
    (file,) = (root / "consumequeue" / "T" / "0").iterdir()
    content = file.read_bytes()
    file.write_bytes(content[:4000].ljust(len(content), b"\0"))


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a shell that finds the command."""
    command = tmp_path_factory.mktemp("bin") / "rocketlens"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m rocketlens "$@"\n')
    command.chmod(0o755)
    python_path = str(Path(__file__).parents[2])
    return os.environ | {"PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": python_path}


def commands(findings: Iterable[Finding]) -> list[str]:
    """The commands among what is advised, each once."""
    return list(dict.fromkeys(each.remedy for each in findings if each.remedy.startswith(COMMANDS)))


def follow(root: Path, shell: dict[str, str]) -> list[str]:
    """Type what the doctor prints until it prints no command any more; what was typed. None is refused or repeated."""
    typed: list[str] = []
    for _ in range(MOST_ROUNDS):
        printed = commands(examine(root).findings)
        if not printed:
            return typed
        for line in printed:
            assert line not in typed, f"once more: {line}"
            typed.append(line)
            ended = subprocess.run(["bash", "-c", line], env=shell, capture_output=True, text=True, check=False)
            assert ended.returncode in (0, DAMAGED), f"{line}: {ended.stdout}{ended.stderr}"
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


WITHOUT_DRAWN = tuple(Phase) if settings.default.max_examples > 25 else (Phase.explicit,)
"""In each run the examples that are written down, each of which types some commands; `make soak` draws more."""

BESIDE_EACH_OTHER = (
    foreign_names_in_queues,
    foreign_names_in_the_index,
    empty_last_queue_file,
    directory_for_a_queue_file,
    queue_gone,
    index_file_gone,
    file_for_queues_of_batches,
)
"""Faults of queues and index of which each has a line of its own, in an order in which all can be made."""


@settings(max_examples=settings.default.max_examples // 25, phases=WITHOUT_DRAWN)
@given(faults=st.sets(st.sampled_from(BESIDE_EACH_OTHER), min_size=2, max_size=4))
@example(faults={foreign_names_in_queues, foreign_names_in_the_index, queue_gone, index_file_gone})
@example(faults={empty_last_queue_file, file_for_queues_of_batches, index_file_gone})
def test_no_line_takes_away_what_the_line_before_it_has_made(
    shell: dict[str, str], faults: set[Callable[[Path], None]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "store"
        make_store(root)[0].close()
        queues = {path: path.read_bytes() for path in (root / "consumequeue" / "T").rglob("0*") if path.is_file()}
        for fault in BESIDE_EACH_OTHER:
            if fault in faults:
                fault(root)
        assert follow(root, shell)
        assert [each for each in examine(root).findings if each.severity is not Severity.INFO] == []
        assert {path: path.read_bytes() for path in queues} == queues


@settings(max_examples=settings.default.max_examples // 25, phases=WITHOUT_DRAWN)
@given(lacking=st.sets(st.integers(0, 199), min_size=1, max_size=3), is_queue_gone=st.booleans())
@example(lacking={100}, is_queue_gone=True)
def test_keys_that_the_index_lacks_anywhere_are_in_it_after_one_line(
    shell: dict[str, str], lacking: set[int], is_queue_gone: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "store"
        writer, _ = make_store(root, 0)
        for number in range(200):
            writer.append("T", keys=f"k{number}", queue_id=number % 2, index=number not in lacking)
        writer.close()
        if is_queue_gone:
            queue_gone(root)
        (line,) = follow(root, shell)
        assert line.startswith("rocketlens rebuild all " if is_queue_gone else "rocketlens rebuild index ")
        assert examine(root).findings == ()


def checkpoint_short(root: Path) -> None:
    (root / "checkpoint").write_bytes(b"x")


def checkpoint_ahead(root: Path) -> None:
    put(root / "checkpoint", 0, (1 << 60).to_bytes(8))


def last_segment_gone(root: Path) -> None:
    max((root / "commitlog").iterdir()).unlink()


@pytest.mark.parametrize(
    "harm",
    [last_segment_gone, *(pytest.param(each, marks=pytest.mark.soak) for each in (checkpoint_short, checkpoint_ahead))],
)
def test_one_line_removes_a_checkpoint_and_makes_a_new_one(
    tmp_path: Path, shell: dict[str, str], harm: Callable[[Path], None]
) -> None:
    root = tmp_path / "store"
    make_store(root)[0].close()
    harm(root)
    (line,) = follow(root, shell)
    assert line.startswith(f"rm {root}/checkpoint && rocketlens rebuild ")
    assert examine(root).findings == ()


def test_where_all_messages_are_gone_the_advice_ends_where_nothing_is_to_be_done(
    tmp_path: Path, shell: dict[str, str]
) -> None:
    root = tmp_path / "store"
    writer, _ = make_store(root)
    writer.consumer_offsets = {"T@g": {0: 60, 1: 100}}
    writer.close()
    for path in (root / "commitlog").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    assert follow(root, shell)
    left = [each for each in examine(root).findings if each.severity is not Severity.INFO]
    assert {(each.check, each.remedy) for each in left} == {("config", SET_BACK)}
    assert SET_BACK.startswith("nothing to do")


def in_rocksdb(root: Path) -> None:
    make_store(root)[0].close()
    with_rocksdb_queues(root)


def of_dledger(root: Path) -> None:
    ledger = Ledger(root)
    ledger.fill(60)
    ledger.writer.close()


@pytest.mark.parametrize(
    ("make", "has_crashed"),
    [
        (in_rocksdb, True),
        (of_dledger, False),
        *(pytest.param(*each, marks=pytest.mark.soak) for each in ((in_rocksdb, False), (of_dledger, True))),
    ],
)
def test_damage_of_a_log_of_which_no_start_is_foretold_is_followed_by_one_rescue(
    tmp_path: Path, shell: dict[str, str], make: Callable[[Path], None], has_crashed: bool
) -> None:
    root = tmp_path / "store"
    make(root)
    if has_crashed:
        (root / "abort").write_text("")
    segment = sorted(root.rglob(f"{0:020d}"), key=lambda path: "consumequeue" in str(path))[0]
    put(segment, 2000, bytes(700))
    (line,) = follow(root, shell)
    assert line.startswith("rocketlens rescue ")
    assert [each for each in examine(root).findings if each.severity is not Severity.INFO] == []


def end_of_log(broker: OfficialProcess) -> int:
    """Where a broker's log ends; a busy broker is asked again."""
    deadline = time.monotonic() + 120
    while not (answer := ask(broker.address, RUNTIME_INFO)).body:
        assert time.monotonic() < deadline, answer.header
    return int(json.loads(answer.body)["table"]["commitLogMaxOffset"])


@pytest.mark.soak  # in each run, by the store classes of a broker: test_foretold_logs.py
def test_a_broker_that_is_started_nevertheless_cuts_what_was_foretold(tmp_path: Path) -> None:
    root = tmp_path / "store"
    readable = zeroed_store(root)
    before = {str(path) for path in (root / "commitlog").iterdir()}
    outcome = examine(root).next_starts[0]
    with official_broker(root, tmp_path, properties=PROPERTIES) as broker:
        end = end_of_log(broker)
        kept = {each for queue_id in range(QUEUES) for each in delivered(broker, "T", queue_id=queue_id)}
        broker.kill()
    assert outcome.end == end
    assert before - {str(path) for path in (root / "commitlog").iterdir()} == set(outcome.deleted)
    assert len(outcome.deleted) == 5
    assert outcome.cut_messages == len(readable) - len(kept) > 500
    assert outcome.cut_bytes == readable[-1].physical_offset + readable[-1].size - end


@pytest.mark.soak  # in each run: by the store classes, typed as printed, below
def test_the_line_that_is_printed_ends_with_a_broker_that_has_every_message(
    tmp_path: Path, shell: dict[str, str]
) -> None:
    root = tmp_path / "store"
    readable = zeroed_store(root)
    harm_the_rest(root)
    diagnosis = examine(root)
    first = diagnosis.findings[0]
    assert first.found.startswith("do not start a broker on this store: its recovery will cut ")
    assert commands(diagnosis.findings) == [first.remedy]
    follow(root, shell)
    assert examine(root).findings == ()
    with official_broker(root, tmp_path, properties=PROPERTIES) as broker:
        for queue_id in range(QUEUES):
            expected = [each.physical_offset for each in readable if each.queue_id == queue_id]
            assert list(dict.fromkeys(delivered(broker, "T", queue_id=queue_id))) == expected
        assert (root / "commitlog" / f"{4 * SEGMENT:020d}").exists()
        broker.stop()
    assert examine(root).findings == ()


def restore(
    oracle: RecoveryOracle, good: GoodStore, root: Path, kinds: Sequence[str], seed: int, shell: dict[str, str]
) -> str:
    """Damage a store, follow the advice, and have a broker's store read what came of it; in a word."""
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
    typed = follow(root, shell)
    left = oracle.load(root, sizes)
    trace = (good.shape, kinds, seed, noted, typed)
    assert left.is_loaded, trace
    oracle.clean()
    compare(good, readable, oracle.consume(), trace)
    return "followed" if typed else "left"


def try_kinds(
    folder: Path, version: str, trials: Iterable[tuple[Sequence[str], int]], shell: dict[str, str]
) -> Counter[str]:
    """Try kinds of damage, one after the other in the same store, each time by a seed."""
    shapes = SHAPES_BY[version]
    goods = {name: (SHAPES | {"old": old})[name](folder / "good" / name) for name in shapes}
    (folder / "oracle").mkdir()
    came = Counter[str]()
    with recovery_oracle(folder / "oracle", version) as oracle:
        for number, (kinds, seed) in enumerate(trials):
            for good in goods.values():
                outcome = restore(oracle, good, folder / f"trial-{number}", kinds, seed, shell)
                for path in folder.glob(f"trial-{number}*"):
                    shutil.rmtree(path)
                if outcome != "unfit":
                    break
            came[outcome] += 1
    return came


def fit_together(kinds: Sequence[str], version: str) -> bool:
    """Whether a store that a broker of a version writes has what some kinds of damage need."""
    return any(all(shape in SHAPES_OF.get(kind, (shape,)) for kind in kinds) for shape in SHAPES_BY[version])


def mixtures(version: str, seed: int, count: int) -> Iterator[tuple[Sequence[str], int]]:
    """Two or three kinds of damage to one store, log, queues and index alike."""
    rng = random.Random(f"advice {seed}")
    drawn = (rng.sample(ALL_KINDS, rng.choice((2, 2, 3))) for _ in itertools.count())
    fitting = (kinds for kinds in drawn if fit_together(kinds, version))
    yield from zip(itertools.islice(fitting, count), itertools.count(seed))


SHAPES_BY = {SERVER_VERSION: ("small", "classic", "ext"), OLD_CLIENT_VERSION: ("old",)}
"""The shapes of stores that a broker of each version writes."""

ALL_KINDS = (*LOG_KINDS, *QUEUE_KINDS, *INDEX_KINDS)
FEW = ("segment_cut_in_the_middle", "batch_file_zeroed")

EXPIRED_FILE = 4
"""A seed by which the first file of a queue holds expired messages alone."""


@pytest.mark.untraced
@pytest.mark.parametrize("version", [SERVER_VERSION, pytest.param(OLD_CLIENT_VERSION, marks=pytest.mark.soak)])
def test_advice_that_is_typed_as_printed_ends_with_every_readable_message(
    tmp_path: Path, shell: dict[str, str], version: str
) -> None:
    few = [*(((kind,), 1) for kind in FEW), (("segments_lost_in_front",), EXPIRED_FILE), *mixtures(version, 1, 1)]
    came = try_kinds(tmp_path, version, few, shell)
    assert came["followed"] >= 3


@pytest.mark.soak
@pytest.mark.untraced
@pytest.mark.parametrize("version", SHAPES_BY)
def test_advice_on_every_kind_of_damage_ends_with_every_readable_message(
    tmp_path: Path, shell: dict[str, str], version: str
) -> None:
    kinds = [kind for kind in ALL_KINDS if fit_together([kind], version)]
    came = try_kinds(tmp_path, version, (((kind,), 1) for kind in kinds), shell)
    assert came["followed"] > len(kinds) // 2


@pytest.mark.soak
@pytest.mark.untraced
@pytest.mark.parametrize("version", SHAPES_BY)
def test_advice_on_mixtures_of_damage_ends_with_every_readable_message(
    tmp_path: Path, shell: dict[str, str], version: str
) -> None:
    came = try_kinds(tmp_path, version, mixtures(version, 100, 30), shell)
    assert came["followed"] > 10
