"""Timers on which a broker starts and goes on: `timerwheel`, `timerlog/` and `config/timercheck` of a new store.

A broker from 5.0 on does not start on a wheel or a file of `timerlog/` of another size. Without the wheel it makes one
anew of `timerlog/`, which it reads from `last_timer_log_position` of `timercheck`, less one file, on; and what has no
unit there it takes from the timer topic's queue, from the queue offsets of `timercheck` on. So what is damaged is left
out and these positions are set back to where nothing that waits is passed over. Sources: TimerWheel,
TimerMessageStore.recover and TimerCheckpoint of 5.5.0.
"""

import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from protocol.errors import StoreError
from spark_jobs.run.work_directory import write_whole
from storage.files.mapped_file import list_segment_files, read_piece, read_small_file
from storage.files.own_directories import remove_path
from storage.layout.store_layout import CONFIG
from storage.layout.timer_check import TIMER_CHECK, TIMER_CHECK_FILE
from storage.layout.timer_log import TIMER_LOG, TIMER_UNIT, TIMER_WHEEL, WHEEL_BYTES

_MOST_MAGIC: Final = 15
"""All bits of a unit's magic that a broker's recovery accepts."""

_AHEAD_MS: Final = 24 * 3600 * 1000
"""How far the time of a checkpoint may lie in the future, by a clock that was wrong."""

_LONGEST_CHECK: Final = 1 << 20


def mend_timers(root: Path) -> list[str]:
    """Exchange what is damaged of the timers of a store that is our own; a sentence if anything was."""
    wheel, log, check = root / TIMER_WHEEL, root / TIMER_LOG, root / CONFIG / TIMER_CHECK_FILE
    files = list_segment_files(log)[0] if log.is_dir() else []
    fields = _read_check(check)
    has_units = bool(files) and _starts_with_unit(files[0][1])
    was_used = has_units or bool(files) or bool(fields and fields[1] > 0)
    if not has_units and (was_used or _is_damaged(wheel)):
        wrong = TIMER_LOG if was_used else TIMER_WHEEL
    elif fields is None and (check.exists() or has_units):
        wrong = f"{CONFIG}/{TIMER_CHECK_FILE}"
    else:
        wrong = ""
    if wrong:
        remove_path(wheel)
        remove_path(log)
        if fields is None:
            remove_path(check)
        else:
            _write_check(check, fields, log_position=0, queue_offset=0)
        return [
            f"{wrong} was damaged or missing: a broker reads the timer topic from its beginning on; what waits is "
            "delivered, and what of it was delivered before is delivered once more"
        ]
    is_mended = has_units and _mend_files(files)
    if fields is None or not has_units or not (is_mended or _is_damaged(wheel) or not wheel.exists()):
        return []
    what = TIMER_LOG if is_mended else TIMER_WHEEL
    remove_path(wheel)
    _write_check(check, fields, log_position=0)
    return [
        f"{what} was damaged or missing: a broker makes {TIMER_WHEEL} anew of {TIMER_LOG}/; what waits is delivered"
    ]


def _is_damaged(wheel: Path) -> bool:
    """Whether a broker does not start on the wheel, or finds nothing in it; one that is missing is not damaged."""
    return wheel.exists() and (not wheel.is_file() or wheel.stat().st_size != WHEEL_BYTES)


def _starts_with_unit(path: Path) -> bool:
    """Whether a broker's recovery takes what a file begins with for a unit."""
    head = read_piece(path, 0, TIMER_UNIT.size)
    if len(head) < TIMER_UNIT.size:
        return False
    size, _, magic, *_ = TIMER_UNIT.unpack(head)
    return bool(size == TIMER_UNIT.size and 0 <= magic <= _MOST_MAGIC)


def _mend_files(files: Sequence[tuple[int, Path]]) -> bool:
    """Give all files the size that most have, and end them where one is missing; whether anything changed.

    Units are kept whole, and behind them are zeros. A broker's recovery ends there, and takes what followed from the
    timer topic again, which it would not, did any file follow that is missing one in front.
    """
    sizes = Counter(size for _, path in files if (size := path.stat().st_size))
    usual = max(sizes, key=lambda size: (sizes[size], size))
    is_mended = False
    for number, (start, path) in enumerate(files):
        size = path.stat().st_size
        if start != files[0][0] + number * usual:
            remove_path(path)
        elif size != usual:
            with path.open("r+b") as file:
                file.truncate(min(size, usual) // TIMER_UNIT.size * TIMER_UNIT.size)
                file.truncate(usual)
                os.fsync(file.fileno())
        else:
            continue
        is_mended = True
    return is_mended


def _read_check(path: Path) -> tuple[int, ...] | None:
    """The fields of `timercheck`; None without it, and where no broker has written them so."""
    try:
        data = read_small_file(path, _LONGEST_CHECK)
    except (OSError, StoreError):
        return None
    if len(data) < TIMER_CHECK.size:
        return None
    fields: tuple[int, ...] = TIMER_CHECK.unpack_from(data)
    is_sound = min(fields) >= 0 and fields[0] <= time.time() * 1000 + _AHEAD_MS
    return fields if is_sound else None


def _write_check(path: Path, fields: Sequence[int], *, log_position: int, queue_offset: int | None = None) -> None:
    read, _, own, master, *rest = fields
    offsets = (own, master) if queue_offset is None else (queue_offset, queue_offset)
    data = read_small_file(path, _LONGEST_CHECK)
    write_whole(path, TIMER_CHECK.pack(read, log_position, *offsets, *rest) + data[TIMER_CHECK.size :])
