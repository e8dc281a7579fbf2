"""A disk that is really full: each job ends in words with exit code 2, and goes on when there is room again."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from command_line import rocketlens
from ledger_stores import Ledger
from read_only import state_of
from small_disk import small_disk
from store_writer import StoreWriter

if TYPE_CHECKING:
    from job_engines import JobEngine

FULL = 2
LITTLE, ENOUGH = "size=96k,nr_inodes=400", "size=64m,nr_inodes=40000"

OUT: dict[str, tuple[str, ...]] = {
    "export": ("--format", "ndjson"),
    "rebuild all": ("--slots", "97", "--entries", "400"),
    "rebuild queues": (),
    "compact index": (),
}
"""Jobs that write into --out, with their options."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    with small_disk(tmp_path / "disk") as give:
        yield give


@pytest.fixture
def store(tmp_path: Path) -> Path:
    writer = StoreWriter(tmp_path / "store", segment_size=16_384)
    while len(writer.log.segments) < 20:
        writer.append("T", os.urandom(300).hex().encode(), keys=f"k{len(writer.written)}", tags="a")
    writer.close()
    return writer.root


@pytest.mark.parametrize(
    ("engine", "job"),
    [
        ("local", "export"),
        pytest.param("spark", "rebuild all", marks=pytest.mark.soak),
        *(pytest.param("local", job, marks=pytest.mark.soak) for job in OUT if job != "export"),
    ],
    indirect=["engine"],
)
def test_a_job_that_fills_the_disk_says_so_and_goes_on_when_there_is_room(
    engine: "JobEngine", job: str, store: Path, disk: Callable[[str], Path]
) -> None:
    before = state_of(store)
    out = disk(LITTLE) / "out"
    command = (*job.split(), store, *OUT[job], "--out", out, "--engine", engine.name)
    ended = rocketlens(*command)
    assert ended.code == FULL, ended.errors
    assert "No space left on device" in ended.errors
    assert "Traceback" not in ended.errors
    assert state_of(store) == before
    disk(ENOUGH)
    ended = rocketlens(*command)
    assert ended.code == 0, ended.errors
    assert state_of(store) == before


@pytest.mark.parametrize("job", ["rebuild all", pytest.param("compact index", marks=pytest.mark.soak)])
@pytest.mark.usefixtures("here")
def test_a_store_on_a_full_disk_keeps_what_it_has(job: str, store: Path, disk: Callable[[str], Path]) -> None:
    place = disk(ENOUGH) / "store"
    shutil.copytree(store, place)
    used = sum(path.lstat().st_blocks * 512 for path in place.parent.rglob("*"))
    disk(f"size={used + 8 * 4096},nr_inodes=40000")
    before = {name: each.content for name, each in state_of(place).items()}
    ended = rocketlens(*job.split(), place, *OUT[job])
    assert ended.code == FULL, ended.errors
    assert "No space left on device" in ended.errors
    after = {name: each.content for name, each in state_of(place).items()}
    assert {name: after.get(name) for name in before if name != "."} == {
        name: content for name, content in before.items() if name != "."
    }
    disk(ENOUGH)
    ended = rocketlens(*job.split(), place, *OUT[job])
    assert ended.code == 0, ended.errors


@pytest.mark.soak  # in each run: an export, above
def test_a_conversion_that_fills_the_disk_says_so_and_goes_on_when_there_is_room(
    tmp_path: Path, disk: Callable[[str], Path]
) -> None:
    ledger = Ledger(tmp_path / "store")
    for number in range(9):
        ledger.transaction(number, 30)
        ledger.timer(number)
    ledger.write_timer_log()
    ledger.writer.close()
    before = state_of(ledger.root)
    out = disk(LITTLE) / "new"
    command = ("convert", ledger.root, *OUT["rebuild all"], "--out", out)
    for size in ("size=16k,nr_inodes=400", LITTLE, "size=160k,nr_inodes=400"):
        disk(size)
        ended = rocketlens(*command)
        assert ended.code == FULL, ended.errors
        assert "No space left on device" in ended.errors
        assert "make room there, then type the same command again: it goes on where it was" in ended.errors
        assert "Traceback" not in ended.errors
        assert not out.exists()
    disk(ENOUGH)
    ended = rocketlens(*command)
    assert ended.code == 0, ended.errors
    assert state_of(ledger.root) == before
    assert rocketlens("verify", out).code == 0


@pytest.mark.parametrize(
    "format_", ["parquet", *(pytest.param(name, marks=pytest.mark.soak) for name in ("iceberg", "delta"))]
)
@pytest.mark.usefixtures("here")
def test_a_table_on_a_full_disk_grows_when_there_is_room(
    format_: str, store: Path, disk: Callable[[str], Path]
) -> None:
    table = disk(LITTLE) / "table"
    command = ("export", store, "--to", table, "--since-last", "--format", format_, "--engine", "local")
    ended = rocketlens(*command)
    assert ended.code == FULL, ended.errors
    assert "Traceback" not in ended.errors
    disk(ENOUGH)
    ended = rocketlens(*command)
    assert ended.code == 0, ended.errors
