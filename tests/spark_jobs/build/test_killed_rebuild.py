"""Kill −9 in every phase: each directory stays wholly old or becomes wholly new, and the next run ends the work."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from left_work import left_in
from spark_jobs.places.place_names import WORK
from store_writer import StoreWriter

ROOT = Path(__file__).parents[3]
SUPPORT = ROOT / "tests" / "support"

MOST_KILLS = 12
SEGMENTS = 40
RUN_SECONDS = 180
PUBLISHED = ("index", "consumequeue")

Contents = dict[str, bytes]


def run(store: Path, *, kill: tuple[str, int] | None = None) -> subprocess.CompletedProcess[str]:
    """`rocketlens rebuild all` on a store, or the same that is going to be killed."""
    rebuild = ["rebuild", "all", str(store), "--from-offset", "0", "--json"]
    command = [sys.executable, "-c", "from rocketlens.cli.main import main; main()", *rebuild]
    if kill is not None:
        command = [sys.executable, str(SUPPORT / "killed_command.py"), kill[0], str(kill[1]), *rebuild]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(SUPPORT)])}
    return subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=RUN_SECONDS, check=False
    )


def contents(store: Path) -> dict[str, Contents]:
    return {
        name: {
            str(path.relative_to(store / name)): path.read_bytes()
            for path in (store / name).rglob("*")
            if path.is_file()
        }
        for name in PUBLISHED
        if (store / name).exists()
    }


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose queues and index are not what a rebuild makes: so old and new differ.

    Of so many segments and index files that neither phase is over before the last kill.
    """
    store = tmp_path_factory.mktemp("killed") / "store"
    writer = StoreWriter(store, segment_size=4096)
    for number in range(SEGMENTS * 20):
        writer.append("TopicTest", b"x" * 100, keys=f"k{number} hot", tags=f"Tag{number % 3}", queue_id=number % 4)
    writer.close()
    assert len(list((store / "commitlog").iterdir())) >= SEGMENTS
    assert len(list((store / "index").iterdir())) >= MOST_KILLS + 2
    sorted((store / "index").iterdir())[-1].unlink()
    for queue in sorted((store / "consumequeue" / "TopicTest").iterdir())[:2]:
        last = sorted(queue.iterdir())[-1]
        last.write_bytes(bytes(last.stat().st_size))
    return store


@pytest.fixture(scope="module")
def expected(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Contents]:
    """What a rebuild makes that nothing disturbs."""
    store = Path(shutil.copytree(source, tmp_path_factory.mktemp("undisturbed") / "store"))
    ended = run(store)
    assert ended.returncode == 0, ended.stderr
    return contents(store)


def kill_and_go_on(source: Path, store: Path, expected: dict[str, Contents], phase: str, number: int) -> bool:
    """Kill a rebuild and run it to its end; whether there was anything to be killed."""
    shutil.copytree(source, store)
    old = contents(store)
    killed = run(store, kill=(phase, number))
    now = contents(store)
    assert all(now[name] in (old[name], expected[name]) for name in PUBLISHED), "neither old nor new"
    if killed.returncode == 0:
        return False
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    left = left_in(store / WORK)
    manifest = left.manifest() if left else None
    assert manifest is not None
    assert manifest.phase == phase
    ended = run(store)
    assert ended.returncode == 0, ended.stderr
    assert contents(store) == expected
    assert sorted(map(str, (store / WORK).rglob("*"))) == []
    assert not (store / WORK).exists()
    return True


@pytest.mark.parametrize(
    ("phase", "numbers", "least"),
    [
        ("build", [1], 1),
        *(
            pytest.param(phase, range(MOST_KILLS), 6, marks=pytest.mark.soak)
            for phase in ("scan", "place", "build", "fsync", "exchange")
        ),
    ],
)
def test_a_rebuild_that_is_killed_goes_on(
    source: Path, expected: dict[str, Contents], tmp_path: Path, phase: str, numbers: list[int], least: int
) -> None:
    kills = 0
    for number in numbers:
        kills += kill_and_go_on(source, tmp_path / str(number), expected, phase, number)
        shutil.rmtree(tmp_path / str(number))
    assert kills >= least
