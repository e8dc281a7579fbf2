"""Where a part of a store is a link to another disk, what the doctor prints can be typed and mends it there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import rocketlens
from doctoring import make_store
from storage.doctor import _linked_parts
from storage.doctor.examine import examine

PARTS = ("consumequeue", "batchconsumequeue", "index", "checkpoint")
SOURCES = Path(__file__).parents[3]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with plain queues and one of batches."""
    writer, _ = make_store(tmp_path / "store", 400)
    writer.append_inner_batch("B", [(b"one", {}), (b"two", {})])
    writer.close()
    return tmp_path / "store"


def moved_away(root: Path, part: str) -> Path:
    """Where a part lies once it is a link, by another name than its own."""
    place = root.parent / "other disk" / f"of {part}"
    place.parent.mkdir(exist_ok=True)
    (root / part).rename(place)
    (root / part).symlink_to(place)
    return place


def harm(root: Path, part: str) -> None:
    """Lose what a rebuild of a part brings back."""
    if part == "index":
        min((root / "index").iterdir()).unlink()
    elif part == "checkpoint":
        (root / "checkpoint").write_bytes(bytes(10))
    else:
        shutil.rmtree(root / part / "T" / "0")


def lines(root: Path) -> list[str]:
    findings = [each for each in examine(root).findings if each.severity != "info"]
    return list(dict.fromkeys(each.remedy for each in findings))


def typed(line: str, tmp_path: Path) -> "subprocess.CompletedProcess[str]":
    command = tmp_path / "bin" / "rocketlens"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m rocketlens "$@"\n')
    command.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(SOURCES),
    }
    return subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("linked", "harmed"),
    [
        (PARTS, ("consumequeue", "index")),
        *(
            pytest.param(linked, harmed, marks=pytest.mark.soak)
            for linked, harmed in (
                (("consumequeue", "batchconsumequeue"), ("consumequeue",)),
                (("index", "checkpoint"), ("checkpoint",)),
                (("consumequeue",), ("consumequeue",)),
                (("batchconsumequeue",), ("consumequeue",)),
                (("checkpoint",), ("checkpoint",)),
                (("index",), ("index",)),
                (("checkpoint",), ("index",)),
                (("index",), ("consumequeue", "index")),
            )
        ),
    ],
)
def test_the_line_puts_what_it_makes_where_the_link_leads(
    root: Path, tmp_path: Path, linked: tuple[str, ...], harmed: tuple[str, ...]
) -> None:
    places = {part: moved_away(root, part) for part in linked}
    for part in harmed:
        harm(root, part)
    (line,) = lines(root)
    ended = typed(line, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert lines(root) == []
    trees = [part for part in linked if part != "checkpoint"]  # one that is damaged is removed, as ever
    assert all((root / part).resolve() == places[part] for part in trees)
    assert all((root / part).exists() for part in linked)
    for part in {"consumequeue", "index"} & {*harmed}:
        place = (root / part).resolve()
        assert list(place.parent.glob(f"{place.name}.bak-*"))
    assert not list(tmp_path.glob("store-rebuilt*"))


def test_what_lies_in_the_store_is_rebuilt_in_place_as_ever(root: Path) -> None:
    moved_away(root, "index")
    harm(root, "consumequeue")
    assert lines(root) == [f"rocketlens rebuild queues {root}"]


@pytest.mark.soak  # test_done_before.py has it of a part that is no link
def test_what_the_log_does_not_have_is_not_advised_once_more(root: Path, tmp_path: Path) -> None:
    place = moved_away(root, "consumequeue")
    with max((place / "T" / "0").iterdir()).open("ab") as file:
        file.write(b"x" * 7)
    (line,) = lines(root)
    assert typed(line, tmp_path).returncode == 0
    path = max((place / "T" / "0").iterdir())
    before = path.stat()
    with path.open("ab") as file:
        file.write(b"x" * 7)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.utime(path.parent, ns=(before.st_atime_ns, before.st_mtime_ns))
    (after,) = lines(root)
    assert "was run at" in after


def test_of_a_mount_point_behind_a_link_it_is_said_that_no_command_helps(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = moved_away(root, "consumequeue")
    harm(root, "consumequeue")
    monkeypatch.setattr(_linked_parts, "is_mount_point", lambda path: path == place)
    (remedy,) = lines(root)
    assert remedy.startswith(f"no command puts it there: {root}/consumequeue is a link to {place}, a mount point")


@pytest.mark.parametrize("part", [PARTS[0], *(pytest.param(part, marks=pytest.mark.soak) for part in PARTS[1:])])
def test_a_rebuild_in_place_is_refused_before_anything_is_built(root: Path, part: str) -> None:
    moved_away(root, part)
    outcome = rocketlens("rebuild", "all", root)
    assert outcome.code == 3
    assert f"{root}/{part}: is a link to " in outcome.errors
    assert "plan: " not in outcome.errors
