"""Backups: found and dropped by our own names only, and never the only one of its kind."""

from pathlib import Path

import pytest

from protocol.errors import ConfigError, StoreError
from publishing import NAMES, TIME, Scene, read_tree
from spark_jobs.publish.publish_names import drop_backups, find_backups, find_unfinished

LATER = "20240301000000"
FOREIGN_DIRECTORIES = [
    "commitlog.bak-20240229123456",
    "config.bak-20240229123456",
    "index.bak-2024022912345",
    "index.bak-202402291234567",
    "index.bak-2024022912345x",
    "index.bak-20240229123456.old",
    "index.bak",
    "index.BAK-20240229123456",
    "my-index.bak-20240229123456",
    "indexxbak-20240229123456",
    "index.bak-\uff12\uff10\uff12\uff14\uff10\uff12\uff12\uff19\uff11\uff12\uff13\uff14\uff15\uff16",
    "checkpoint.bak-20240229123456",
]
FOREIGN_FILES = ["index.bak-20240101000000", "consumequeue.bak-20240101000000", "abort.bak"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A published store, with backups of two times and much that only looks like backups."""
    scene = Scene(tmp_path / "scene")
    scene.reset()
    scene.publish()
    for name in ("index", "consumequeue"):
        (scene.store / f"{name}.bak-{LATER}").mkdir()
        (scene.store / f"{name}.bak-{LATER}" / "file").write_text("x")
    for name in FOREIGN_DIRECTORIES:
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
    assert found == sorted(
        store / f"{name}.bak-{each}" for each in names if time in (None, each) for name in names[each]
    )
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


def test_what_was_left_on_its_way_is_found(store: Path) -> None:
    assert find_unfinished(store) == []
    (store / f"index.new-{TIME}").mkdir()
    (store / f"checkpoint.new-{TIME}").write_text("x")
    (store / "config.new-20240229123456").mkdir()
    assert find_unfinished(store) == [store / f"checkpoint.new-{TIME}", store / f"index.new-{TIME}"]
    assert store / f"index.new-{TIME}" not in find_backups(store)
