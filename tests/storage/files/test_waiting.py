"""Look-ups in steps: what they wait for, who goes on with them, and where."""

import pytest

from storage.files.waiting import (
    Allowance,
    Lookup,
    Unfinished,
    Wait,
    WaitKind,
    all_of,
    begin,
    finish,
    long_scan,
    plainly,
)
from store_queries import wait_of


class Steps:
    """A look-up that waits so many times, and what was done for it in which order."""

    def __init__(self, waits: int) -> None:
        self.waits = waits
        self.done: list[str] = []

    def look_lookup(self, result: str = "found") -> Lookup[str]:
        """Say the result."""
        for number in range(self.waits):
            self.done.append(f"step {number}")
            yield Wait(f"page {number}", lambda number=number: self.done.append(f"warm {number}"))
        self.done.append("end")
        return result

    look = plainly(look_lookup)


def test_a_look_up_goes_on_from_where_it_waited_once_what_is_missing_is_there() -> None:
    steps = Steps(2)
    step = begin(steps.look_lookup())
    assert isinstance(step, Unfinished)
    assert str(step.wait) == "page 0"
    assert steps.done == ["step 0"]
    assert step.finish() == "found"
    assert steps.done == ["step 0", "warm 0", "step 1", "warm 1", "end"]


def test_the_plain_method_waits_for_all_and_says_the_same() -> None:
    steps = Steps(3)
    assert steps.look("this") == finish(Steps(1).look_lookup("this")) == "this"
    assert steps.done == ["step 0", "warm 0", "step 1", "warm 1", "step 2", "warm 2", "end"]
    assert Steps.look.__doc__ == Steps.look_lookup.__doc__


def test_errors_pass_through_whoever_goes_on() -> None:
    def look() -> Lookup[None]:
        yield Wait("a page")
        raise ValueError("odd")

    step = begin(look())
    assert isinstance(step, Unfinished)
    with pytest.raises(ValueError, match="odd"):
        step.finish()
    with pytest.raises(ValueError, match="odd"):
        finish(look())


def test_several_look_ups_are_made_in_order() -> None:
    steps = [Steps(1), Steps(0), Steps(1)]
    lookups = all_of(each.look_lookup(str(number)) for number, each in enumerate(steps))
    step = begin(lookups)
    assert isinstance(step, Unfinished)
    assert [each.done for each in steps] == [["step 0"], [], []]
    assert step.finish() == ["0", "1", "2"]


def test_a_wait_without_anything_to_bring_in_is_for_a_scan() -> None:
    wait = long_scan("all of it")
    wait.warm()
    assert (str(wait), wait.kind) == ("a long scan: all of it", WaitKind.SCAN)
    assert Wait("a page", lambda: None).kind is WaitKind.PAGE
    assert Wait("a chain", kind=WaitKind.CHAIN).kind is WaitKind.CHAIN
    assert str(wait_of(Steps(1).look_lookup())) == "page 0"


def test_an_allowance_is_used_up_once() -> None:
    allowance = Allowance(10)
    assert [allowance.is_used_up_by(length) for length in (4, 6, 0, 1, 5, 100)] == [False] * 3 + [True] + [False] * 2
