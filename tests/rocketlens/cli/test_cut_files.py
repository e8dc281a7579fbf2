"""A file that is cut under a command ends it in words, with a documented exit code, and never by a signal."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from process import ROOT
from store_kinds import Ledger

KEPT = (0, 4096, 8192)
"""Bytes that are left of a long file; all others are gone by the time that they are looked at."""

CUTTING = """
import contextlib, mmap, os, sys
kind, kept, noted = sys.argv.pop(1), int(sys.argv.pop(1)), sys.argv.pop(1)

def cut(descriptor):
    path = os.readlink(f"/proc/self/fd/{descriptor}") if descriptor >= 0 else ""
    if f"/{kind}/" in path and os.path.getsize(path) > kept:
        os.truncate(path, kept)
        with open(noted, "a") as notes:
            print(path, file=notes)

def cutting(function, *, first):
    "A function of a descriptor whose file is cut before or behind it, as another process may do."

    def call(descriptor, *arguments, **options):
        if first:
            cut(descriptor)
        result = function(descriptor, *arguments, **options)
        cut(descriptor)
        return result

    return call

mapped = mmap.mmap

class Cutting(mapped):
    def __new__(cls, descriptor, *arguments, **options):
        made = mapped.__new__(cls, descriptor, *arguments, **options)
        cut(descriptor)
        return made

mmap.mmap = Cutting
os.pread, os.preadv = cutting(os.pread, first=True), cutting(os.preadv, first=True)

from storage.kernels import file_map
file_map.FileMap = cutting(file_map.FileMap, first=False)

from loop_engine import LoopEngine
from spark_jobs.run import local_engine
local_engine.LocalEngine = LoopEngine

from rocketlens.cli.main import main
main(prog_name="rocketlens")
"""
"""A command that finds files cut as soon as they are mapped, or read piece by piece; jobs run in its own process."""

LOG, QUEUES, INDEX = KINDS = ("commitlog", "consumequeue", "index")
LEFT = {LOG: 4096, QUEUES: 0, INDEX: 0}
"""Bytes that are left of the recorded store's files: queues and index files are shorter than a page, whose rest reads
as zeros and faults nowhere."""

COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "find": (("TagA",), (LOG, INDEX)),
    "search": (("--topic", "TopicTest", "--tag", "TagA", "--contains", "x"), KINDS),
    "life": (("--unique-key", "FD000000000000000000000000000002708C30946E09687211CE0017"), (LOG, INDEX)),
    "tail": (("--topic", "TopicTest"), KINDS),
    "topics": ((), KINDS),
    "groups": ((), KINDS),
    "info": ((), (LOG, INDEX)),
    "pending": ((), KINDS),
    "space": ((), (LOG, INDEX)),
    "doctor": ((), KINDS),
}
"""Arguments of each command, and the kinds of files that it maps and reads."""

JOBS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "verify": ((), KINDS),
    "rebuild all": (("--slots", "97", "--entries", "400", "--out", "OUT"), KINDS),
    "compact index": (("--out", "OUT"), KINDS),
    "export": (("--format", "ndjson", "--out", "OUT"), (LOG,)),
    "find --json": (("-f", "KEYS"), (LOG, INDEX)),
    "diff": (("OTHER",), (LOG,)),
}
"""What walks a whole store; OUT is not there yet, OTHER the store itself as it was."""

UNREADABLE = 3
IN_WORDS = (0, 1, 2, UNREADABLE, 4)

IN_EACH_RUN = {
    ("find", INDEX),
    ("search", LOG),
    ("tail", QUEUES),
    ("rebuild all", LOG),
}
"""A command of each way to read, and each kind of file; `make soak` has the others."""

CASES = [
    pytest.param(name, kind, marks=[] if (name, kind) in IN_EACH_RUN else pytest.mark.soak)
    for name, (_, kinds) in {**COMMANDS, **JOBS}.items()
    for kind in kinds
]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_no_command_is_ended_by_the_signal_of_a_cut_file(name: str, kind: str, g1_store: Path, tmp_path: Path) -> None:
    """Each reads what was cut: it ends in a line, and gives no answer to what it could not read."""
    (tmp_path / "keys").write_text("hotkey\n6581\n")
    words = {"OUT": str(tmp_path / "out"), "KEYS": str(tmp_path / "keys"), "OTHER": str(g1_store)}
    arguments, _ = {**COMMANDS, **JOBS}[name]
    ended = run_cutting(kind, LEFT[kind], g1_store, tmp_path, name, *(words.get(word, word) for word in arguments))
    assert (tmp_path / "cut").read_text(), "nothing was cut"
    check_words(ended)
    assert ended.returncode == UNREADABLE, ended.stderr


@pytest.mark.soak
@pytest.mark.parametrize("kept", KEPT)
def test_a_conversion_of_a_cut_log_ends_in_words(kept: int, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger", segment_size=32_768)
    for number in range(3):
        ledger.transaction(number, 200)
        ledger.timer(number)
    ledger.write_timer_log()
    ledger.writer.close()
    ended = run_cutting("data", kept, ledger.root, tmp_path, "convert", "--out", str(tmp_path / "out"))
    check_words(ended)
    assert ended.returncode == UNREADABLE
    assert not (tmp_path / "out").exists()


def check_words(ended: "subprocess.CompletedProcess[str]") -> None:
    assert ended.returncode in IN_WORDS, f"{ended.returncode}: {ended.stderr}"
    assert "Traceback" not in ended.stderr, ended.stderr
    if ended.returncode == UNREADABLE:
        assert ended.stderr.startswith("rocketlens: "), ended.stderr


def run_cutting(
    kind: str, kept: int, store: Path, folder: Path, command: str, *arguments: str
) -> "subprocess.CompletedProcess[str]":
    """Run a command on a copy of a store whose files of a kind are cut as soon as they are mapped."""
    copy = folder / "store"
    shutil.copytree(store, copy)
    noted = folder / "cut"
    noted.touch()
    asked = [sys.executable, "-c", CUTTING, kind, str(kept), str(noted), *command.split(), str(copy), *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests" / "support")}
    return subprocess.run(asked, capture_output=True, text=True, cwd=ROOT, env=environment, check=False, timeout=180)
