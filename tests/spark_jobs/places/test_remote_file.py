"""Files behind a URL: all bytes come, whatever happens on the way, or a sentence says which do not."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from spark_jobs.places import remote_file
from spark_jobs.places.remote_file import (
    TRIES,
    RemoteFile,
    RemoteReadError,
    state_of,
)

URL = "memory://rocketlens-remote-file/00000000000000000000"
DATA = random.Random(7).randbytes(10_000)


class Answers:
    """What the file system is asked for, and what it answers: an entry of `spoiled` each time, as long as there is."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.spoiled: list[Any] = []
        self._whole = MemoryFileSystem.cat_file

    def cat_file(self, system: MemoryFileSystem, path: str, start: int, end: int) -> bytes:
        self.asked.append((start, end))
        data: bytes = self._whole(system, path, start=start, end=end)
        spoil = self.spoiled.pop(0) if self.spoiled else None
        if isinstance(spoil, Exception):
            raise spoil
        return data if spoil is None else data[:spoil]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    answers = Answers()
    monkeypatch.setattr(MemoryFileSystem, "cat_file", lambda *args, **more: answers.cat_file(*args, **more))
    monkeypatch.setattr(remote_file, "FIRST_PAUSE_SECONDS", 0)
    monkeypatch.setattr(remote_file, "PIECE_BYTES", 1000)
    fsspec.filesystem("memory").pipe_file(URL, DATA)
    yield answers
    fsspec.filesystem("memory").rm(URL)


def read(file: RemoteFile, start: int, size: int) -> bytes:
    """Bytes from a position on, read as often as that takes."""
    data, at = bytearray(size), 0
    while at < size and (count := file.read_into(memoryview(data)[at:], start + at)):
        at += count
    return bytes(data[:at])


def test_who_reads_on_gets_all_bytes_in_large_pieces_that_are_asked_for_ahead(answers: Answers) -> None:
    with RemoteFile(URL, "") as file:
        assert b"".join(read(file, at, 100) for at in range(0, 10_000, 100)) == DATA
        assert file.read_into(memoryview(bytearray(5)), 10_000) == 0
    assert sorted(answers.asked) == [(0, 100), *((at, min(at + 1000, 10_000)) for at in range(100, 10_000, 1000))]


def test_who_jumps_gets_the_right_bytes(answers: Answers) -> None:
    seeded = random.Random(3)
    with RemoteFile(URL, "") as file:
        for start, size in ((5000, 40), (100, 7), (9990, 100)):
            assert read(file, start, size) == DATA[start : start + size]
        assert answers.asked == [(5000, 5040), (100, 107), (9990, 10_000)], "no more than was asked for"
        at = 0
        for _ in range(300):
            at = seeded.randrange(10_000) if seeded.random() < 0.2 or at >= 9000 else at
            size = seeded.randrange(1, 1500)
            assert read(file, at, size) == DATA[at : at + size]
            at += size


@pytest.mark.parametrize("spoil", [OSError("SlowDown"), 0, 39, RuntimeError("odd")])
def test_what_is_refused_or_comes_short_is_asked_for_again(answers: Answers, spoil: Any) -> None:
    answers.spoiled = [spoil] * (TRIES - 1)
    with RemoteFile(URL, "") as file:
        assert read(file, 300, 40) == DATA[300:340]
    assert answers.asked == [(300, 340)] * TRIES


@pytest.mark.parametrize(("spoil", "reason"), [(OSError("SlowDown"), "SlowDown"), (3, "3 bytes came of 40")])
def test_there_is_a_limit_and_then_a_sentence(answers: Answers, spoil: Any, reason: str) -> None:
    answers.spoiled = [spoil] * 100
    with RemoteFile(URL, "") as file, pytest.raises(RemoteReadError) as caught:
        read(file, 300, 40)
    assert str(caught.value) == f"{URL}: cannot be read at position 300: {reason}"
    assert len(answers.asked) == TRIES


def test_what_no_further_try_mends_is_asked_for_once(answers: Answers) -> None:
    answers.spoiled = [PermissionError("Forbidden")]
    with RemoteFile(URL, "") as file, pytest.raises(RemoteReadError, match="at position 0: Forbidden"):
        read(file, 0, 10)
    assert len(answers.asked) == 1


def test_an_error_of_a_piece_asked_for_ahead_comes_when_it_is_come_to(answers: Answers) -> None:
    with RemoteFile(URL, "") as file:
        assert read(file, 0, 100) == DATA[:100]
        answers.spoiled = [PermissionError("Forbidden")] * 100
        with pytest.raises(RemoteReadError, match="at position 100: Forbidden"):
            read(file, 100, 100)


@pytest.mark.parametrize("other", [DATA[:500], DATA[::-1]])
def test_a_file_that_changes_while_it_is_read_is_named(answers: Answers, other: bytes) -> None:
    file = RemoteFile(URL, "")
    read(file, 0, 100)
    fsspec.filesystem("memory").pipe_file(URL, other)
    if len(other) < len(DATA):
        with pytest.raises(RemoteReadError, match="has changed since it was listed: 10000 bytes"):
            read(file, 450, 100)
    with pytest.raises(RemoteReadError, match=rf"{URL}: has changed .* 10000 bytes .* and {len(other)} bytes .* now"):
        file.close()


def test_a_file_that_is_gone_is_named(answers: Answers, tmp_path: Path) -> None:
    with pytest.raises(RemoteReadError, match="cannot be opened"):
        RemoteFile(f"{URL}1", "")
    with pytest.raises(RemoteReadError, match="cannot be opened: it is no file"):
        RemoteFile("memory://rocketlens-remote-file", "")
    file = RemoteFile(URL, "")
    read(file, 0, 10)
    fsspec.filesystem("memory").rm(URL)
    with pytest.raises(RemoteReadError, match="was removed since it was listed"):
        file.close()
    fsspec.filesystem("memory").pipe_file(URL, DATA)


def test_a_copy_has_all_bytes(answers: Answers, tmp_path: Path) -> None:
    answers.spoiled = [10, OSError("cut"), None, 0, 5]
    with RemoteFile(URL, "") as file:
        file.copy_to(tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == DATA


@pytest.mark.parametrize(
    ("info", "state"),
    [
        ({"ETag": '"e"', "LastModified": "then"}, '"e"'),
        ({"generation": 17, "mtime": "then"}, "17"),
        ({"mtime": 0}, "0"),
        ({"created": 1.5}, "1.500000"),
        ({"created": datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)}, "1.500000"),
        ({"ETag": None, "LastModified": "then"}, "then"),
        ({"size": 7}, ""),
    ],
)
def test_the_state_of_a_file_is_what_changes_with_its_content(info: dict[str, Any], state: str) -> None:
    assert state_of(info) == state
