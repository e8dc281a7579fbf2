"""Look-ups, taken one step as the event loop does."""

from typing import TypeVar

from storage.files.waiting import Lookup, Unfinished, Wait, begin

Result = TypeVar("Result")


def wait_of(lookup: Lookup[Result]) -> Wait:
    """What a look-up waits for; the test fails where it waits for nothing."""
    step = begin(lookup)
    assert isinstance(step, Unfinished), f"it did not wait, and found {step}"
    return step.wait


def at_once(lookup: Lookup[Result]) -> Result:
    """What a look-up finds without waiting; the test fails where it waits."""
    step = begin(lookup)
    assert not isinstance(step, Unfinished), f"it waits: {step.wait}"
    return step
