"""The state directory: one server at a time, files that are whole at any moment."""

import os
import stat
from pathlib import Path

import pytest

from broker.service.state_directory import LOCK, StateDirectory, may_hold
from protocol.errors import ConfigError
from storage.store.state_place import UnusableDirectory


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


def test_nobody_else_can_lock_it_and_keep_a_server_from_starting(tmp_path: Path) -> None:
    lock = tmp_path / LOCK
    lock.touch(0o644)
    directory = StateDirectory(tmp_path)
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600
    directory.close()


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o1777, 0o2770, 0o2775, 0o2777])
def test_a_volume_is_taken_whatever_its_rights(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    for content in (b"1", b"2"):
        directory = StateDirectory(tmp_path)
        directory.write("x", content)
        assert directory.read("x") == content
        directory.close()


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
