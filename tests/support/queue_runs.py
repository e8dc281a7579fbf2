"""Units of a queue as the scan of a log hands them on: in runs of consecutive queue offsets, cut at block ends too."""

from typing import NamedTuple

import numpy as np

from oracles import packed


class QueuedUnit(NamedTuple):
    queue_offset: int
    data: bytes
    timestamp: int = 0


def unit(physical_offset: int, size: int = 100, tags_code: int = 7) -> bytes:
    return packed(physical_offset, 8) + packed(size, 4) + packed(tags_code, 8)


def batch_unit(physical_offset: int, base_offset: int, count: int, *, size: int = 300, timestamp: int = 5) -> bytes:
    head = packed(physical_offset, 8) + packed(size, 4) + packed(9, 8) + packed(timestamp, 8)
    return head + packed(base_offset, 8) + packed(count, 2) + packed(-1, 4) + packed(0, 4)


def queued(offsets, *, start=0, step=100):
    places = enumerate(offsets)
    return [QueuedUnit(each, unit(start + number * step, tags_code=number), 1000 + number) for number, each in places]


def runs_of(units, block):
    """Cut at every jump of the queue offset and, as blocks of the log are, every `block` units."""
    run: list[QueuedUnit] = []
    for number, each in enumerate(units):
        if run and (number % block == 0 or each.queue_offset != run[-1].queue_offset + 1):
            yield run
            run = []
        run.append(each)
    if run:
        yield run


def put_all(builder, units, block=1000, *, stamped=False) -> None:
    for run in runs_of(units, block):
        # The memory is changed once the builder has it: a block does not outlive its turn.
        data = bytearray(b"".join(each.data for each in run))
        times = np.array([each.timestamp for each in run], np.int64)
        builder.put_run(run[0].queue_offset, memoryview(data), times if stamped else None)
        data[:] = bytes(len(data))
        times[:] = -1


def put_batches(builder, units, block=1000) -> None:
    """Hand units of batches to a builder; such runs are not split at jumps."""
    for start in range(0, len(units), block):
        run = units[start : start + block]
        builder.put_run(run[0].queue_offset, memoryview(b"".join(each.data for each in run)))


def files_under(directory):
    files = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def units_in(directory, size=20):
    found = {}
    for path in sorted(directory.iterdir()):
        content = path.read_bytes()
        for position in range(0, len(content) - size + 1, size):
            if any(content[position : position + size]):
                found[(int(path.name) + position) // size] = content[position : position + size]
    return found
