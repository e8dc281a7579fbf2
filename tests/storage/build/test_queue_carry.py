"""What the log has nothing of any more is carried over with its numbers, and with no stale unit behind them."""

import errno
import os
from pathlib import Path

import pytest

from protocol.errors import StoreError
from queue_runs import batch_unit, files_under, unit
from storage.build.existing_queue import ReadableLog
from storage.build.queue_carry import CarrySummary, carry_queue
from storage.build.queue_plan import CarriedQueue, QueueKey
from store_files import write_file

GONE = ReadableLog(minimum=10_000, end=20_000)
PLAIN = QueueKey("consumequeue", "T", 3)


def write_queue(root: Path, *units: bytes, key: QueueKey = PLAIN, per_file: int = 4) -> None:
    size = len(units[0])
    for first in range(0, len(units), per_file):
        path = root / key.path / f"{first * size:020d}"
        write_file(path, per_file * size, {0: b"".join(units[first : first + per_file])})


def carry(root: Path, *, untouched: bool = False, link: bool = True, key: QueueKey = PLAIN) -> CarrySummary:
    return carry_queue(root / "store", CarriedQueue(key, untouched), GONE, root / "staged", link=link)


def is_linked(root: Path, name: str) -> bool:
    return (root / "store" / name).samefile(root / "staged" / name)


def test_stale_units_behind_the_end_are_zeroed_in_a_copy(tmp_path: Path) -> None:
    kept = [unit(100 * n) for n in range(6)]
    write_queue(tmp_path / "store", *kept, unit(25_000), unit(12_000), unit(25_100))
    before = files_under(tmp_path / "store")
    assert carry(tmp_path) == CarrySummary(next_offset=6, linked=1, copied=1, left_out=1)
    assert list(files_under(tmp_path / "staged").values()) == [
        b"".join(kept[:4]),
        b"".join(kept[4:]).ljust(80, b"\0"),
    ]
    assert files_under(tmp_path / "store") == before


def test_damaged_units_among_those_of_expired_messages_end_nothing(tmp_path: Path) -> None:
    write_queue(tmp_path / "store", *(unit(100 * n) for n in range(6)), unit(25_000), unit(600), unit(700))
    assert carry(tmp_path) == CarrySummary(next_offset=9, linked=3, copied=0, left_out=0)


def test_without_links_files_are_copied_with_their_holes(tmp_path: Path) -> None:
    write_queue(tmp_path / "store", *(unit(100 * n) for n in range(3)), per_file=300_000)
    assert carry(tmp_path, link=False) == CarrySummary(next_offset=3, linked=0, copied=1, left_out=0)
    (name,) = files_under(tmp_path / "staged")
    assert not is_linked(tmp_path, name)
    assert files_under(tmp_path / "staged") == files_under(tmp_path / "store")
    assert (tmp_path / "staged" / name).stat().st_blocks * 512 < 100_000


@pytest.mark.parametrize("link", [True, False])
def test_a_queue_of_another_topic_stays_as_it_is(link: bool, tmp_path: Path) -> None:
    write_queue(tmp_path / "store", unit(100), unit(-7), unit(25_000), unit(3), unit(4))
    assert carry(tmp_path, untouched=True, link=link).next_offset == -1
    assert files_under(tmp_path / "staged") == files_under(tmp_path / "store")


def test_a_queue_without_units_keeps_its_first_file_and_so_its_number(tmp_path: Path) -> None:
    write_file(tmp_path / "store" / PLAIN.path / f"{800:020d}", 80, {})
    assert carry(tmp_path) == CarrySummary(next_offset=40, linked=1, copied=0, left_out=0)
    assert list(files_under(tmp_path / "staged")) == [f"consumequeue/T/3/{800:020d}"]


def test_queues_of_batches_are_cut_by_their_own_units(tmp_path: Path) -> None:
    key = QueueKey("batchconsumequeue", "B", 0)
    write_queue(
        tmp_path / "store", *(batch_unit(100 * n, 5 * n, 5) for n in range(5)), batch_unit(30_000, 25, 5), key=key
    )
    assert carry(tmp_path, key=key) == CarrySummary(next_offset=25, linked=1, copied=1, left_out=0)
    assert list(files_under(tmp_path / "staged").values())[1] == batch_unit(400, 20, 5).ljust(184, b"\0")


def test_its_extension_comes_with_a_queue(tmp_path: Path) -> None:
    write_queue(tmp_path / "store", unit(100))
    write_file(tmp_path / "store" / "consumequeue_ext" / "T" / "3" / f"{0:020d}", 100, {0: b"unit"})
    carry(tmp_path)
    assert is_linked(tmp_path, f"consumequeue_ext/T/3/{0:020d}")


def test_where_links_are_not_possible_files_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_queue(tmp_path / "store", unit(100))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", refuse)
    assert carry(tmp_path).copied == 1
    assert files_under(tmp_path / "staged") == files_under(tmp_path / "store")


def test_other_failures_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_queue(tmp_path / "store", unit(100))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StoreError, match=r"00000000000000000000: cannot be linked to .*: No space left on device"):
        carry(tmp_path)
    monkeypatch.setattr(os, "copy_file_range", refuse)
    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(StoreError, match=r"00000000000000000000: cannot be copied to .*: No space left on device"):
        carry(tmp_path, link=False)
