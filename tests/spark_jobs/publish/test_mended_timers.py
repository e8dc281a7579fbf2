"""Damaged timers of a new store: a broker starts on what comes of them, and delivers all that waits.

The oracle is what TimerWheel, TimerMessageStore.recover and TimerCheckpoint of 5.5.0 do, written down once more.
"""

import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.publish.mended_timers import mend_timers

WHEEL: Final = 38_707_200
UNIT: Final = 52
FILE: Final = UNIT * 8 + 20
NOW: Final = 1_700_000_000_000
TIMERS: Final = 20
WAITING: Final = set(range(9, TIMERS))

Damage = Callable[[Path, int], None]


def unit(number: int) -> bytes:
    """The unit of a timer that is due `number` seconds from now on, less ten, and whose record says its number."""
    return struct.pack(">iqiqiqiiq", UNIT, -1, 1, NOW, (number - 9) * 1000, number, 100, 7, 0)


def make_store(root: Path) -> None:
    """20 timers in three files, of which 9 are delivered; all are in the wheel."""
    (root / "timerlog").mkdir()
    (root / "config").mkdir()
    for number in range(3):
        data = b"".join(map(unit, range(number * 8, min(number * 8 + 8, TIMERS))))
        blank = struct.pack(">iqi", FILE - len(data), 0, 0x1234567) if number < 2 else b""
        (root / "timerlog" / f"{number * FILE:020d}").write_bytes((data + blank).ljust(FILE, b"\0"))
    with (root / "timerwheel").open("wb") as file:
        file.truncate(WHEEL)
    check = struct.pack(">qqqqqqq", NOW, 2 * FILE + 4 * UNIT, TIMERS, TIMERS, 0, NOW, 1)
    (root / "config" / "timercheck").write_bytes(check.ljust(4096, b"\0"))


def delivered(root: Path) -> set[int]:
    """The timers that a broker delivers which starts on a store; raises where it does not start."""
    wheel, check = root / "timerwheel", root / "config" / "timercheck"
    assert not wheel.exists() or (wheel.is_file() and wheel.stat().st_size in (0, WHEEL))
    files = sorted((root / "timerlog").iterdir()) if (root / "timerlog").exists() else []
    assert {path.stat().st_size for path in files} <= {FILE}
    fields = struct.unpack_from(">qqqq", check.read_bytes().ljust(4096, b"\0")) if check.exists() else (0, 0, 0, 0)
    read, position, own, master = fields
    assert read <= NOW + 10**9
    starts = [int(path.name) for path in files]
    first = max((start for start in starts if start <= max(position - FILE, 0)), default=starts[0] if starts else 0)
    walked, log, last = set[int](), list[int](), -1
    for path in files:
        is_whole = True
        for at in range(0, FILE, UNIT):
            piece = path.read_bytes()[at : at + UNIT].ljust(UNIT, b"\0")
            size, _, magic, written, delay, number, *_ = struct.unpack(">iqiqiqiiq", piece)
            if magic == 0x1234567:
                break
            if size != UNIT or magic | 15 != 15:
                is_whole = False
                break
            log.append(number)
            last = number
            if int(path.name) >= first and written + delay >= read:
                walked.add(number)
        if not is_whole:
            break
    had_wheel = wheel.exists() and wheel.stat().st_size == WHEEL
    by_wheel = {number for number in log if number in WAITING} if had_wheel else walked
    queue = min(last + 1 if last >= 0 else own, master)
    return by_wheel | set(range(queue, TIMERS))


def cut(path: Path, amount: int) -> None:
    os.truncate(path, amount % path.stat().st_size)


def junk(path: Path, amount: int) -> None:
    path.write_bytes(b"\x9c" * (1 + amount % 5000))


def put_a_directory(path: Path, _: int) -> None:
    path.unlink()
    path.mkdir()


def longer(path: Path, amount: int) -> None:
    os.truncate(path, path.stat().st_size + 1 + amount)


def keep(_: Path, __: int) -> None:
    pass


def gone(path: Path, _: int) -> None:
    path.unlink()


KINDS: Final = (keep, cut, junk, put_a_directory, longer, gone)
FILES: Final = tuple(f"timerlog/{number * FILE:020d}" for number in range(3))


@contextmanager
def store() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        make_store(Path(directory))
        yield Path(directory)


@given(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 10_000)),
    st.sampled_from(FILES),
    st.tuples(st.sampled_from([kind for kind in KINDS if kind is not put_a_directory]), st.integers(0, 10_000)),
    st.tuples(st.sampled_from(KINDS), st.integers(0, 10_000)),
)
def test_all_that_waits_is_delivered_whatever_is_damaged(
    wheel: tuple[Damage, int], file: str, log: tuple[Damage, int], check: tuple[Damage, int]
) -> None:
    with store() as root:
        for name, (damage, amount) in (("timerwheel", wheel), (file, log), ("config/timercheck", check)):
            damage(root / name, amount)
        mend_timers(root)
        assert delivered(root) >= WAITING


@pytest.mark.parametrize("damage", KINDS)
def test_of_a_damaged_wheel_nothing_is_delivered_twice(tmp_path: Path, damage: Damage) -> None:
    make_store(tmp_path)
    damage(tmp_path / "timerwheel", 1000)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    notes = mend_timers(tmp_path)
    if damage is keep:
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert delivered(tmp_path) == WAITING
    assert len(notes) == (damage is not keep)
    assert (tmp_path / "timerlog" / ("0" * 20)).exists()
    assert (tmp_path / "timerwheel").exists() == (damage is keep)


def test_a_store_without_timers_has_none_to_mend(tmp_path: Path) -> None:
    assert mend_timers(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
