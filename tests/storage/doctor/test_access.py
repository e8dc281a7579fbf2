"""What cannot be opened is not called damage: nothing is foretold, nothing is mended, and the advice lets one in."""

import os
import shlex
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from command_line import rocketlens
from doctoring import make_store
from read_only import as_user, reachable_directory
from read_only_guard import NOBODY
from storage.doctor.examine import Diagnosis, examine
from storage.doctor.finding import Severity
from storage.layout.closed_parts import FORBIDDEN

DAMAGED = 4
NO_STORE = 3
MOST_ROUNDS = 5
PARTS = (
    "commitlog",
    "commitlog/00000000000000000000",
    "commitlog/00000000000000016384",
    "consumequeue",
    "consumequeue/T",
    "consumequeue/T/0",
    "consumequeue/T/1/00000000000000000000",
    "index",
    "config",
    "config/topics.json",
    "config/consumerOffset.json",
    "checkpoint",
    "lock",
)


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
def store(good: Path) -> Iterator[Path]:
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


def mount(path: Path) -> None:
    """Let what a link leads to be there again."""
    on_disk(path, "away").rename(on_disk(path, "mounted"))


FAULTS = (without_rights, not_to_be_entered, linked_to_nothing)


def follow(root: Path) -> list[str]:
    """Type what is printed, and mount what is to be mounted, until nothing is wrong; all that was printed."""
    told: list[str] = []
    for _ in range(MOST_ROUNDS):
        findings = [(each.path, each.remedy) for each in checked(examine(root)).findings]
        if not findings:
            return told
        for path, remedy in dict.fromkeys(findings):
            if remedy.startswith("mount what holds "):
                mount(Path(path))
            elif remedy not in told or len(told) < len(findings):
                assert remedy.startswith("chmod ")
                subprocess.run(shlex.split(remedy), check=True)
            told.append(remedy)
    raise AssertionError(f"no end: {told}")


def checked(diagnosis: Diagnosis) -> Diagnosis:
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
def test_the_owner_opens_what_is_closed_by_the_lines_that_are_printed(
    good: Path, faults: dict[str, Callable[[Path], None]]
) -> None:
    with reachable_directory() as directory:
        root = copied(good, directory)
        for name in sorted(faults, reverse=True):  # what is in a directory before the directory
            faults[name](root / name)
        with as_user():
            assert follow(root)
            assert examine(root).findings == ()


@pytest.mark.parametrize("name", PARTS[1::6])
def test_what_another_user_may_not_open_is_looked_at_as_its_owner(
    store: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store / name).chmod(0)
    owner = (store / name).owner()
    real = store.stat().st_uid
    with as_user():
        monkeypatch.setattr(os, "geteuid", lambda: real + 1)
        (finding,) = checked(examine(store)).findings
        monkeypatch.undo()
    assert finding.severity is Severity.WARNING
    assert finding.remedy == f"sudo -u {owner} rocketlens doctor {store}".replace("-u root ", "")


def test_where_owners_differ_root_looks(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owned = os.stat
    closed = [store / "checkpoint", store / "lock"]
    for path in closed:
        path.chmod(0)

    def with_owner(path: object, **options: object) -> os.stat_result:
        status = owned(path, **options)  # type: ignore[call-overload]
        fields = [12345 if path == closed[0] and number == stat.ST_UID else each for number, each in enumerate(status)]
        return os.stat_result(fields, {"st_mtime_ns": status.st_mtime_ns})

    monkeypatch.setattr(os, "stat", with_owner)
    with as_user():
        remedies = {each.remedy for each in examine(store).findings}
        closed[1].chmod(0o600)
        alone = {each.remedy for each in examine(store).findings}
    assert remedies == {f"sudo rocketlens doctor {store}"}
    assert alone == {f"sudo -u '#12345' rocketlens doctor {store}"}


def test_many_files_of_one_part_are_opened_by_one_line(store: Path) -> None:
    for path in (store / "commitlog").iterdir():
        path.chmod(0)
    (store / "index").chmod(0)
    with as_user():
        remedies = [each.remedy for each in examine(store).findings]
    assert set(remedies) == {f"chmod -R u+rX {store}/commitlog", f"chmod u+rX {store}/index"}


def test_a_store_below_a_directory_that_nobody_else_enters_is_named_with_its_owner(store: Path) -> None:
    (store.parent / "outer").mkdir()
    inner = store.rename(store.parent / "outer" / "store")
    (store.parent / "outer").chmod(0)
    with as_user():
        (finding,) = checked(examine(inner)).findings
    way = f"chmod u+rX {inner.parent}" if os.geteuid() else f"sudo rocketlens doctor {inner}"
    assert finding.remedy == way


@pytest.mark.parametrize(
    ("name", "error", "remedy"),
    [
        ("checkpoint", PermissionError(13, "Permission denied"), FORBIDDEN),
        ("index", OSError(107, "Transport endpoint is not connected"), "mount what holds {path}: "),
    ],
)
def test_root_too_is_told_what_a_file_system_refuses(
    store: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: OSError, remedy: str
) -> None:
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


def test_what_is_no_part_of_a_store_may_be_closed(store: Path) -> None:
    for name in ("lost+found", "commitlog/lost+found", "consumequeue/lost+found", "backup"):
        (store / name).mkdir(mode=0)
    (store / "commitlog" / "old").symlink_to("nowhere")
    with as_user():
        assert "access" not in {each.check for each in examine(store).findings}


def test_the_command_says_it_and_reads_no_further(store: Path) -> None:
    segment = store / "commitlog" / f"{16384:020d}"
    linked_to_nothing(segment)
    outcome = rocketlens("doctor", store)
    assert outcome.code == DAMAGED
    assert f"is a link, or below one, to {on_disk(segment, 'mounted')}, which is not there" in outcome.text
    assert outcome.text.count("fix: ") == 1
    shutil.rmtree(store / "commitlog")
    (store / "commitlog").symlink_to("/mnt/gone")
    outcome = rocketlens("doctor", "--deep", store)
    assert outcome.code == DAMAGED
    assert "mount what holds /mnt/gone" in outcome.text


def test_a_rescue_leaves_no_message_out_that_it_may_only_not_read(store: Path, tmp_path: Path) -> None:
    segment = store / "commitlog" / f"{16384:020d}"
    linked_to_nothing(segment)
    outcome = rocketlens("rescue", store, "--out", tmp_path / "new")
    assert outcome.code == NO_STORE
    assert f"mount what holds {on_disk(segment, 'mounted')}" in outcome.errors
    assert not (tmp_path / "new").exists()


def test_what_another_user_owns_is_mended_as_that_user(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(store / "consumequeue" / "T" / "1")
    (store / "commitlog" / "notes").write_text("x")
    real, owner, above = store.stat().st_uid, store.owner(), store.parent.owner()
    monkeypatch.setattr(os, "geteuid", lambda: real + 1)
    remedies = {each.check: each.remedy for each in examine(store).findings}
    assert remedies["queue-reach"] == f"sudo -u {owner} rocketlens rebuild queues {store}".replace("-u root ", "")
    beside = f"sudo -u {owner} sh -c 'mkdir " if above == owner else "sudo sh -c 'mkdir "
    assert remedies["segments"].startswith(beside.replace("-u root ", ""))
