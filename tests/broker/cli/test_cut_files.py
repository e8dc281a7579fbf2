"""A file that is cut under a command ends it in words, with a documented exit code, and never by a signal."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from broker.cli.main import CUT
from process import ROOT

KEPT = (0, 4096, 8192)
"""Bytes that are left of a file; all others are gone by the time that they are looked at."""

CUTTING = """
import mmap, os, sys
mapped, kind, kept = mmap.mmap, sys.argv.pop(1), int(sys.argv.pop(1))

class Cutting(mapped):
    "A map whose file is cut as soon as it is there, as another process may do."

    def __new__(cls, descriptor, *arguments, **options):
        made = mapped.__new__(cls, descriptor, *arguments, **options)
        path = os.readlink(f"/proc/self/fd/{descriptor}") if descriptor >= 0 else ""
        if f"/{kind}/" in path and os.path.getsize(path) > kept:
            os.truncate(path, kept)
        return made

mmap.mmap = Cutting
from broker.cli.main import main
main(prog_name="rocketlens")
"""

COMMANDS: dict[str, tuple[str, ...]] = {
    "view": ("6581",),
    "query": ("--topic", "TopicTest", "--tag", "TagA"),
    "find": ("TagA",),
    "filter": ("--topic", "TopicTest", "--tag", "TagA"),
    "search": ("--contains", "x"),
    "life": ("6581",),
    "tail": ("TopicTest",),
    "topics": (),
    "groups": (),
    "info": (),
    "pending": (),
    "space": (),
    "doctor": (),
}

UNREADABLE = 3
IN_WORDS = (0, 1, 2, UNREADABLE, 4)


KINDS = ("commitlog", "consumequeue", "index")
CASES = [
    (command, kind, KEPT[(number + other) % len(KEPT)])
    for number, command in enumerate(COMMANDS)
    for other, kind in enumerate(KINDS)
]


@pytest.mark.parametrize(("command", "kind", "kept"), CASES)
def test_no_command_is_ended_by_the_signal_of_a_cut_file(
    command: str, kind: str, kept: int, g1_store: Path, tmp_path: Path
) -> None:
    ended = run_cutting(kind, kept, g1_store, tmp_path, command, *COMMANDS[command])
    assert ended.returncode in IN_WORDS, f"{ended.returncode}: {ended.stderr}"
    assert "Traceback" not in ended.stderr, ended.stderr
    if ended.returncode == UNREADABLE:
        assert ended.stderr.startswith("rocketlens: "), ended.stderr


def test_a_fault_is_said_in_one_line(g1_store: Path, tmp_path: Path) -> None:
    ended = run_cutting("commitlog", 0, g1_store, tmp_path, "view", "6581")
    assert (ended.returncode, ended.stdout) == (UNREADABLE, "")
    assert ended.stderr.splitlines() == [CUT.rstrip()]


def run_cutting(
    kind: str, kept: int, store: Path, folder: Path, command: str, *arguments: str
) -> "subprocess.CompletedProcess[str]":
    """Run a command on a copy of a store whose files of a kind are cut as soon as they are mapped."""
    copy = folder / "store"
    shutil.copytree(store, copy)
    asked = [sys.executable, "-c", CUTTING, kind, str(kept), command, str(copy), *arguments]
    return subprocess.run(asked, capture_output=True, text=True, cwd=ROOT, check=False, timeout=180)
