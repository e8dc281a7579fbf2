"""The call of the kernel that looks keys up, and how far it may walk."""

from typing import Final

from storage.kernels import lookups as kernel
from storage.kernels.store_view import StoreView

STEPS_AT_ONCE = 4096
"""Most entries that are walked on the event loop; a longer chain is walked on a thread that may wait."""

STEPS_UNBOUNDED: Final = 2**62


def run_lookup(view: StoreView, query: kernel.KeyQuery, tick: int) -> kernel.Found:
    """Run the kernel as far as this thread may."""
    return kernel.look_up(view, query, tick, STEPS_AT_ONCE if tick else STEPS_UNBOUNDED)
