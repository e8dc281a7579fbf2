"""Where the official broker's recovery ends a log, and which segments it deletes, is what was foretold.

The judge is the store of broker 5.5.0, loaded as at a start, on damage of every kind in every state.
"""

import itertools
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from damaged_stores import SHAPES_OF
from foretold_starts import LOG_KINDS, draw_store, whole_messages
from interop.recovery_oracle import RecoveryOracle, Sizes, recovery_oracle
from storage.doctor.next_start import foretell_start
from storage.doctor.opened_store import OpenedStore
from trial_stores import SHAPES, GoodStore

pytestmark = pytest.mark.interop

SHORT_SHAPES = ("small", "ext", "classic", "recut", "expired")


@pytest.fixture
def oracle(tmp_path: Path) -> Iterator[RecoveryOracle]:
    """One for each test: a store leaves some threads behind in it."""
    home = tmp_path / "oracle"
    home.mkdir()
    with recovery_oracle(home) as running:
        yield running


@pytest.fixture(scope="module")
def goods(tmp_path_factory: pytest.TempPathFactory) -> dict[str, GoodStore]:
    folder = tmp_path_factory.mktemp("good")
    return {name: SHAPES[name](folder / name) for name in SHORT_SHAPES}


def judge(oracle: RecoveryOracle, good: GoodStore, root: Path, seed: int, kind: str = "") -> str:
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
    (outcome, *_) = start.outcomes
    kept = tuple(name for name in before if name not in {Path(path).name for path in outcome.deleted})
    assert (outcome.end, kept) == (left.end, left.segments), (good.shape, seed, noted)
    most, least = (sum(each.physical_offset >= left.end for each in found) for found in (good.messages, whole))
    # A bit of a field that no checksum covers is flipped: such a message is served.
    assert least <= outcome.cut_messages <= most, (good.shape, seed, noted)
    return "cut" if outcome.cut_bytes else "kept"


@pytest.mark.untraced
def test_each_kind_of_damage_ends_the_log_where_it_was_foretold(
    tmp_path: Path, oracle: RecoveryOracle, goods: dict[str, GoodStore]
) -> None:
    came = Counter[str]()
    for kind, seed in itertools.product(LOG_KINDS, range(4)):
        fitting = [name for name in SHORT_SHAPES if name in SHAPES_OF.get(kind, SHORT_SHAPES)]
        for good in (goods[name] for name in fitting[seed:] + fitting[:seed]):
            if (outcome := judge(oracle, good, tmp_path / "store", seed, kind)) in ("cut", "kept"):
                came[outcome] += 1
                break
    assert came["cut"] > 10
    assert came["kept"] > 20


@pytest.mark.soak
@pytest.mark.untraced
@pytest.mark.parametrize("shape", list(SHAPES))
def test_hundreds_of_mixtures_end_the_log_where_it_was_foretold(
    tmp_path: Path, oracle: RecoveryOracle, shape: str
) -> None:
    good = SHAPES[shape](tmp_path / shape)
    came = Counter(judge(oracle, good, tmp_path / "store", seed) for seed in range(150))
    assert came["cut"] > 10
    assert came["kept"] > 30
