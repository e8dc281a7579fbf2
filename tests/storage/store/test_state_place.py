"""Where the state of a store is kept by default."""

import os
from pathlib import Path

import pytest

from storage.store.state_place import can_be_had, default_state_directory, known_state_directory
from storage.store.store_state import StoreIdentity

IDENTITY = StoreIdentity("DefaultCluster", "broker-a")


def test_the_default_lies_below_the_users_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = default_state_directory(tmp_path / "store", IDENTITY)
    assert path.parent == tmp_path / "rocketlens"
    assert path.name.startswith("DefaultCluster-broker-a-")
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    path = default_state_directory(tmp_path / "store", IDENTITY)
    assert path.parent == tmp_path / "home" / ".local" / "state" / "rocketlens"


def test_stores_have_a_directory_each_however_their_path_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    one = default_state_directory(tmp_path / "one", IDENTITY)
    assert one != default_state_directory(tmp_path / "two", IDENTITY)
    (tmp_path / "one").mkdir()
    os.symlink(tmp_path / "one", tmp_path / "link")
    assert one == default_state_directory(tmp_path / "two" / ".." / "one", IDENTITY)
    assert one == default_state_directory(tmp_path / "link", IDENTITY)


def test_names_of_the_store_cannot_lead_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = default_state_directory(tmp_path, StoreIdentity("../../etc", "x" * 5000))
    assert path.parent == tmp_path / "rocketlens"
    assert len(path.name) < 200


def test_whether_a_directory_can_be_had_is_told_without_making_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert can_be_had(tmp_path)
    assert can_be_had(tmp_path / "a" / "b")
    assert not can_be_had(tmp_path / "file")
    assert not can_be_had(tmp_path / "file" / "a")
    assert not can_be_had(Path("/proc/self/no such place"))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_default_directory_of_a_store_is_known_once_a_server_has_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    store, other = tmp_path / "store", tmp_path / "other"
    assert known_state_directory(store) is None
    path = default_state_directory(store, IDENTITY)
    path.mkdir(parents=True)
    assert known_state_directory(store) == path
    assert known_state_directory(other) is None
    default_state_directory(store, StoreIdentity("C", "renamed")).mkdir()
    assert known_state_directory(store) is None, "which of the two is the store's is not known yet"
