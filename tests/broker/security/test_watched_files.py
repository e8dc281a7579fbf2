"""What is made of files follows them, and a bad state of them changes nothing."""

import logging
from pathlib import Path

import pytest

from acl_file import set_age
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


def test_a_start_waits_until_a_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("half")
    pauses: list[float] = []

    def finish(seconds: float) -> None:
        pauses.append(seconds)
        path.write_text("whole")
        set_age(path, 60)

    assert Watched("the file", [path], path.read_text, settle_seconds=2.0, sleep=finish).current == "whole"
    assert len(pauses) == 1


def test_a_start_gives_up_on_a_file_that_is_written_to_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("half")
    now = 1000.0
    monkeypatch.setattr("broker.security.watched_files.time.monotonic", lambda: now)

    def write_on(_seconds: float) -> None:
        nonlocal now
        now += 1.0
        path.write_text(f"half {now}")

    with pytest.raises(ConfigError, match="being written to for 10 s already"):
        Watched("the file", [path], path.read_text, settle_seconds=2.0, sleep=write_on)


def test_a_file_of_the_future_counts_once_it_looked_the_same_for_long_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    set_age(path, 60)
    now = 1000.0
    monkeypatch.setattr("broker.security.watched_files.time.monotonic", lambda: now)
    watched = Watched("the file", [path], path.read_text, settle_seconds=2.0)
    path.write_text("two")
    set_age(path, -3600)
    for seconds, expected in ((1001.0, "one"), (1002.5, "one"), (1003.5, "two")):
        now = seconds
        watched.refresh()
        assert watched.current == expected


def test_what_changes_while_it_is_read_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    set_age(path, 60)
    writes = iter(["", "two and a half", ""])

    def read() -> str:
        text = path.read_text()
        if more := next(writes):
            path.write_text(more)
            set_age(path, 40)
        return text

    watched = Watched("the file", [path], read, settle_seconds=2.0)
    path.write_text("two")
    set_age(path, 50)
    watched.refresh()
    assert watched.current == "one"
    watched.refresh()
    assert watched.current == "two and a half"
