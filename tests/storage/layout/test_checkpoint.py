"""The checkpoint: six numbers at the start of a file that may be missing or short."""

from pathlib import Path

import pytest

from oracles import packed
from protocol.errors import TruncatedFile
from storage.layout.checkpoint import Checkpoint


def test_the_recorded_checkpoint_speaks_of_the_recorded_log(g1_store: Path) -> None:
    checkpoint = Checkpoint.read(g1_store / "checkpoint")
    assert checkpoint == Checkpoint(
        physic_msg_timestamp=0x01A1FCDA9506,
        logics_msg_timestamp=0x01A1FCDA9506,
        index_msg_timestamp=0x01A1FCDA0D20,
        master_flushed_offset=0,
        confirm_physical_offset=0,
        logics_physical_offset=0x02601E,
    )
    assert checkpoint.min_timestamp == 0x01A1FCDA9506 - 3000


def test_a_missing_checkpoint_is_none(tmp_path: Path) -> None:
    assert Checkpoint.read(tmp_path / "checkpoint") is None


@pytest.mark.parametrize("size", [0, 1, 40, 47])
def test_a_short_checkpoint_is_refused_with_its_length(size: int, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(bytes(size))
    with pytest.raises(TruncatedFile, match=f"needs 48 bytes, but only {size} are there"):
        Checkpoint.read(tmp_path / "checkpoint")


@pytest.mark.parametrize(
    ("physic", "logics", "expected"), [(0, 0, 0), (2999, 9000, 0), (9000, 5000, 2000), (-(1 << 63), 5, 0)]
)
def test_the_minimum_time_is_never_negative(physic: int, logics: int, expected: int, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(packed(physic, 8) + packed(logics, 8) + bytes(32))
    checkpoint = Checkpoint.read(tmp_path / "checkpoint")
    assert checkpoint is not None
    assert checkpoint.min_timestamp == expected
