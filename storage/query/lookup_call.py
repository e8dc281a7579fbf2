"""The call of the kernel that looks keys up, with the question as a Python object."""

from typing import Final

from protocol.question import Question
from storage.kernels import lookups as kernel
from storage.kernels.store_view import StoreView

STEPS_AT_ONCE = 4096
"""Most entries that are walked on the event loop; a longer chain is walked on a thread that may wait."""

STEPS_UNBOUNDED: Final = 2**62


def run_lookup(
    view: StoreView, query: Question, needle: bytes, topic: int, key: int, tick: int, *, tags_only: bool = False
) -> kernel.Found:
    """Run the kernel with the result of :meth:`Question.needle`; it finds at most MAXIMUM_HITS records."""
    return kernel.look_up(
        view,
        needle,
        topic,
        key,
        query.kind,
        min(query.maximum, kernel.MAXIMUM_HITS),
        query.begin_timestamp,
        query.end_timestamp,
        query.before_physical_offset,
        query.maximum_bytes,
        tick,
        STEPS_AT_ONCE if tick else STEPS_UNBOUNDED,
        tags_only,
    )
