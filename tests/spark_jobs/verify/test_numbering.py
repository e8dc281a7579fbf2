"""Numbers of a queue's messages, held against what a broker counts."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.verify import numbering as module
from spark_jobs.verify.findings import QUEUE_OFFSET, Discrepancies
from spark_jobs.verify.log_table import LogTable
from spark_jobs.verify.numbering import Numbering
from storage.queue.batch_consume_queue import UNIT_DTYPE as BATCH_DTYPE
from storage.queue.consume_queue import UNIT_DTYPE

DISTANCE = 100
"""Bytes of log from one message of a test to the next one."""


def log_of(lost: Iterable[int] = (), minimum: int = 0) -> LogTable:
    """A log in which bytes are lost right in front of these messages."""
    ranges = tuple((DISTANCE * number - 10, DISTANCE * number) for number in lost)
    return LogTable(
        minimum=minimum, end=10**6, lost=ranges, segment_size=10**6, is_live=False, may_lag=False,
        segments=((0, "segment"),), blocks=(),
    )  # fmt: skip


def runs_of(numbers: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Runs of consecutive numbers as (the first, the places of the messages), as a scan hands them on."""
    for _, run in groupby(enumerate(numbers), key=lambda item: item[1] - item[0]):
        places = list(run)
        yield places[0][1], [place for place, _ in places]


def units_of(places: Sequence[int]) -> "np.ndarray[tuple[int], np.dtype[np.void]]":
    units = np.zeros(len(places), UNIT_DTYPE)
    units["physical_offset"] = [DISTANCE * place for place in places]
    return units


class Outcome:
    """What was said of a queue: (place of the message, expected, found), what was only counted, and restarts."""

    def __init__(
        self,
        numbers: Sequence[int],
        *,
        lost: Iterable[int] = (),
        minimum: int = 0,
        is_light: bool = False,
        strays: Collection[int] = (),
        unitless: Collection[int] = (),
    ) -> None:
        findings = Discrepancies()
        numbering = Numbering(log_of(lost, minimum), findings, by_offset=True, is_light=is_light)
        self.restarts = []
        for first, places in runs_of(numbers):
            number, restarts = numbering.take(first, units_of(places))
            assert number == first
            self.restarts += [places[0]] if restarts else []
        numbering.finish(strays, unitless)
        self.counted = findings.unlisted
        self.said = [
            (finding.physical_offset // DISTANCE, finding.expected, int(finding.found)) for finding in findings.listed
        ]
        assert all((finding.kind, finding.place) == (QUEUE_OFFSET, "record") for finding in findings.listed)


def said(numbers: Sequence[int], **options: object) -> list[tuple[int, str, int]]:
    return Outcome(numbers, **options).said  # type: ignore[arg-type]


# --- as a broker counts ---------------------------------------------------------------------------------------------


@given(st.integers(0, 2**40), st.integers(1, 50))
def test_numbers_without_gap_or_repeat_are_right_wherever_the_log_begins(first: int, count: int) -> None:
    assert said(range(first, first + count)) == []


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_a_topic_that_was_made_again_starts_over(counts: list[int]) -> None:
    numbers = [number for count in counts for number in range(count)]
    outcome = Outcome(numbers)
    assert outcome.said == []
    starts = np.cumsum([0, *counts])[1:-1].tolist()
    assert outcome.restarts == starts


def test_where_messages_are_lost_their_numbers_are_too() -> None:
    assert said([0, 1, 5, 6], lost=[2]) == []
    assert said([0, 1, 5, 6], lost=[1]) == [(2, "queue offset 2", 5)]


def test_a_log_that_begins_anywhere_explains_its_first_number() -> None:
    assert said([7, 8, 9], minimum=DISTANCE) == []
    assert said([7]) == []


def test_copies_bear_the_old_numbers_of_light_queues() -> None:
    assert said([0, 1, 0, 2, 1, 1, 3], is_light=True) == []


# --- what is out of order -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ([0, 1, 9, 3, 4], [(2, "queue offset 2", 9)]),
        ([0, 1, 9, 2, 3], [(2, "queue offset 2", 9)]),  # one that does not belong here, and takes no number
        ([5, 6, 0, 8, 9], [(2, "queue offset 7", 0)]),
        ([0, 1, 5, 6], [(2, "queue offset 2", 5)]),
        ([0, 1, 1, 2], [(2, "queue offset 2", 1)]),
        ([4, 5, 3, 4], [(2, "queue offset 6", 3)]),
        ([9, 3, 4], [(0, "queue offset 2", 9)]),  # the first one, as those behind it show
        ([0, 1, 2, 7], [(3, "queue offset 3", 7)]),
        ([0, 1, 9, 3, 8, 5], [(2, "queue offset 2", 9), (4, "queue offset 4", 8)]),
    ],
)
def test_it_is_the_odd_one_that_is_named(numbers: list[int], told: list[tuple[int, str, int]]) -> None:
    assert said(numbers) == told


def test_two_odd_ones_in_a_row_are_both_named() -> None:
    assert [place for place, _, _ in said([0, 1, 20, 30, 4, 5])] == [2, 3, 4]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=12), st.booleans())
def test_any_numbers_are_judged_once_each_at_most(numbers: list[int], is_light: bool) -> None:
    outcome = Outcome(numbers, is_light=is_light)
    places = [place for place, _, _ in outcome.said]
    assert len(set(places)) == len(places)
    for place, expected, found in outcome.said:
        assert numbers[place] == found
        assert expected != f"queue offset {found}"


# --- what the units have told already -------------------------------------------------------------------------------


def test_a_gap_is_told_by_the_units_that_point_to_no_message_of_the_queue() -> None:
    assert said([0, 1, 5, 6], strays={2, 3, 4}) == []
    assert said([0, 1, 5, 6], strays={2, 4}) == [(2, "queue offset 2", 5)]


def test_of_two_with_one_number_it_is_the_one_without_a_unit() -> None:
    assert said([0, 1, 1, 2], unitless={1}) == []
    assert said([0, 1, 1, 2], unitless={2}) == [(2, "queue offset 2", 1)]


def test_more_doubts_than_are_kept_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_DOUBTS", 2)
    outcome = Outcome([0, 1, 10, 11, 20, 21, 30, 31, 40, 41])
    assert [place for place, _, _ in outcome.said] == [2, 4]
    assert outcome.counted == 2


# --- batches --------------------------------------------------------------------------------------------------------


def said_of_batches(
    runs: Sequence[Sequence[tuple[int, int]]], lost: Iterable[int] = ()
) -> tuple[list[tuple[int, str, int]], list[int]]:
    """What is said of batches of (first number, messages), and the ordinals of the runs."""
    findings = Discrepancies()
    numbering = Numbering(log_of(lost), findings, by_offset=False)
    place, ordinals = 0, []
    for run in runs:
        units = np.zeros(len(run), BATCH_DTYPE)
        units["physical_offset"] = [DISTANCE * (place + n) for n in range(len(run))]
        units["base_offset"], units["batch_size"] = zip(*run, strict=True)
        number, restarts = numbering.take(run[0][0], units)
        assert not restarts
        ordinals.append(number)
        place += len(run)
    numbering.finish((), ())
    listed = [
        (finding.physical_offset // DISTANCE, finding.expected, int(finding.found)) for finding in findings.listed
    ]
    return listed, ordinals


def test_each_batch_begins_where_the_one_before_it_ends() -> None:
    assert said_of_batches([[(5, 3), (8, 1)], [(9, 10)], [(19, 1), (20, 4)]]) == ([], [0, 2, 3])


def test_batches_start_over_too() -> None:
    assert said_of_batches([[(5, 3), (0, 2)], [(2, 1)], [(0, 1)]])[0] == []


@pytest.mark.parametrize("runs", [[[(0, 2), (5, 1)]], [[(0, 2)], [(5, 1)]]])
def test_a_gap_between_batches_is_told_unless_the_log_has_one(runs: list[list[tuple[int, int]]]) -> None:
    assert said_of_batches(runs)[0] == [(1, "queue offset 2", 5)]
    assert said_of_batches(runs, lost=[1])[0] == []


def test_a_batch_that_repeats_numbers_is_told_whatever_is_lost() -> None:
    assert said_of_batches([[(0, 5), (3, 2)]], lost=[1])[0] == [(1, "queue offset 5", 3)]
