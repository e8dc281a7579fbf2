"""Where the official broker's recovery ends a log, and which segments it deletes, is what was foretold.

The judges are the stores of brokers 5.5.0 and 4.9.8, loaded as at a start, on damage of every kind in every state.
"""

import itertools
import shutil
from collections import Counter
from pathlib import Path

import pytest

from damaged_stores import SHAPES_OF
from foretold_starts import LOG_KINDS, draw_store, whole_messages
from interop.jars import OLD_CLIENT_VERSION, SERVER_VERSION
from interop.recovery_oracle import SHAPES_BY, RecoveryOracle, Sizes
from storage.doctor._next_start import foretell_start
from storage.doctor._opened_store import OpenedStore
from storage.recovery.start_place import Broker
from trial_stores import SHAPES, GoodStore, old

pytestmark = pytest.mark.interop

FORETOLD = {SERVER_VERSION: Broker.FROM_5_5, OLD_CLIENT_VERSION: Broker.UP_TO_4_9}


def judge(
    oracle: RecoveryOracle, good: GoodStore, root: Path, seed: int, kind: str = "", version: str = SERVER_VERSION
) -> str:
    """Foretell the start on one damaged store, have it loaded, and compare; what came of it, in a word."""
    noted = draw_store(good, root, seed, kind)
    start = None if noted is None else foretell_start(OpenedStore.open(root))
    if start is None:
        shutil.rmtree(root, ignore_errors=True)
        return "unfit" if noted is None else "not foretold"
    before, whole = sorted(path.name for path in (root / "commitlog").iterdir()), whole_messages(good, root)
    entries = 6000 if good.shape in ("paged", "files") else 150
    left = oracle.load(root, Sizes(good.segment_size, good.queue_file_size, slots=good.index_slots, entries=entries))
    shutil.rmtree(root)
    if not left.is_loaded:
        return "refused"
    (outcome,) = (each for each in start.outcomes if each.broker is FORETOLD[version])
    kept = tuple(name for name in before if name not in {Path(path).name for path in outcome.deleted})
    assert (outcome.end, kept) == (left.end, left.segments), (good.shape, seed, noted)
    most, least = (sum(each.physical_offset >= left.end for each in found) for found in (good.messages, whole))
    # A bit of a field that no checksum covers is flipped: such a message is served.
    assert least <= outcome.cut_messages <= most, (good.shape, seed, noted)
    return "cut" if outcome.cut_bytes else "kept"


@pytest.mark.untraced
@pytest.mark.parametrize("seeds", [(0,), pytest.param((1, 2, 3), marks=pytest.mark.soak)], ids=str)
def test_each_kind_of_damage_ends_the_log_where_it_was_foretold(
    tmp_path: Path, oracle: RecoveryOracle, goods: dict[str, GoodStore], version: str, seeds: tuple[int, ...]
) -> None:
    came = Counter[str]()
    shapes = SHAPES_BY[version]
    for kind, seed in itertools.product(LOG_KINDS, seeds):
        fitting = [name for name in shapes if name in SHAPES_OF.get(kind, shapes)]
        for good in (goods[name] for name in fitting[seed:] + fitting[:seed]):
            if (outcome := judge(oracle, good, tmp_path / "store", seed, kind, version)) in ("cut", "kept"):
                came[outcome] += 1
                break
    assert came["cut"] > 2 * len(seeds)
    assert came["kept"] > 5 * len(seeds)


@pytest.mark.soak
@pytest.mark.untraced
@pytest.mark.parametrize(
    ("version", "shape"),
    [*((SERVER_VERSION, shape) for shape in SHAPES), (OLD_CLIENT_VERSION, "old")],
    ids=lambda value: value,
)
def test_hundreds_of_mixtures_end_the_log_where_it_was_foretold(
    tmp_path: Path, oracle: RecoveryOracle, version: str, shape: str
) -> None:
    good = (SHAPES | {"old": old})[shape](tmp_path / shape)
    came = Counter(judge(oracle, good, tmp_path / "store", seed, version=version) for seed in range(150))
    assert came["cut"] > 10
    assert came["kept"] > 30
