"""The state directory: where it is, one server at a time, files that are whole at any moment."""

import os
from pathlib import Path

import pytest

from broker.service.state_directory import (
    StateDirectory,
    UnusableDirectory,
    can_be_had,
    default_state_directory,
    known_state_directory,
    may_hold,
)
from protocol.errors import ConfigError
from storage.store.store_state import StoreIdentity

IDENTITY = StoreIdentity("DefaultCluster", "broker-a")


def test_a_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path / "a" / "b")
    directory.write("x", b"1")
    assert directory.read("x") == b"1"
    assert directory.read("y") is None
    directory.close()


def test_a_file_takes_the_place_of_its_old_version_and_leaves_nothing_beside(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    old = tmp_path / "x"
    directory.write("x", b"one")
    with old.open("rb") as reader:
        directory.write("x", b"another")
        assert reader.read() == b"one", "the old version is never written into"
    assert directory.read("x") == b"another"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["serving.lock", "x"]
    directory.close()


def test_a_directory_in_use_is_refused_naming_the_option_until_it_is_free(tmp_path: Path) -> None:
    first = StateDirectory(tmp_path)
    with pytest.raises(ConfigError, match=r"another server .* --state-dir"):
        StateDirectory(tmp_path)
    first.close()
    StateDirectory(tmp_path).close()


def test_a_place_that_cannot_be_a_directory_is_refused_naming_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UnusableDirectory, match=r"file/state cannot be written to .* --state-dir"):
        StateDirectory(tmp_path / "file" / "state")


def test_a_file_is_missing_only_where_the_system_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not may_hold(tmp_path, "x")
    assert not may_hold(tmp_path / "none", "x")
    (tmp_path / "x").write_bytes(b"")
    assert may_hold(tmp_path, "x")

    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "stat", refuse)
    assert may_hold(tmp_path, "none")


def test_a_file_that_cannot_be_read_is_an_error_of_its_own(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    (tmp_path / "x").mkdir()
    with pytest.raises(ConfigError, match="x cannot be read"):
        directory.read("x")
    directory.close()


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
    StateDirectory(path).close()
    assert known_state_directory(store) == path
    assert known_state_directory(other) is None
    StateDirectory(default_state_directory(store, StoreIdentity("C", "renamed"))).close()
    assert known_state_directory(store) is None, "which of the two is the store's is not known yet"
