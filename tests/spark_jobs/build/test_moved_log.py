"""Where records are and were, by the blocks that the tasks that moved them have left."""

from pathlib import Path

import numpy as np
import pytest

from spark_jobs.build.moved_log import NOWHERE, MovedLog, MovedSegment
from spark_jobs.run.blocks import BlockWriter
from storage.build.existing_queue import ReadableLog


@pytest.fixture
def moved(tmp_path: Path) -> MovedLog:
    """Two segments from 1000 on; in the first nothing was moved from 1250 to 1400."""
    segments = []
    for base, rows in ((1000, [(48, 0), (200, 100), (450, 250)]), (2000, [(48, 0)])):
        with BlockWriter(tmp_path / str(base), "test") as writer:
            before, after = (np.array(column, np.uint32) for column in zip(*rows, strict=True))
            writer.write(base, base + 1000, {"before": before, "after": after})
        segments.append(MovedSegment(base, str(tmp_path / str(base))))
    return MovedLog(tuple(segments), ReadableLog(1000, 2200))


def test_offsets_are_found_where_their_records_went(moved: MovedLog) -> None:
    asked = [2048, 1048, 1450, 1200, 1049, 2049, 9000, 999, 0]
    found = [2000, 1000, 1250, 1100, NOWHERE, NOWHERE, NOWHERE, 999, 0]
    assert moved.new_offsets(np.array(asked, np.int64)).tolist() == found
    assert moved.new_offsets(np.array([], np.int64)).tolist() == []
    assert [moved.new_offset(each) for each in asked] == [None if each == NOWHERE else each for each in found]
    assert moved.new_offset(None) is None


def test_the_way_back_leads_to_where_they_were(moved: MovedLog) -> None:
    assert [moved.old_offset(each) for each in (2000, 1250, 1100, 1000)] == [2048, 1450, 1200, 1048]
    assert [moved.old_offset(each) for each in (-1, 999, 1001)] == [-1, 999, 1001]
