"""What is staged reaches the disk and gets the rights and the owner of what it replaces."""

import os
import stat
from pathlib import Path

import pytest

from protocol.errors import StoreError
from read_only import as_nobody, reachable_directory
from spark_jobs.publish._staged_tree import settle_tree

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "staged" / "consumequeue"
    (root / "T" / "0").mkdir(parents=True)
    (root / "T" / "0" / "00000000000000000000").write_bytes(b"units")
    (root / "T" / "1").mkdir()
    return root


def synced(monkeypatch: pytest.MonkeyPatch, root: Path, like: Path, *, done: bool) -> list[str]:
    """What is fsynced, in order, by its path below the root's parent."""
    paths: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: paths.append(os.readlink(f"/proc/self/fd/{number}")))
    settle_tree(root, like.stat(), synced=done)
    return [str(Path(path).relative_to(root.parent)) for path in paths]


def test_what_is_in_a_directory_is_synced_before_the_directory(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = synced(monkeypatch, tree, tree, done=False)
    everything = {str(path.relative_to(tree.parent)) for path in [tree, *tree.rglob("*")]}
    assert set(order) == everything | {"."}
    assert len(order) == len(everything) + 1
    for path in everything:
        assert order.index(path) < order.index(str(Path(path).parent))


def test_synced_files_are_only_opened_to_change_them(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tree / "T" / "0" / "00000000000000000000"
    for rights, expected in ((0o644, False), (0o600, True)):
        file.chmod(rights)
        tree.chmod(0o755)
        assert (str(file.relative_to(tree.parent)) in synced(monkeypatch, tree, tree, done=True)) == expected
        assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_a_single_file_gets_a_files_rights(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text("x")
    (tmp_path / "store").mkdir(mode=0o750)
    settle_tree(tmp_path / "checkpoint", (tmp_path / "store").stat(), synced=False)
    assert stat.S_IMODE((tmp_path / "checkpoint").stat().st_mode) == 0o640


@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_what_is_no_file_is_refused_by_name(tree: Path, kind: str) -> None:
    path = tree / "T" / "1" / "odd"
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/etc/passwd")
    with pytest.raises(StoreError, match="T/1/odd: is neither a file nor a directory, nothing of it was published"):
        settle_tree(tree, tree.stat(), synced=False)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make files another user's")
@pytest.mark.parametrize("done", [False, True])
def test_a_file_with_a_second_name_keeps_owner_and_rights(tree: Path, tmp_path: Path, done: bool) -> None:
    file = tree / "T" / "0" / "00000000000000000000"
    os.link(file, tmp_path / "second name")
    os.chown(file, 7, 8)
    file.chmod(0o406)
    os.chown(tmp_path, 1234, 4321)
    settle_tree(tree, tmp_path.stat(), synced=done)
    assert (file.stat().st_uid, file.stat().st_gid, stat.S_IMODE(file.stat().st_mode)) == (7, 8, 0o406)
    assert (file.parent.stat().st_uid, file.parent.stat().st_gid) == (1234, 4321)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make files another user's")
def test_who_cannot_give_files_to_the_stores_owner_is_told() -> None:
    """Its broker could not open them."""
    with reachable_directory() as directory:
        (directory / "index").mkdir()
        (directory / "index" / "20240101000000000").touch()
        for path in directory.rglob("*"):
            os.chown(path, 65534, 65534)
        owner = os.stat("/")
        told = as_nobody(lambda: str(settle_tree(directory / "index", owner, synced=True)))
    assert told == (
        f"StoreError: {directory}/index/20240101000000000: cannot be given to the store's owner (user 0): "
        "run this as that user or as root"
    )


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make files another user's")
def test_a_group_that_may_not_be_given_is_no_reason_to_refuse() -> None:
    with reachable_directory() as directory:
        (directory / "index").mkdir()
        (directory / "like").mkdir()
        os.chown(directory / "index", 65534, 65534)
        os.chown(directory / "like", 65534, 0)
        like = (directory / "like").stat()
        assert as_nobody(lambda: str(settle_tree(directory / "index", like, synced=False))) == "None"
