"""Finding the first invalid unit of a file, in steps that grow."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.mapped_file import MappedFile
from storage.queues.queue_end import FIRST_STEP, LARGEST_STEP, LONG_SCAN, count_leading, refuse_long_scan
from storage.residency import Cold, allow_waiting, forbid_waiting

BYTE = np.dtype("u1")


def count(path: Path, size: int | None = None) -> int:
    file = MappedFile.open(path)
    return count_leading(file, file.size if size is None else size, BYTE, lambda units: units != 0)


@pytest.mark.parametrize(
    "valid", [0, 1, FIRST_STEP - 1, FIRST_STEP, FIRST_STEP + 1, 3 * FIRST_STEP, 5000, 2 * LARGEST_STEP + 7]
)
def test_the_first_invalid_unit_is_found_wherever_the_steps_fall(valid: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\1" * valid + b"\0" + b"\1" * 100)
    assert count(tmp_path / "file") == valid


@given(st.integers(0, 3000))
def test_a_file_without_an_invalid_unit_counts_to_its_end(tmp_path_factory: pytest.TempPathFactory, size: int) -> None:
    path = tmp_path_factory.mktemp("full") / "file"
    path.write_bytes(b"\1" * size)
    assert count(path) == size
    assert count(path, size // 2) == size // 2
    assert count(path, size + 50) == size


def test_only_a_thread_that_may_not_wait_is_refused_a_long_scan() -> None:
    refuse_long_scan(LONG_SCAN + 1, "anything")
    forbid_waiting()
    try:
        refuse_long_scan(LONG_SCAN, "anything")
        with pytest.raises(Cold, match="a long scan: anything"):
            refuse_long_scan(LONG_SCAN + 1, "anything")
        with pytest.raises(Cold):
            refuse_long_scan(6, "anything", 5)
    finally:
        allow_waiting()
