"""Have a driver, or a task, die at its n-th step at a URL: before the step is done, or as soon as it is."""

import contextlib

import pytest

from protocol.errors import StoreError
from spark_jobs.places.output_place import NewObject, OutputPlace

STRIDES = (pytest.param(1, marks=pytest.mark.soak, id="each step"), pytest.param(5, id="some steps"))
"""Of how many steps one is died at: of long works each in the long tests, and enough of them in the others."""

PLACES = ["file", pytest.param("s3", marks=pytest.mark.soak)]
AT_EACH_PLACE = pytest.mark.parametrize("new_place", PLACES, indirect=True)
"""For what takes seconds for each step at an object store."""


class Died(BaseException):
    """The process would be gone."""


class Death:
    """Comes at a step, counted from 1; `after` says on which side of it."""

    def __init__(self, number: int, *, after: bool) -> None:
        self.left, self.after = number, after
        self.has_come = False

    def step(self, do):
        if self.has_come:
            raise Died
        self.left -= 1
        if self.left:
            return do()
        if self.after:
            with contextlib.suppress(StoreError):  # the step may fail, as a second creation does
                do()
        self.has_come = True
        raise Died


def arrange(patch: pytest.MonkeyPatch, death: Death) -> None:
    create, commit, remove, move = OutputPlace.create, NewObject.commit, OutputPlace.remove, OutputPlace.move

    def remove_each(self, names) -> None:
        for name in sorted(names):
            death.step(lambda name=name: remove(self, [name]))

    patch.setattr(OutputPlace, "create", lambda *each: death.step(lambda: create(*each)))
    patch.setattr(NewObject, "commit", lambda *each: death.step(lambda: commit(*each)))
    patch.setattr(OutputPlace, "move", lambda *each: death.step(lambda: move(*each)))
    patch.setattr(OutputPlace, "remove", remove_each)


def every_death(work, patch, each=1):
    """Have `work` die at its first step, its second, and so on; yields after each death, ends when it outlives them.

    `each`: of so many steps one. The caller puts everything back to where it was before the next round.
    """
    for after in (False, True):
        number = 1
        while True:
            death = Death(number, after=after)
            with patch.context() as patched:
                arrange(patched, death)
                with contextlib.suppress(Died):
                    work()
            if not death.has_come:
                break
            yield f"{'after' if after else 'before'} step {number}"
            number += each
        assert number > 1
