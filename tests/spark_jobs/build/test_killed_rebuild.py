"""Kill −9 at any step on the disk: each directory stays wholly old or becomes wholly new, and the next run goes on."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from job_runs import left_in
from killing import Renames, every_kill
from queue_runs import files_under
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands.run import run_rebuild
from spark_jobs.places.place_names import WORK
from spark_jobs.run.progress import Silence
from store_writer import StoreWriter

PUBLISHED = ("index", "consumequeue")
PHASES = {"scan", "build", "fsync", "exchange"}


def rebuild(store: Path) -> None:
    run_rebuild(RebuildRequest(store=str(store), index=True, queues=True, from_offset=0, zone="UTC"), Silence())


def contents(store: Path) -> dict[str, dict[str, bytes]]:
    return {name: files_under(store / name) for name in PUBLISHED if (store / name).exists()}


def phase_of(store: Path) -> str:
    """The phase in which a killed run was, "" where it has left nothing."""
    left = left_in(store / WORK)
    manifest = left.manifest() if left else None
    return manifest.phase if manifest else ""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of some segments, whose queues and index are not what a rebuild makes: so old and new differ."""
    store = tmp_path_factory.mktemp("killed") / "store"
    writer = StoreWriter(store, segment_size=4096)
    for number in range(100):
        writer.append("TopicTest", b"x" * 100, keys=f"k{number} hot", tags=f"Tag{number % 3}", queue_id=number % 4)
    writer.close()
    assert len(list((store / "commitlog").iterdir())) > 4
    assert len(list((store / "index").iterdir())) > 2
    max((store / "index").iterdir()).unlink()
    for queue in sorted((store / "consumequeue" / "TopicTest").iterdir())[:2]:
        last = max(queue.iterdir())
        last.write_bytes(bytes(last.stat().st_size))
    return store


@pytest.mark.parametrize("each", [13, pytest.param(1, marks=pytest.mark.soak)])
def test_a_rebuild_that_is_killed_goes_on(source: Path, tmp_path: Path, each: int) -> None:
    undisturbed, store = (Path(shutil.copytree(source, tmp_path / name)) for name in ("undisturbed", "store"))
    old = contents(source)
    rebuild(undisturbed)
    expected = contents(undisturbed)
    assert old != expected
    hit = Counter[str]()
    for number in every_kill(rebuild, (store,), Renames.ALL, each=each):
        hit[phase_of(store)] += 1
        now = contents(store)
        assert all(now[name] in (old[name], expected[name]) for name in PUBLISHED), number
        rebuild(store)
        assert contents(store) == expected, number
        assert not (store / WORK).exists(), number
        shutil.rmtree(store)
        shutil.copytree(source, store)
    assert hit.keys() >= PHASES, hit
