"""How commands end when their output cannot be written, when they are stopped, and when a connection breaks."""

import os
import sys
from pathlib import Path

import pytest

from command_line import rocketlens
from read_only import as_user, reachable_directory
from rocketlens.cli.main import main
from store_writer import StoreWriter

UNIQUE_KEY = "FD000000000000000000000000000002708C30946E09687211CE0017"


@pytest.mark.parametrize(
    "words",
    [
        "search STORE --json",
        "view STORE 0",
        f"life STORE {UNIQUE_KEY} --json",
        "lookup STORE KEYS",
        "doctor STORE",
        "diff STORE STORE",
    ],
)
def test_a_command_whose_output_nobody_reads_ends_quietly(
    g1_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("hotkey\n")
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as unread:
        monkeypatch.setattr(sys, "stdout", unread)
        with pytest.raises(SystemExit) as end:
            main([{"STORE": str(g1_store), "KEYS": str(keys)}.get(word, word) for word in words.split()])
    assert end.value.code == 141
    assert "roken" not in capsys.readouterr().err


@pytest.mark.parametrize("words", ["search STORE --json", "lookup STORE KEYS"])
def test_a_disk_that_is_full_under_the_output_is_said_in_a_line(
    g1_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("hotkey\n")
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as end:
            main([{"STORE": str(g1_store), "KEYS": str(keys)}.get(word, word) for word in words.split()])
    assert end.value.code == 2
    assert "rocketlens: the output cannot be written: No space left on device\n" in capsys.readouterr().err


def test_a_command_that_is_stopped_does_not_end_as_one_that_found_nothing(
    g1_store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def press(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("storage.store.message_store.MessageStore.open", press)
    with pytest.raises(SystemExit) as end:
        main(["life", str(g1_store), UNIQUE_KEY])
    assert (end.value.code, capsys.readouterr().err) == (130, "rocketlens: stopped\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("closed", [".", "commitlog"])
def test_another_user_learns_why_a_store_cannot_be_read(closed: str) -> None:
    with reachable_directory() as directory:
        writer = StoreWriter(directory / "store")
        writer.append("T", b"x")
        writer.close()
        (writer.root / closed).chmod(0o700)
        with as_user(10001):
            outcome = rocketlens("find", writer.root, 0)
    assert (outcome.code, outcome.output) == (3, b"")
    assert "this process runs as UID 10001, which may not read" in outcome.errors
    assert outcome.errors.count("\n") == 1
