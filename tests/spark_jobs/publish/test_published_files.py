"""What is published: names taken and exchanged, rights and owners, the checkpoint, and backups by our own names."""

import errno
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from protocol.errors import ConfigError, StoreError
from publishing import NAMES, TIME, Scene, read_tree
from read_only import as_nobody, reachable_directory
from spark_jobs.publish import _atomic_rename
from spark_jobs.publish._atomic_rename import exchange, rename_to_free
from spark_jobs.publish._new_checkpoint import write_checkpoint
from spark_jobs.publish._staged_tree import settle_tree
from spark_jobs.publish.publish_names import drop_backups, find_backups

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture(params=["library", "number"])
def call(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "number":
        monkeypatch.setattr(_atomic_rename, "_LIBC", SimpleNamespace(syscall=_atomic_rename._LIBC.syscall))


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "file").write_text("content")
    (tmp_path / "second").mkdir()
    return tmp_path / "first", tmp_path / "second"


@pytest.mark.usefixtures("call")
def test_a_free_name_is_taken_and_one_in_use_is_not(two: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = two
    rename_to_free(first, tmp_path / "third")
    assert (tmp_path / "third" / "file").read_text() == "content"
    # A plain rename would silently replace an empty directory.
    with pytest.raises(FileExistsError):
        rename_to_free(tmp_path / "third", second)
    assert second.is_dir()
    with pytest.raises(FileNotFoundError):
        rename_to_free(first, tmp_path / "fourth")


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM])
def test_what_a_file_system_cannot_is_told_and_renamed_plainly(two, tmp_path, monkeypatch, number) -> None:
    first, second = two
    monkeypatch.setattr(_atomic_rename, "renameat2", lambda *_: number)
    assert not exchange(first, second)
    assert (first / "file").exists()
    with pytest.raises(FileExistsError):
        rename_to_free(first, second)
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(FileExistsError):
        rename_to_free(first, tmp_path / "link")
    rename_to_free(first, tmp_path / "third")
    assert (tmp_path / "third" / "file").exists()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "staged" / "consumequeue"
    (root / "T" / "0").mkdir(parents=True)
    (root / "T" / "0" / "00000000000000000000").write_bytes(b"units")
    (root / "T" / "1").mkdir()
    return root


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


LATER = "20240301000000"
FOREIGN_DIRECTORIES = """
commitlog.bak-20240229123456 config.bak-20240229123456 index.bak-2024022912345 index.bak-202402291234567
index.bak-2024022912345x index.bak-20240229123456.old index.bak index.BAK-20240229123456 my-index.bak-20240229123456
indexxbak-20240229123456 index.bak-\uff12\uff10\uff12\uff14\uff10\uff12\uff12\uff19\uff11\uff12\uff13\uff14\uff15\uff16
checkpoint.bak-20240229123456"""
FOREIGN_FILES = ["index.bak-20240101000000", "consumequeue.bak-20240101000000", "abort.bak"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    scene = Scene(tmp_path / "scene")
    scene.reset()
    scene.publish()
    for name in ("index", "consumequeue"):
        (scene.store / f"{name}.bak-{LATER}").mkdir()
        (scene.store / f"{name}.bak-{LATER}" / "file").write_text("x")
    for name in FOREIGN_DIRECTORIES.split():
        if not (scene.store / name).exists():
            (scene.store / name).mkdir()
    for name in FOREIGN_FILES:
        (scene.store / name).write_text("x")
    (scene.store / "index.bak-20240102000000").symlink_to(scene.store / "commitlog")
    return scene.store


def without(store: Path, removed: set[str]) -> dict[str, object]:
    return {path.name: read_tree(path) for path in sorted(store.iterdir()) if path.name not in removed}


@pytest.mark.parametrize("time", [TIME, LATER, None])
def test_nothing_but_the_backups_of_a_time_or_all_is_dropped(store: Path, time: str | None) -> None:
    names = {TIME: NAMES, LATER: ("consumequeue", "index")}
    found = find_backups(store, time)
    backups = (f"{name}.bak-{each}" for each in names if time in (None, each) for name in names[each])
    assert found == sorted(store / name for name in backups)
    assert find_backups(store, "20200101000000") == []
    expected = without(store, {path.name for path in found})
    assert drop_backups(store, time) == found
    assert without(store, set()) == expected
    assert (store / "commitlog" / "00000000000000000000").read_bytes() == b"log"


@pytest.mark.parametrize("time", ["", "20240229123456/../index"])
def test_a_time_that_is_none_drops_nothing(store: Path, time: str) -> None:
    expected = without(store, set())
    with pytest.raises(ConfigError, match="is not the time of a backup"):
        drop_backups(store, time)
    assert without(store, set()) == expected


@pytest.mark.parametrize("name", ["consumequeue", "checkpoint"])
def test_a_backup_that_is_the_only_one_of_its_kind_is_kept(store: Path, name: str) -> None:
    """As between the two renames of a publishing that was killed."""
    (store / name).rename(store.parent / "away")
    expected = without(store, set())
    with pytest.raises(StoreError, match=rf"{name}\.bak-\d+: is kept, for .*/{name} is missing: run the rebuild again"):
        drop_backups(store)
    assert without(store, set()) == expected


@pytest.mark.parametrize("length", [None, 0, 20, 47])
def test_what_is_missing_is_zero_as_a_broker_would_make_it(tmp_path: Path, length: int | None) -> None:
    content = bytes(range(1, 48))[: length or 0]
    if length is not None:
        (tmp_path / "old").write_bytes(content)
    write_checkpoint(tmp_path / "old", tmp_path / "new", index_msg_timestamp=0x0102030405060708)
    expected = content.ljust(4096, b"\0")
    assert (tmp_path / "new").read_bytes() == expected[:16] + bytes(range(1, 9)) + expected[24:]


@pytest.mark.parametrize("kind", ["directory", "too long"])
def test_what_is_no_checkpoint_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    if kind == "directory":
        (tmp_path / "old").mkdir()
    else:
        (tmp_path / "old").touch()
        os.truncate(tmp_path / "old", 1 << 40)
    with pytest.raises(StoreError, match="/old: is "):
        write_checkpoint(tmp_path / "old", tmp_path / "new", index_msg_timestamp=1)
    assert not (tmp_path / "new").exists()


def synced(monkeypatch: pytest.MonkeyPatch, root: Path, like: Path, *, done: bool) -> list[str]:
    paths: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: paths.append(os.readlink(f"/proc/self/fd/{number}")))
    settle_tree(root, like.stat(), synced=done)
    return [str(Path(path).relative_to(root.parent)) for path in paths]


@pytest.mark.usefixtures("call")
def test_directories_get_each_others_names(two: tuple[Path, Path]) -> None:
    first, second = two
    inodes = first.stat().st_ino, second.stat().st_ino
    assert exchange(first, second)
    assert (second.stat().st_ino, first.stat().st_ino) == inodes
    assert (second / "file").read_text() == "content"
    assert not list(first.iterdir())
    with pytest.raises(FileNotFoundError) as caught:
        exchange(first, first / "none")
    assert (caught.value.filename, caught.value.filename2) == (str(first), str(first / "none"))


@pytest.mark.parametrize("function", [exchange, rename_to_free])
def test_any_other_failure_is_an_error(two, monkeypatch, function) -> None:
    monkeypatch.setattr(_atomic_rename, "renameat2", lambda *_: errno.EXDEV)
    with pytest.raises(OSError, match="Invalid cross-device link"):
        function(*two)


def test_a_machine_whose_number_is_not_known_has_no_such_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_atomic_rename, "_LIBC", SimpleNamespace())
    monkeypatch.setattr(_atomic_rename.platform, "machine", lambda: "pdp11")
    assert _atomic_rename.renameat2(tmp_path, tmp_path, 0) == errno.ENOSYS


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


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make files another user's")
def test_a_group_that_may_not_be_given_is_no_reason_to_refuse() -> None:
    with reachable_directory() as directory:
        (directory / "index").mkdir()
        (directory / "like").mkdir()
        os.chown(directory / "index", 65534, 65534)
        os.chown(directory / "like", 65534, 0)
        like = (directory / "like").stat()
        assert as_nobody(lambda: str(settle_tree(directory / "index", like, synced=False))) == "None"
