"""The files of a queue, listed: what is said of one that is lost, in the words of the doctor."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storage.doctor.queues.unit_files import UnitFiles
from storage.queue.batch_consume_queue import UNIT_DTYPE as BATCH_UNIT_DTYPE
from storage.queue.consume_queue import UNIT_DTYPE
from storage.queue.queue_files import UNITS_OF_BATCHES, UNITS_OF_PLAIN


@pytest.mark.parametrize(
    ("dtype", "named", "lost"),
    [(UNIT_DTYPE, UNITS_OF_PLAIN, "queue offsets 50 to 99"), (BATCH_UNIT_DTYPE, UNITS_OF_BATCHES, "units 50 to 99")],
)
def test_a_lost_file_is_named_by_what_it_held(tmp_path: Path, dtype: np.dtype[Any], named: str, lost: str) -> None:
    for number in (0, 2):
        (tmp_path / f"{50 * number * dtype.itemsize:020d}").write_bytes(bytes(50 * dtype.itemsize))
    files = UnitFiles(tmp_path, dtype, named)
    assert [(fault.path, *fault.words) for fault in files.faults()] == [(tmp_path, f"a file that holds {lost}", "none")]
    assert files.problems == {}
