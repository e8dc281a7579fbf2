"""Whether a broker starts on a store, where it cuts the log, and what it deletes, is what was foretold."""

import contextlib
import itertools
import shutil
from collections import Counter
from pathlib import Path

import pytest

from damaged_stores import INDEX_KINDS, LOG_KINDS, QUEUE_KINDS
from interop.jars import OLD_CLIENT_VERSION, SERVER_VERSION
from interop.official_broker import official_broker
from interop.recovery_oracle import SHAPES_BY, Sizes
from interop.rescued import draw_store, whole_messages
from storage.doctor._next_start import foretell_start
from storage.doctor._opened_store import OpenedStore
from storage.layout.timer_log import WHEEL_BYTES
from storage.recovery.queue_ends import recovered_queues
from storage.recovery.start_place import Broker
from store_writer import StoreWriter

pytestmark = pytest.mark.interop

FORETOLD = {SERVER_VERSION: Broker.FROM_5_5, OLD_CLIENT_VERSION: Broker.UP_TO_4_9}
CONFIG_KINDS = ("topics_spoiled", "subscription_groups_spoiled", "consumer_offsets_spoiled", "other_config_spoiled")
"""Damage to what the store classes do not read."""

STORE_KINDS = [name for name in (*LOG_KINDS, *QUEUE_KINDS, *INDEX_KINDS) if name not in CONFIG_KINDS]
FEW = (
    "batch_file_emptied", "directory_among_index_files", "empty_queue_file_made", "foreign_names_in_queues",
    "last_segment_cut", "queue_file_cut", "queue_file_emptied", "queue_file_zeroed"
)  # fmt: skip
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


def judge(oracle, good, root, seed, kind="", version=SERVER_VERSION) -> Counter[str]:
    """Foretell one start on a damaged store in any state, and have it done; what came of it, in words."""
    noted = draw_store(good, root, seed, kind)
    start = None if noted is None else foretell_start(OpenedStore.open(root))
    if start is None:
        shutil.rmtree(root, ignore_errors=True)
        return Counter()
    trace = (good.shape, kind, seed, noted)
    (outcome,) = (each for each in start.outcomes if each.broker is FORETOLD[version])
    ends = {queue.directory: queue.cut_at(outcome.end).end for queue in recovered_queues(root)}
    before, segments = files_of(root), sorted(path.name for path in (root / "commitlog").iterdir())
    whole = whole_messages(good, root)
    entries = 6000 if good.shape in ("paged", "files") else 150
    left = oracle.load(root, Sizes(good.segment_size, good.queue_file_size, slots=good.index_slots, entries=entries))
    gone = before - files_of(root)
    came = Counter({"starts": 1})
    if left.end == NO_MEMORY:  # of a record that says it has gigabytes: it depends on the heap
        came = Counter({"no memory": 1})
    elif not left.is_loaded:
        assert outcome.refused, trace
        came = Counter({"refused": 1})
    else:
        assert not outcome.refused, (trace, outcome.refused)
        deleted_segments = {Path(path).name for path in outcome.deleted}
        kept = tuple(name for name in segments if name not in deleted_segments)
        assert (outcome.end, kept) == (left.end, left.segments), trace
        most, least = (sum(each.physical_offset >= left.end for each in found) for found in (good.messages, whole))
        # A bit of a field that no checksum covers is flipped: such a message is served.
        assert least <= outcome.cut_messages <= most, trace
        came["cut" if outcome.cut_bytes else "kept"] += 1
        deleted = {path for queue in outcome.queues for path in queue.deleted} | set(outcome.deleted_index_files)
        is_dispatched = outcome.dispatched_from < outcome.end
        assert gone <= deleted, (trace, gone, deleted)
        assert is_dispatched or gone == deleted, (trace, gone, deleted)
        for (topic, queue_id), queue in {} if is_dispatched else oracle.consume().items():
            directory = root / "consumequeue" / topic / str(queue_id)
            if any(path.startswith(f"{directory}/") for path in before):
                assert queue.maximum == max(ends[directory], 0) // UNIT, (trace, topic, queue_id)
    shutil.rmtree(root)
    return came


def files_of(root: Path) -> set[str]:
    """The files of queues and index; those without bytes, which loading deletes, do not count."""
    found = (path for name in ("consumequeue", "batchconsumequeue", "index") for path in (root / name).rglob("*"))
    return {str(path) for path in found if path.is_file() and path.stat().st_size}


def judge_kinds(oracle, goods, folder, version, tried) -> Counter[str]:
    """Each kind of damage with a seed, in the first store that it fits; what came of all."""
    came = Counter[str]()
    names = list(SHAPES_BY[version])
    for kind, seed in tried:
        for name in names[seed % len(names) :] + names[: seed % len(names)]:
            if outcome := judge(oracle, goods[name], folder / "store", seed, kind, version):
                came += outcome
                break
    return came


@pytest.mark.untraced
def test_a_start_is_as_it_was_foretold(tmp_path, oracle, goods, version) -> None:
    tried = [*itertools.product((*FEW, *LOG_KINDS[::2]), range(2)), *((kind, 0) for kind in LOG_KINDS[1::2])]
    came = judge_kinds(oracle, goods, tmp_path, version, tried)
    assert came["refused"] >= 4
    assert came["cut"] > 2
    assert came["kept"] > 5


@pytest.mark.soak
@pytest.mark.untraced
def test_a_start_is_as_it_was_foretold_on_every_kind_of_damage(tmp_path, oracle, goods, version) -> None:
    came = judge_kinds(oracle, goods, tmp_path, version, itertools.product(STORE_KINDS, range(4)))
    assert came["cut"] > 8
    assert sum(came.values()) > 2 * len(STORE_KINDS)


@pytest.mark.soak
@pytest.mark.untraced
def test_a_start_is_as_it_was_foretold_on_hundreds_of_mixtures(tmp_path, oracle, goods, version) -> None:
    names = SHAPES_BY[version]
    came = Counter[str]()
    for seed in range(600):
        came += judge(oracle, goods[names[seed % len(names)]], tmp_path / "store", seed, version=version)
    assert came["cut"] > 40
    assert came["kept"] > 120


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


@pytest.mark.soak  # in each run: each of them by what RocketLens foretells, tests/storage/doctor/test_next_start.py
@pytest.mark.untraced
@pytest.mark.parametrize("harm", [nothing, damaged_topics_without_backup, *MORE_HARM])
def test_the_official_broker_ends_on_what_was_foretold_alone(tmp_path, harm) -> None:
    root = tmp_path / "store"
    writer = StoreWriter(root, segment_size=SEGMENT, queue_file_size=QUEUE_FILE, batch_queue_file_size=BATCH_FILE)
    writer.append("T", b"plain")
    writer.append_inner_batch("B", [(b"one", {}), (b"two", {})])
    writer.close()
    harm(root)
    start = foretell_start(OpenedStore.open(root))
    (outcome,) = (each for each in start.outcomes if each.broker is Broker.FROM_5_5)
    ends = pytest.raises(RuntimeError, match="instead of starting") if outcome.refused else contextlib.nullcontext()
    with ends, official_broker(root, tmp_path, properties=PROPERTIES) as broker:
        broker.kill()
