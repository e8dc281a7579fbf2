"""A process that may have too little memory, or too few open files, ends with a sentence and no trace."""

import resource
import subprocess
from pathlib import Path

import pytest

from process import COMMAND, ROOT
from store_writer import StoreWriter

LIMITS = {"space": resource.RLIMIT_AS, "files": resource.RLIMIT_NOFILE}
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    writer = StoreWriter(tmp_path_factory.mktemp("limits") / "store", segment_size=512)
    for _ in range(300):
        writer.append("T", b"x")
    writer.close()
    return writer.root


def run(words: str, store: Path, tmp_path: Path, **limits: int) -> "subprocess.CompletedProcess[str]":
    def limit() -> None:
        for name, value in limits.items():
            resource.setrlimit(LIMITS[name], (value, value))

    named = {"STORE": str(store), "STATE": str(tmp_path / "state")}
    command = [*COMMAND, *(named.get(word, word) for word in words.split())]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=60, preexec_fn=limit
    )  # fmt: skip


SERVE = "serve STORE --listen 127.0.0.1:0 --state-dir STATE"


@pytest.mark.parametrize(
    ("words", "limits", "told"),
    [
        (
            SERVE,
            {"space": 200 * MIB},
            "the limit of 200 MiB of address space is too low: 640 plus the size of the store",
        ),
        ("find STORE 0", {"files": 16}, "the limit of 16 open files is too low: 64 are needed"),
    ],
)
def test_limits_that_no_command_can_live_with_are_named(
    words: str, limits: dict[str, int], told: str, store: Path, tmp_path: Path
) -> None:
    outcome = run(words, store, tmp_path, **limits)
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith(f"rocketlens: {told}")
    assert outcome.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [pytest.param(SERVE, marks=pytest.mark.soak), "find STORE 1"])
def test_more_segments_than_files_may_be_open_are_no_holes_in_the_log(words: str, store: Path, tmp_path: Path) -> None:
    outcome = run(words, store, tmp_path, files=64)
    assert (outcome.returncode, outcome.stdout) == (3, "")
    (line,) = set(outcome.stderr.splitlines())
    assert "Too many open files; a store of " in line
    assert "segments needs higher limits (ulimit -n, ulimit -v)" in line


def test_a_message_that_few_files_tell_of_is_shown_all_the_same(store: Path, tmp_path: Path) -> None:
    outcome = run("find STORE 0 --as physical-offset --json", store, tmp_path, files=64)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert '"physicalOffset":0,' in outcome.stdout


def test_a_store_that_leaves_no_files_to_serve_it_with_is_not_served(store: Path, tmp_path: Path) -> None:
    """Between the two: its files can be opened, and then uvloop would end in a trace."""
    segments = len(list((store / "commitlog").iterdir()))
    outcome = run(SERVE, store, tmp_path, files=segments + 24)
    assert (outcome.returncode, outcome.stdout) == (2, "")
    (line,) = outcome.stderr.splitlines()
    assert "and serving it at least 32 more (ulimit -n)" in line
