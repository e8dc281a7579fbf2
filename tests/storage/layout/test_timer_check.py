"""The timer's checkpoint: a recorded broker's, and what is none."""

import struct
from pathlib import Path

import pytest

from golden_store import GOLDEN, unpack
from protocol.errors import StoreError, TruncatedFile
from storage.layout.timer_check import TimerCheck


def test_a_recorded_broker_has_read_its_whole_timer_topic(tmp_path: Path) -> None:
    store = unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-queues")
    check = TimerCheck.read(store / "config" / "timercheck")
    # Seven timer messages were sent; the last one that was delivered was due at 1795253924000.
    assert check is not None
    assert check.last_queue_offset == 7
    assert 1795253924000 < check.last_read_timestamp < 1795253924000 + 60_000


def test_no_file_and_one_that_no_timer_wrote_are_none(tmp_path: Path) -> None:
    path = tmp_path / "timercheck"
    assert TimerCheck.read(path) is None
    path.write_bytes(bytes(4096))
    assert TimerCheck.read(path) is None


def test_a_file_that_is_cut_or_negative_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "timercheck"
    path.write_bytes(bytes(20))
    with pytest.raises(TruncatedFile, match="timercheck"):
        TimerCheck.read(path)
    path.write_bytes(struct.pack(">7q", -5, 0, 3, 3, 0, 0, 0))
    with pytest.raises(StoreError, match=r"timercheck.*a time and a queue offset"):
        TimerCheck.read(path)
