"""What is too much for the event loop though nothing of it is cold: answers put together from thousands of look-ups."""

from storage.residency import Cold, may_wait

LOOKUPS_ON_LOOP = 1000
"""Look-ups of some microseconds each that one request may cost there; more are done on a thread."""


def leave_to_a_thread(lookups: int) -> None:
    """Raise `Cold` on the event loop where a request is about to make more look-ups than that."""
    if lookups > LOOKUPS_ON_LOOP and not may_wait():
        raise Cold(f"{lookups} look-ups")
