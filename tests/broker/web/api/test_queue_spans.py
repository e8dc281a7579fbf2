"""Spans of queues by time and by place, whatever units are damaged."""

from pathlib import Path

import pytest

from broker.web.api.endpoint import LARGEST
from broker.web.api.queue_spans import offset_at, offset_behind, span_between
from doctoring import make_store, put
from queue_stores import open_queues


@pytest.mark.parametrize("count", [0, 1, 60])
@pytest.mark.parametrize("data", [bytes(20), b"\xff" * 20])
def test_damaged_units_do_not_move_a_span(count: int, data: bytes, tmp_path: Path) -> None:
    writer, written = make_store(tmp_path, 300, queue_file_size=4000)
    writer.close()
    own = written[1::2]
    put(tmp_path / "consumequeue" / "T" / "1" / f"{0:020d}", 20, data * count)
    queue = open_queues(tmp_path)[0].queue("T", 1)
    assert queue is not None
    for number in (0, 1, 2, 30, 69, 75, 148, 149):
        stamp, place = own[number].store_timestamp, own[number].physical_offset
        assert offset_at(queue, stamp, 0, 150) == number
        assert offset_behind(queue, place, 0, 150) == number
        assert offset_behind(queue, place + 1, 0, 150) == number + 1
        assert (span_between(queue, stamp, LARGEST).first, span_between(queue, 0, stamp).end) == (number, number + 1)
