"""What commands keep of a store that took long to look over, and where."""

import shutil
from pathlib import Path

import pytest

from command_line import rocketlens
from rocketlens.opening import open_message_store
from storage.index.state_cache import FILE_NAME
from storage.log.commit_log import CommitLog
from storage.log.segment_end import EndSearch
from storage.store import snapshot


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's state directory of our own, and stores of which all are large."""
    monkeypatch.setattr(snapshot, "MUCH", 0)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def store(g1_store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(g1_store, tmp_path / "store"))


def kept(home: Path) -> list[Path]:
    return [path for path in home.rglob("*") if path.is_file()]


def test_a_second_command_goes_on_where_the_first_found_the_logs_end(
    home: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[int] = []

    def run(search: EndSearch, known_end: int = 0) -> object:
        starts.append(known_end)
        return find(search, known_end)

    find = EndSearch.run
    monkeypatch.setattr(EndSearch, "run", run)
    first = rocketlens("find", store, "none", "--topic", "none", "--as", "key")
    (path,) = kept(home)
    assert path.name == FILE_NAME
    assert rocketlens("find", store, "none", "--topic", "none", "--as", "key") == first
    assert starts[0] == 0
    assert starts[-1] == CommitLog.open([store / "commitlog"]).end > 0


def test_what_was_kept_does_not_hide_what_came(home: Path, store: Path) -> None:
    open_message_store(store)
    (path,) = kept(home)
    segment = max((store / "commitlog").iterdir())
    with segment.open("r+b") as file:
        file.write(b"\xff" * 8)
    problems = open_message_store(store).problems
    assert problems
    path.unlink()
    assert open_message_store(store).problems == problems


def test_nothing_is_kept_of_a_small_store(home: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MUCH", 2**40)
    open_message_store(store)
    assert kept(home) == []


@pytest.mark.parametrize("place", ["inside the store", "no directory", "no home"])
def test_a_store_is_opened_where_nothing_can_be_kept(
    home: Path, store: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    before = sorted(store.rglob("*"))
    if place == "inside the store":
        monkeypatch.setenv("XDG_STATE_HOME", str(store / "state"))
    elif place == "no directory":
        home.write_text("a file")
    else:
        monkeypatch.delenv("XDG_STATE_HOME")
        monkeypatch.setattr(Path, "home", _no_home)
    assert open_message_store(store).commit_log.end > 0
    assert sorted(store.rglob("*")) == before


def _no_home() -> Path:
    raise RuntimeError("there is no home")
