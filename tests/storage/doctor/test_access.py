"""What cannot be opened is not called damage, and what is printed mends a store also where its parts are links."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from command_line import rocketlens
from doctoring import make_store
from read_only import as_user, reachable_directory
from read_only_guard import NOBODY
from storage.doctor import _linked_parts
from storage.doctor.examine import examine
from storage.layout.closed_parts import FORBIDDEN

PARTS = (
    "commitlog", "commitlog/00000000000000000000", "commitlog/00000000000000016384", "consumequeue", "consumequeue/T",
    "consumequeue/T/0", "consumequeue/T/1/00000000000000000000", "index", "config", "config/topics.json",
    "config/consumerOffset.json", "checkpoint", "lock",
)  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("good") / "store"
    make_store(root)[0].close()
    (root / "lock").write_text("lock")
    (root / "config" / "consumerOffset.json").write_text("{}")
    assert examine(root).findings == ()
    assert [name for name in PARTS if not (root / name).exists()] == []
    return root


@pytest.fixture
def store(good):
    """A copy of which the user who looks is the owner, as `as_user` becomes."""
    with reachable_directory() as directory:
        yield copied(good, directory)


def copied(good: Path, directory: Path) -> Path:
    root = directory / "store"
    shutil.copytree(good, root)
    for name in ("away", "mounted"):
        (directory / "disk" / name).mkdir(parents=True)
    if not os.geteuid():
        for path in directory.rglob("*"):
            os.chown(path, NOBODY, NOBODY)
    return root


def without_rights(path: Path) -> None:
    path.chmod(0)


def not_to_be_entered(path: Path) -> None:
    path.chmod(0o444 if path.is_dir() else 0)


def linked_to_nothing(path: Path) -> None:
    """Lie on another disk, which is not mounted."""
    path.rename(on_disk(path, "away"))
    path.symlink_to(on_disk(path, "mounted"))


def on_disk(path: Path, name: str) -> Path:
    root = next(each for each in path.parents if each.name == "store")
    return root.with_name("disk") / name / str(path.relative_to(root)).replace("/", "-")


FAULTS = (without_rights, not_to_be_entered, linked_to_nothing)


def follow(root: Path) -> list[str]:
    """Type what is printed, and mount what is to be mounted, until nothing is wrong; all that was printed."""
    told: list[str] = []
    for _ in range(5):
        findings = [(each.path, each.remedy) for each in checked(examine(root)).findings]
        if not findings:
            return told
        for path, remedy in dict.fromkeys(findings):
            if remedy.startswith("mount what holds "):
                on_disk(Path(path), "away").rename(on_disk(Path(path), "mounted"))
            elif remedy not in told or len(told) < len(findings):
                assert remedy.startswith("chmod ")
                subprocess.run(shlex.split(remedy), check=True)
            told.append(remedy)
    raise AssertionError(f"no end: {told}")


def checked(diagnosis):
    """A diagnosis, of which nothing is said but what cannot be opened if anything is."""
    if diagnosis.findings:
        assert {each.check for each in diagnosis.findings} == {"access"}
        assert diagnosis.next_starts == ()
        assert not diagnosis.is_clean
    return diagnosis


@settings(max_examples=3, deadline=None)
@given(faults=st.dictionaries(st.sampled_from(PARTS), st.sampled_from(FAULTS), min_size=1, max_size=3))
@example(faults={"commitlog/00000000000000016384": without_rights})
@example(faults={"commitlog/00000000000000016384": linked_to_nothing})
@example(faults={"commitlog": linked_to_nothing})
@example(faults={"consumequeue/T": not_to_be_entered, "index": linked_to_nothing, "lock": without_rights})
def test_the_owner_opens_what_is_closed_by_the_lines_that_are_printed(good, faults) -> None:
    with reachable_directory() as directory:
        root = copied(good, directory)
        for name in sorted(faults, reverse=True):  # what is in a directory before the directory
            faults[name](root / name)
        with as_user():
            assert follow(root)
            assert examine(root).findings == ()


@pytest.mark.parametrize(("name", "error", "remedy"), [
    ("checkpoint", PermissionError(13, "Permission denied"), FORBIDDEN),
    ("index", OSError(107, "Transport endpoint is not connected"), "mount what holds {path}: "),
])  # fmt: skip
def test_root_too_is_told_what_a_file_system_refuses(store, monkeypatch, name, error, remedy) -> None:
    """As one does that is mounted from elsewhere and does not trust it, or whose server is away."""
    path, opened = store / name, os.open

    def refuse(name: object, *arguments: object, **options: object) -> int:
        if name == path:
            raise type(error)(*error.args, str(path))
        return opened(name, *arguments, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(os, "open", refuse)
    (finding,) = checked(examine(store)).findings
    assert finding.path == str(path)
    assert finding.remedy.startswith(remedy.format(path=path))


def test_a_rescue_leaves_no_message_out_that_it_may_only_not_read(store: Path, tmp_path: Path) -> None:
    segment = store / "commitlog" / f"{16384:020d}"
    linked_to_nothing(segment)
    outcome = rocketlens("rescue", store, "--out", tmp_path / "new")
    assert outcome.code == 3
    assert f"mount what holds {on_disk(segment, 'mounted')}" in outcome.errors
    assert not (tmp_path / "new").exists()


SOURCES = Path(__file__).parents[3]


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    with make_store(tmp_path / "store", 400)[0] as writer:
        writer.append_inner_batch("B", [(b"one", {}), (b"two", {})])
    return writer.root


def moved_away(whole: Path, part: str) -> Path:
    place = whole.parent / "other disk" / f"of {part}"
    place.parent.mkdir(exist_ok=True)
    (whole / part).rename(place)
    (whole / part).symlink_to(place)
    return place


def harm(whole: Path, part: str) -> None:
    if part == "index":
        min((whole / "index").iterdir()).unlink()
    elif part == "checkpoint":
        (whole / "checkpoint").write_bytes(bytes(10))
    else:
        shutil.rmtree(whole / part / "T" / "0")


def lines(whole: Path) -> list[str]:
    findings = [each for each in examine(whole).findings if each.severity != "info"]
    return list(dict.fromkeys(each.remedy for each in findings))


def typed(line: str, tmp_path: Path) -> "subprocess.CompletedProcess[str]":
    command = tmp_path / "bin" / "rocketlens"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m rocketlens "$@"\n')
    command.chmod(0o755)
    environment = os.environ | {"PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(SOURCES)}
    return subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("linked", "harmed"), [
    (("consumequeue", "batchconsumequeue", "index", "checkpoint"), ("consumequeue", "index")),
    *(
        pytest.param(linked.split(), harmed.split(), marks=pytest.mark.soak)
        for linked, harmed in (
            ("consumequeue batchconsumequeue", "consumequeue"), ("index checkpoint", "checkpoint"),
            ("consumequeue", "consumequeue"), ("batchconsumequeue", "consumequeue"), ("checkpoint", "checkpoint"),
            ("index", "index"), ("checkpoint", "index"), ("index", "consumequeue index"),
        )
    ),
])  # fmt: skip
def test_the_line_puts_what_it_makes_where_the_link_leads(whole, tmp_path, linked, harmed) -> None:
    places = {part: moved_away(whole, part) for part in linked}
    for part in harmed:
        harm(whole, part)
    (line,) = lines(whole)
    ended = typed(line, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert lines(whole) == []
    trees = [part for part in linked if part != "checkpoint"]  # one that is damaged is removed, as ever
    assert all((whole / part).resolve() == places[part] for part in trees)
    assert all((whole / part).exists() for part in linked)
    for part in {"consumequeue", "index"} & {*harmed}:
        place = (whole / part).resolve()
        assert list(place.parent.glob(f"{place.name}.bak-*"))
    assert not list(tmp_path.glob("store-rebuilt*"))


def test_of_a_mount_point_behind_a_link_it_is_said_that_no_command_helps(whole, monkeypatch) -> None:
    place = moved_away(whole, "consumequeue")
    harm(whole, "consumequeue")
    monkeypatch.setattr(_linked_parts, "is_mount_point", lambda path: path == place)
    (remedy,) = lines(whole)
    assert remedy.startswith(f"no command puts it there: {whole}/consumequeue is a link to {place}, a mount point")
