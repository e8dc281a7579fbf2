"""Numbers of a queue's messages, held against what a broker counts."""

from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.doctor.finding import Findings, Kind
from storage.doctor.log.scanned_log import ScannedLog
from storage.doctor.queues import _numbering as module
from storage.doctor.queues._numbering import check_batches, check_numbers
from storage.queue.batch_consume_queue import UNIT_DTYPE as BATCH_DTYPE

DISTANCE = 100
"""Bytes of log from one message of a test to the next one."""


def log_of(lost: Iterable[int] = (), minimum: int = 0) -> ScannedLog:
    """A log in which bytes are lost right in front of these messages."""
    ranges = tuple((DISTANCE * number - 10, DISTANCE * number) for number in lost)
    return ScannedLog(
        minimum=minimum, end=10**6, lost=ranges, segment_size=10**6, is_live=False, may_lag=False,
        segments=((0, "segment"),),
    )  # fmt: skip


def said(numbers: Sequence[int], *, lost: Iterable[int] = (), minimum: int = 0) -> list[tuple[int, str, int]]:
    """What is said of a queue: (place of the message, expected, found)."""
    findings, log = Findings("queues"), log_of(lost, minimum)
    offsets = DISTANCE * np.arange(len(numbers))
    for wrong in check_numbers(np.array(numbers, np.int64), offsets, -1, log.minimum, log):
        wrong.note(log, findings)
    assert all((finding.kind, finding.place) == (Kind.QUEUE_OFFSET, "record") for finding in findings.listed())
    return [
        (finding.physical_offset // DISTANCE, finding.expected, int(finding.found)) for finding in findings.listed()
    ]


# --- as a broker counts ---------------------------------------------------------------------------------------------


@given(st.integers(0, 2**40), st.integers(1, 50))
def test_numbers_without_gap_or_repeat_are_right_wherever_the_log_begins(first: int, count: int) -> None:
    assert said(range(first, first + count)) == []


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_a_topic_that_was_made_again_starts_over(counts: list[int]) -> None:
    numbers = [number for count in counts for number in range(count)]
    assert said(numbers) == []


def test_where_messages_are_lost_their_numbers_are_too() -> None:
    assert said([0, 1, 5, 6], lost=[2]) == []
    assert said([0, 1, 5, 6], lost=[1]) == [(2, "queue offset 2", 5)]


def test_a_log_that_begins_anywhere_explains_its_first_number() -> None:
    assert said([7, 8, 9], minimum=DISTANCE) == []
    assert said([7]) == []


# --- what is out of order -------------------------------------------------------------------------------------------


def test_it_is_the_odd_one_that_is_named() -> None:
    for numbers, told in [
        ([0, 1, 9, 3, 4], [(2, "queue offset 2", 9)]),
        ([0, 1, 9, 2, 3], [(2, "queue offset 2", 9)]),  # one that does not belong here, and takes no number
        ([5, 6, 0, 8, 9], [(2, "queue offset 7", 0)]),
        ([0, 1, 5, 6], [(2, "queue offset 2", 5)]),
        ([0, 1, 1, 2], [(2, "queue offset 2", 1)]),
        ([4, 5, 3, 4], [(2, "queue offset 6", 3)]),
        ([9, 3, 4], [(0, "queue offset 2", 9)]),  # the first one, as those behind it show
        ([0, 1, 2, 7], [(3, "queue offset 3", 7)]),
        ([0, 1, 9, 3, 8, 5], [(2, "queue offset 2", 9), (4, "queue offset 4", 8)]),
    ]:
        assert said(numbers) == told


def test_two_odd_ones_in_a_row_are_both_named() -> None:
    assert [place for place, _, _ in said([0, 1, 20, 30, 4, 5])] == [2, 3, 4]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=12))
def test_any_numbers_are_judged_once_each_at_most(numbers: list[int]) -> None:
    outcome = said(numbers)
    places = [place for place, _, _ in outcome]
    assert len(set(places)) == len(places)
    for place, expected, found in outcome:
        assert numbers[place] == found
        assert expected != f"queue offset {found}"


# --- batches --------------------------------------------------------------------------------------------------------


def said_of_batches(batches: Sequence[tuple[int, int]], lost: Iterable[int] = ()) -> list[tuple[int, str, int]]:
    """What is said of batches of (first number, messages)."""
    findings, log = Findings("queues"), log_of(lost)
    messages = np.zeros(len(batches), [("unit", BATCH_DTYPE)])
    messages["unit"]["physical_offset"] = DISTANCE * np.arange(len(batches))
    messages["unit"]["base_offset"], messages["unit"]["batch_size"] = zip(*batches, strict=True)
    check_batches(
        lambda first, count: messages[first : first + count], len(batches), -1, log.minimum, (), log, findings
    )
    return [
        (finding.physical_offset // DISTANCE, finding.expected, int(finding.found)) for finding in findings.listed()
    ]


@pytest.fixture(params=[1, 2, 1 << 16])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are looked at in pieces of any length."""
    monkeypatch.setattr(module, "PIECE", request.param)


@pytest.mark.usefixtures("piece")
class TestBatches:
    def test_each_begins_where_the_one_before_it_ends(self) -> None:
        assert said_of_batches([(5, 3), (8, 1), (9, 10), (19, 1), (20, 4)]) == []

    def test_they_start_over_too(self) -> None:
        assert said_of_batches([(5, 3), (0, 2), (2, 1), (0, 1)]) == []

    def test_a_gap_is_told_unless_the_log_has_one(self) -> None:
        assert said_of_batches([(0, 2), (5, 1)]) == [(1, "queue offset 2", 5)]
        assert said_of_batches([(0, 2), (5, 1)], lost=[1]) == []

    def test_one_that_repeats_numbers_is_told_whatever_is_lost(self) -> None:
        assert said_of_batches([(0, 5), (3, 2)], lost=[1]) == [(1, "queue offset 5", 3)]
