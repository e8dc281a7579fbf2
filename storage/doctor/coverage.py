"""The numbers of the coverage picture: which ranges of the log exist, and which of them are in queues and index."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage.doctor.sampling import Sample
from storage.ranges import Range, Ranges, merge, subtract

MOST_TIMES = 64


@dataclass(frozen=True, slots=True)
class Coverage:
    """Ranges of physical offsets in [minimum, end): `log` holds intact messages, `queues` and `index` know them.

    `times` are (physical offset, store time in ms) of sampled messages, ascending by offset. `queues` is estimated from
    samples.
    """

    minimum: int
    end: int
    log: Ranges
    queues: Ranges
    index: Ranges
    times: tuple[tuple[int, int], ...]


def picture_coverage(
    segments: Sequence[Range],
    damaged: Sequence[Range],
    queues: Sequence[Range],
    index: Sequence[Range],
    samples: Sequence[Sample],
) -> Coverage:
    """Put together what the checks found; all ranges ascending."""
    log = subtract(merge(segments), damaged)
    step = max(len(samples) // MOST_TIMES, 1)
    return Coverage(
        minimum=segments[0][0] if segments else 0,
        end=segments[-1][1] if segments else 0,
        log=log,
        queues=tuple(queues),
        index=tuple(index),
        times=tuple((sample.physical_offset, sample.store_timestamp) for sample in samples[::step]),
    )
