"""A broker starts on what was rescued and gives a consumer every message that could be read, and nothing else."""

import shutil
from collections import Counter

import pytest

from damaged_stores import LOG_KINDS, SHAPES_OF
from interop.recovery_oracle import SHAPES_BY
from interop.rescued import compare, draw_store, sizes_of_mended, whole_messages
from loop_engine import run_jobs_here
from spark_jobs.commands.run import run_rescue
from spark_jobs.convert.rescue_request import RescueRequest
from spark_jobs.run.progress import Silence

pytestmark = pytest.mark.interop


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    run_jobs_here(monkeypatch)


Range = tuple[int, int]


def rescue(root, new, *copies) -> tuple[list[Range], list[Range]]:
    request = RescueRequest(store=str(root), out=str(new), fill_from=tuple(map(str, copies)))
    report = run_rescue(request, Silence())
    assert not report.details.mended.unfilled
    lost, filled = report.damages, report.details.mended.fillings.filled
    return [range_of(each) for each in lost], [range_of(each) for each in filled]


def range_of(place) -> Range:
    return place.physical_offset, place.physical_offset + place.length


def place_of(message) -> int:
    return message.physical_offset


def judge(oracle, good, folder, seed, kind="", *, fills=False) -> str:
    """Damage a store, rescue it, and have a broker's store read what came of it; what that was, in a word."""
    root, new = folder / "store", folder / "new"
    try:
        noted = draw_store(good, root, seed, kind)
        if noted is None:
            return "unfit"
        readable = whole_messages(good, root)
        sizes = sizes_of_mended(good, root)
        lost, filled = rescue(root, new, *[good.root] * fills)
        back = [each for each in good.messages if any(one <= each.physical_offset < other for one, other in filled)]
        readable = sorted({each.physical_offset: each for each in [*readable, *back]}.values(), key=place_of)
        trace = (good.shape, seed, noted)
        for is_crashed in (False, True):
            if is_crashed:
                (new / "abort").touch()
                (new / "checkpoint").unlink(missing_ok=True)
            names = sorted(path.name for path in (new / "commitlog").iterdir())
            left = oracle.load(new, sizes)
            assert left.is_loaded, trace
            assert left.segments == tuple(names), trace
            assert left.end >= max((each.end for each in readable), default=0), trace
            compare(good, readable, oracle.consume(), trace)
        if filled and not lost:
            assert readable == [each for each in good.messages if each.end <= left.end]
            return "filled"
        return "lost" if lost else "whole"
    finally:
        shutil.rmtree(root, ignore_errors=True)
        shutil.rmtree(new, ignore_errors=True)


@pytest.mark.untraced
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("kinds", "fills"),
    [
        (LOG_KINDS[::8], False),
        (LOG_KINDS[::6], True),
        pytest.param(LOG_KINDS, False, marks=pytest.mark.soak),
        pytest.param(LOG_KINDS, True, marks=pytest.mark.soak),
    ],
    ids=["some", "some, filled", "all", "all, filled"],
)
def test_each_kind_of_damage_leaves_every_readable_message(
    tmp_path, oracle, goods, version, seed, kinds, fills
) -> None:
    """In each run some kinds; all of them are foretold in `test_foretold_starts.py`."""
    came = Counter[str]()
    shapes = SHAPES_BY[version]
    for kind in kinds:
        fitting = [name for name in shapes if name in SHAPES_OF.get(kind, shapes)]
        for name in fitting[seed:] + fitting[:seed]:
            if (outcome := judge(oracle, goods[name], tmp_path, 7 if fills else seed, kind, fills=fills)) != "unfit":
                came[outcome] += 1
                break
    assert came["filled" if fills else "lost"] >= 1


@pytest.mark.soak
@pytest.mark.untraced
def test_mixtures_of_damage_leave_every_readable_message(tmp_path, oracle, goods, version) -> None:
    names = SHAPES_BY[version]
    came = Counter(judge(oracle, goods[names[seed % len(names)]], tmp_path, 100 + seed) for seed in range(60))
    assert came["lost"] + came["whole"] >= 30
    assert came["lost"] > 10
