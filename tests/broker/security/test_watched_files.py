"""What is made of files follows them, and a bad state of them changes nothing."""

import logging
from pathlib import Path

import pytest

from broker.security.watched_files import Watched
from protocol.errors import ConfigError


def load(path: Path) -> str:
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read") from error
    if text == "bad":
        raise ConfigError("it is bad")
    return text


def test_it_is_made_anew_only_when_a_file_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    made: list[str] = []

    def note() -> str:
        made.append(load(path))
        return made[-1]

    watched = Watched("the file", [path], note)
    watched.refresh()
    assert made == ["one"]
    path.write_text("three")
    watched.refresh()
    watched.refresh()
    assert (made, watched.current) == (["one", "three"], "three")


def test_a_bad_or_missing_file_leaves_the_last_good_state(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "file"
    path.write_text("good")
    watched = Watched("the file", [path], lambda: load(path))
    with caplog.at_level(logging.INFO):
        path.write_text("bad")
        watched.refresh()
        watched.refresh()
        path.unlink()
        watched.refresh()
        assert watched.current == "good"
        path.write_text("better")
        watched.refresh()
    assert watched.current == "better"
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR", "INFO"]
    assert "it is bad" in caplog.records[0].getMessage()


def test_a_file_exchanged_behind_a_link_is_noticed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "a")
    watched = Watched("the file", [link], link.read_text)
    (tmp_path / "new").symlink_to(tmp_path / "b")
    (tmp_path / "new").replace(link)
    watched.refresh()
    assert watched.current == "b"


def test_the_first_state_has_to_be_good(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        Watched("the file", [tmp_path / "nothing"], lambda: load(tmp_path / "nothing"))
