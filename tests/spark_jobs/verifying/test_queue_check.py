"""A queue's units are found again by physical offset behind damage of any length."""

from types import SimpleNamespace

import numpy as np
import pytest

from spark_jobs.verifying.queue_check import AROUND, QueueCheck
from storage.consume_queue import UNIT_DTYPE


@pytest.mark.parametrize("lost", [0, 1, AROUND, 40 * AROUND])
@pytest.mark.parametrize("data", [0, 0xFF])
def test_units_are_found_by_physical_offset_whatever_is_damaged_before(lost: int, data: int) -> None:
    units = np.zeros(100_000, UNIT_DTYPE)
    units["physical_offset"], units["size"] = np.arange(100_000) * 200, 200
    units[30_000 : 30_000 + lost].view(np.uint8)[:] = data
    files = SimpleNamespace(
        first=0, end=len(units), dtype=UNIT_DTYPE, read=lambda place, count: units[place : place + count]
    )
    check = QueueCheck(files, *[None] * 4)  # type: ignore[arg-type]
    for number in (5, 29_999, 30_000 + lost, 99_999):
        assert check._bisect(200 * number) in {number, 30_000} if number == 30_000 + lost else {number}
    assert check._bisect(200 * 99_999) == 99_999
