"""Whether a broker starts on a store is what was foretold, and on what it ends.

The judges are the store classes of brokers 5.5.0 and 4.9.8, on damage of every kind; for what a broker reads besides,
the broker 5.5.0 itself.
"""

import contextlib
import itertools
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from foretold_starts import INDEX_KINDS, LOG_KINDS, QUEUE_KINDS, draw_store
from interop.jars import OLD_CLIENT_VERSION, SERVER_VERSION
from interop.official_broker import official_broker
from interop.recovery_oracle import RecoveryOracle, Sizes
from storage.doctor._next_start import foretell_start
from storage.doctor._opened_store import OpenedStore
from storage.layout.timer_log import WHEEL_BYTES
from storage.recovery.queue_ends import recovered_queues
from storage.recovery.start_place import Broker
from store_writer import StoreWriter
from trial_stores import SHAPES, GoodStore, old

pytestmark = pytest.mark.interop

SHAPES_BY = {SERVER_VERSION: ("small", "ext", "classic", "expired"), OLD_CLIENT_VERSION: ("old",)}
FORETOLD = {SERVER_VERSION: Broker.FROM_5_5, OLD_CLIENT_VERSION: Broker.UP_TO_4_9}
CONFIG_KINDS = ("topics_spoiled", "subscription_groups_spoiled", "consumer_offsets_spoiled", "other_config_spoiled")
"""Damage to what the store classes do not read."""

STORE_KINDS = [name for name in (*LOG_KINDS, *QUEUE_KINDS, *INDEX_KINDS) if name not in CONFIG_KINDS]
FEW = (
    "batch_file_emptied",
    "directory_among_index_files",
    "empty_queue_file_made",
    "foreign_names_in_queues",
    "last_segment_cut",
    "queue_file_cut",
    "queue_file_emptied",
    "queue_file_zeroed",
)
SEGMENT = 1 << 16
UNIT = 20
NO_MEMORY = -1
QUEUE_FILE = 20000
BATCH_FILE = 4600
PROPERTIES = {
    "mappedFileSizeCommitLog": str(SEGMENT),
    "mappedFileSizeConsumeQueue": str(QUEUE_FILE),
    "mapperFileSizeBatchConsumeQueue": str(BATCH_FILE),
    "mappedFileSizeTimerLog": str(1 << 20),
}


def judge(oracle: RecoveryOracle, good: GoodStore, root: Path, kind: str, seed: int, version: str) -> str:
    """Foretell one start on a damaged store in any state, and have it done; what came of it, in a word."""
    noted = draw_store(good, root, seed, kind) if (root.parent / good.shape / "commitlog").is_dir() else None
    if noted is None:
        shutil.rmtree(root, ignore_errors=True)
        return "unfit"
    opened = OpenedStore.open(root)
    start, trace = foretell_start(opened), (good.shape, kind, seed, noted)
    assert start is not None, trace
    (outcome,) = (each for each in start.outcomes if each.broker is FORETOLD[version])
    ends = {queue.directory: queue.cut_at(outcome.end).end for queue in recovered_queues(root)}
    before = files_of(root)
    entries = 6000 if good.shape in ("paged", "files") else 150
    left = oracle.load(root, Sizes(good.segment_size, good.queue_file_size, slots=good.index_slots, entries=entries))
    if left.end == NO_MEMORY:  # of a record that says it has gigabytes: it depends on the heap
        shutil.rmtree(root)
        return "no memory"
    assert left.is_loaded == (not outcome.refused), (trace, outcome.refused)
    if not left.is_loaded:
        shutil.rmtree(root)
        return "does not"
    gone = before - files_of(root)
    deleted = {path for queue in outcome.queues for path in queue.deleted} | set(outcome.deleted_index_files)
    is_dispatched = outcome.dispatched_from < outcome.end
    assert gone <= deleted, (trace, gone, deleted)
    assert is_dispatched or gone == deleted, (trace, gone, deleted)
    if not is_dispatched:
        for (topic, queue_id), queue in oracle.consume().items():
            directory = root / "consumequeue" / topic / str(queue_id)
            if any(path.startswith(f"{directory}/") for path in before):
                assert queue.maximum == max(ends[directory], 0) // UNIT, (trace, topic, queue_id)
    shutil.rmtree(root)
    return "loses" if outcome.unqueued_messages else "starts"


def files_of(root: Path) -> set[str]:
    """The files of queues and index; those without bytes, which loading deletes, do not count."""
    found = (path for name in ("consumequeue", "batchconsumequeue", "index") for path in (root / name).rglob("*"))
    return {str(path) for path in found if path.is_file() and path.stat().st_size}


def judge_kinds(
    oracle: RecoveryOracle, folder: Path, version: str, kinds: list[str], seeds: range
) -> Counter[tuple[str, str]]:
    goods = [(SHAPES | {"old": old})[name](folder / name) for name in SHAPES_BY[version]]
    came = Counter[tuple[str, str]]()
    for kind, seed in itertools.product(kinds, seeds):
        for good in goods[seed:] + goods[:seed]:
            if (outcome := judge(oracle, good, folder / "store", kind, seed, version)) != "unfit":
                came[kind, outcome] += 1
                break
    return came


@pytest.mark.untraced
def test_whether_a_broker_starts_was_foretold(tmp_path: Path, oracle: RecoveryOracle, version: str) -> None:
    came = judge_kinds(oracle, tmp_path, version, list(FEW), range(2))
    assert sum(count for (_, outcome), count in came.items() if outcome == "does not") >= 4
    assert sum(count for (_, outcome), count in came.items() if outcome == "starts") >= 3


@pytest.mark.soak
@pytest.mark.untraced
def test_of_every_kind_of_damage_it_was_foretold_whether_a_broker_starts(
    tmp_path: Path, oracle: RecoveryOracle, version: str
) -> None:
    came = judge_kinds(oracle, tmp_path, version, STORE_KINDS, range(4))
    assert sum(came.values()) > 2 * len(STORE_KINDS)


def store_with_batches(root: Path) -> None:
    writer = StoreWriter(root, segment_size=SEGMENT, queue_file_size=QUEUE_FILE, batch_queue_file_size=BATCH_FILE)
    writer.append("T", b"plain")
    writer.append_inner_batch("B", [(b"one", {}), (b"two", {})])
    writer.close()


def damaged_topics_without_backup(root: Path) -> None:
    (root / "config" / "topics.json").write_bytes(bytes(100))


def two_damaged_files(root: Path) -> None:
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (root / "config" / name).write_text('{"offsetTable":{"T@')


def one_damaged_file(root: Path) -> None:
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@')


def damaged_backup(root: Path) -> None:
    (root / "config" / "subscriptionGroup.json").unlink(missing_ok=True)
    (root / "config" / "subscriptionGroup.json.bak").write_text("{{{")


def short_wheel(root: Path) -> None:
    (root / "timerwheel").write_bytes(bytes(WHEEL_BYTES - 64))


def short_timer_log(root: Path) -> None:
    (root / "timerlog").mkdir()
    for number, size in enumerate((1 << 20, 1 << 20, 1000)):
        (root / "timerlog" / f"{number << 20:020d}").write_bytes(bytes(size))


def checkpoint_as_directory(root: Path) -> None:
    (root / "checkpoint").unlink()
    (root / "checkpoint").mkdir()


MORE_HARM = (short_wheel, two_damaged_files, one_damaged_file, damaged_backup, short_timer_log, checkpoint_as_directory)


def nothing(root: Path) -> None:
    """A store without a fault."""


@pytest.mark.untraced
@pytest.mark.parametrize(
    "harm",
    [
        damaged_topics_without_backup,
        *(pytest.param(each, marks=pytest.mark.soak) for each in (nothing, *MORE_HARM)),
    ],
)
def test_the_official_broker_ends_on_what_was_foretold_alone(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    root = tmp_path / "store"
    store_with_batches(root)
    harm(root)
    start = foretell_start(OpenedStore.open(root))
    assert start is not None
    (outcome,) = (each for each in start.outcomes if each.broker is Broker.FROM_5_5)
    ends = pytest.raises(RuntimeError, match="instead of starting") if outcome.refused else contextlib.nullcontext()
    with ends, official_broker(root, tmp_path, properties=PROPERTIES) as broker:
        broker.kill()
