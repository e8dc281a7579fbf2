"""Files that claim to be a terabyte long, with next to nothing on disk: memory and time go by what is there."""

import os
import subprocess
import sys

import pytest

from giant_files import COMPACTED, GIANT, KINDS, make_giant, write_store
from golden_store import GOLDEN, unpack
from process import ROOT

MOST_SECONDS = 240


def problems(store, *commands):
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests" / "support")))
    run = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "support" / "giant_files.py"), str(store), *commands],
        capture_output=True,
        text=True,
        timeout=MOST_SECONDS,
        env=os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert run.stdout.endswith("all commands were run\n"), (run.stdout, run.stderr)
    return run.stdout.removesuffix("all commands were run\n")


SMALL = ("abort", "lock", "timerwheel", "timerlog/00000000000000000000", "config/timercheck")
BACKUPS = tuple(kind for kind in KINDS if kind.endswith(".bak"))
TOGETHER = (
    *(*SMALL, *BACKUPS, "checkpoint", "subscriptionGroup.json", "delayOffset.json", "consumerOffset.json"),
    *("queue file", "file of a queue of batches", "extension file", *COMPACTED, "index file"),
)
"""Kinds none of which hides another from those who read it; `make soak` has each alone."""


@pytest.mark.parametrize(
    "kinds",
    [pytest.param(TOGETHER, id="many"), *(pytest.param((kind,), marks=pytest.mark.soak) for kind in KINDS)],
    ids=" and ".join,
)
def test_every_command_does_with_little_memory_where_files_of_any_kind_are_giants(disk_path, kinds) -> None:
    root = disk_path / "store"
    write_store(root)
    for kind in kinds:
        giant = KINDS[kind](root)
        make_giant(giant)
        assert giant.stat().st_size == GIANT
        assert giant.stat().st_blocks * 512 < 1 << 20
    assert problems(root) == ""


@pytest.mark.parametrize(
    "kind",
    [
        "last segment",
        *(
            pytest.param(kind, marks=pytest.mark.soak)
            for kind in ("queue file", "file of a queue of batches", "index file")
        ),
    ],
)
def test_a_giant_of_which_the_last_byte_is_there_is_read_where_it_has_bytes(disk_path, kind) -> None:
    root = disk_path / "store"
    write_store(root)
    make_giant(KINDS[kind](root), last=b"\x01")
    assert (
        problems(root, "doctor", "info", "queues", "batches", "tag", "subscription", "tail", "search", "verify") == ""
    )


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("COMMIT_LOG", max),
        *(
            pytest.param(kind, place, marks=pytest.mark.soak)
            for kind, place in (
                ("COMMIT_LOG", min),
                ("CONSUME_QUEUE", min),
                ("CONSUME_QUEUE", max),
                ("INDEX", min),
                ("INDEX", max),
            )
        ),
    ],
)
def test_a_giant_in_a_tier_takes_little_memory_too(disk_path, kind, place) -> None:
    root = unpack("store", disk_path, archives=GOLDEN / "g2" / "g2-tier")
    topic = "rmq_sys_INDEX" if kind == "INDEX" else "TierTopic"
    files = sorted(root.glob(f"tiered/*/*/{topic}/0/{kind}/*"), key=lambda path: path.name[-20:])
    make_giant(place(files))
    assert problems(root) == ""
