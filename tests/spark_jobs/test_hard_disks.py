"""A disk that is full or may only be read: each job ends in words, keeps what is, and goes on later."""

import contextlib
import os
import shutil
import subprocess

import pytest

from base_directory import small_disk
from command_line import rocketlens
from read_only import state_of
from store_kinds import Ledger
from store_writer import StoreWriter

FULL = 2
LITTLE, ENOUGH = "size=96k,nr_inodes=400", "size=64m,nr_inodes=40000"

OUT: dict[str, tuple[str, ...]] = {
    "export": ("--format", "ndjson", "--out"),
    "export table": ("--since-last", "--format", "parquet", "--to"),
    "rebuild all": ("--slots", "97", "--entries", "400", "--out"),
    "rebuild queues": ("--out",),
    "compact index": ("--out",),
    "convert": ("--slots", "97", "--entries", "400", "--out"),
}

IN_EACH_RUN = ("export", "export table", "convert")


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk") as give:
        yield give


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    with StoreWriter(tmp_path_factory.mktemp("plain") / "store", segment_size=16_384) as writer:
        while len(writer.log.segments) < 20:
            writer.append("T", os.urandom(300).hex().encode(), keys=f"k{len(writer.written)}", tags="a")
    return writer.root


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    made = Ledger(tmp_path_factory.mktemp("ledger") / "store")
    for number in range(9):
        made.transaction(number, 30)
        made.timer(number)
    made.write_timer_log()
    made.writer.close()
    return made.root


@pytest.mark.parametrize(
    "job", [pytest.param(job, marks=[] if job in IN_EACH_RUN else pytest.mark.soak) for job in OUT]
)
def test_a_job_that_fills_the_disk_says_so_and_goes_on_when_there_is_room(job, plain, ledger, disk) -> None:
    store = ledger if job == "convert" else plain
    before = state_of(store)
    out = disk(LITTLE) / "out"
    command = (*job.removesuffix(" table").split(), store, *OUT[job], out)
    ended = rocketlens(*command)
    assert ended.code == FULL, ended.errors
    assert "No space left on device" in ended.errors
    assert "Traceback" not in ended.errors
    assert state_of(store) == before
    if job == "convert":
        assert "make room there, then type the same command again: it goes on where it was" in ended.errors
        assert not out.exists()
    disk(ENOUGH)
    ended = rocketlens(*command)
    assert ended.code == 0, ended.errors
    assert state_of(store) == before


@pytest.mark.parametrize("job", ["rebuild all", "compact index"])
def test_a_store_on_a_full_disk_keeps_what_it_has(job, plain, disk) -> None:
    place = disk(ENOUGH) / "store"
    shutil.copytree(plain, place)
    used = sum(path.lstat().st_blocks * 512 for path in place.parent.rglob("*"))
    disk(f"size={used + 8 * 4096},nr_inodes=40000")
    before = {name: each.content for name, each in state_of(place).items() if name != "."}
    command = (*job.split(), place, *OUT[job][:-1])
    ended = rocketlens(*command)
    assert ended.code == FULL, ended.errors
    assert "No space left on device" in ended.errors
    after = {name: each.content for name, each in state_of(place).items()}
    assert {name: after.get(name) for name in before} == before
    disk(ENOUGH)
    ended = rocketlens(*command)
    assert ended.code == 0, ended.errors


UNREADABLE = 3


@contextlib.contextmanager
def mounted(store, place):
    if os.geteuid():
        pytest.skip("only root mounts a file system")
    place.mkdir()
    subprocess.run(["mount", "--bind", str(store), str(place)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(place)], check=True)
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture(scope="module")
def read_only(g1_store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("read-only")
    shutil.copytree(g1_store, folder / "store")
    with mounted(folder / "store", folder / "mounted") as place:
        yield place


@pytest.fixture(scope="module")
def mounted_ledger(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ledger")
    made = Ledger(folder / "store")
    made.transaction(0, 30)
    made.timer(0)
    made.write_timer_log()
    made.writer.close()
    with mounted(made.root, folder / "mounted") as place:
        yield place


@pytest.mark.parametrize(
    ("job", "options"),
    [("verify", ()), ("rebuild all", ("--out",)), ("export", ("--format", "ndjson", "--out")), ("convert", ("--out",))],
)
def test_a_job_that_only_reads_needs_no_right_to_write(job, options, read_only, mounted_ledger, tmp_path) -> None:
    store = mounted_ledger if job == "convert" else read_only
    ended = rocketlens(*job.split(), store, *options, *([tmp_path / "out"] if options else []))
    assert ended.code == 0, ended.errors
    assert job != "convert" or rocketlens("verify", tmp_path / "out").code == 0


@pytest.mark.parametrize("job", ["rebuild all", "export", "convert"])
def test_what_would_write_there_says_why_it_cannot(job, g1_store, mounted_ledger, read_only) -> None:
    arguments = {
        "rebuild all": (read_only,),
        "export": (g1_store, "--format", "ndjson", "--out", read_only / "out"),
        "convert": (mounted_ledger, "--out", read_only / "out"),
    }
    ended = rocketlens(*job.split(), *arguments[job])
    assert ended.code in (2, UNREADABLE), ended.errors
    assert "Read-only file system" in ended.errors
    assert "Traceback" not in ended.errors
    assert len(ended.errors.splitlines()) < 5
