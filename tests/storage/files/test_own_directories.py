"""Where code is kept between starts."""

from pathlib import Path
from typing import Any

import pytest

from storage.files.own_directories import is_writable, user_cache


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Home is the test's own."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_the_cache_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_cache() == tmp_path / "home" / ".cache" / "rocketlens"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    found = user_cache()
    assert found == tmp_path / "xdg" / "rocketlens"
    assert found.stat().st_mode & 0o777 == 0o700


def test_without_a_home_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/proc/none")
    assert user_cache() is None


@pytest.mark.parametrize("spoil", [lambda path: path.chmod(0o775), lambda path: path.chmod(0o702), "owner"])
def test_one_that_is_not_ours_alone_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Any) -> None:
    planted = tmp_path / "xdg" / "rocketlens"
    planted.mkdir(mode=0o700, parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert user_cache() == planted
    if spoil == "owner":
        monkeypatch.setattr("os.getuid", lambda: planted.stat().st_uid + 1)
    else:
        spoil(planted)
    assert user_cache() is None


def test_a_directory_is_made_where_it_can_be(tmp_path: Path) -> None:
    assert is_writable(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert not is_writable(Path("/proc/none/x"))
