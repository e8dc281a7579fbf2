"""Where the log ends for a job, and what counts as damage on the way."""

from typing import Any

import pytest

from spark_jobs.scan.log_end import find_log_end
from storage.kernels import records as codes
from storage.log.damaged_ranges import ZEROS

SIZE = 1000


def segment(
    number: int, *breaks: tuple[int, int, int, bool], records: int = 9, end: int | None = None, state: str = "blank"
) -> dict[str, Any]:
    """The summary of a scan of segment `number`; breaks as (offset, next record or -1, code, credible)."""
    base = number * SIZE
    return {
        "path": f"/store/commitlog/{base:020d}", "base": base, "size": SIZE, "records": records,
        "end": base + 900 if end is None else end, "state": state, "more_breaks": 0,
        "breaks": [[offset, following, code, int(credible)] for offset, following, code, credible in breaks],
    }  # fmt: skip


def empty(number: int) -> dict[str, Any]:
    return segment(number, (number * SIZE, -1, ZEROS, False), records=0, end=number * SIZE, state="zeros")


def places(damages: tuple[Any, ...]) -> list[tuple[int, int]]:
    return [(damage.physical_offset, damage.length) for damage in damages]


STOPS = segment(1, (1500, -1, ZEROS, False))
MAGIC = codes.BAD_MAGIC
CASES: dict[str, tuple[list[dict[str, Any]], int | None, int, list[tuple[int, int]]]] = {
    "a log that just stops": ([segment(0), STOPS], None, 1500, []),
    "segments made ahead": ([segment(0), STOPS, empty(2), empty(3)], None, 1500, []),
    "no record": ([empty(0), empty(1)], None, 0, []),
    "a torn record at the end": (
        [segment(0), segment(1, (1500, -1, codes.BAD_BODY_CRC, False))], None, 1500, [(1500, 500)],
    ),
    "older records behind the end, which a truncation left": (
        [segment(0), segment(1, (1500, 1700, ZEROS, False), (1900, -1, ZEROS, False))], None, 1500, [],
    ),
    "zeros before newer records": (
        [segment(0), segment(1, (1500, 1700, ZEROS, True), (1900, -1, ZEROS, False))], None, 1900, [(1500, 200)],
    ),
    "damage in an earlier segment": ([segment(0, (300, 400, MAGIC, True)), STOPS], None, 1500, [(300, 100)]),
    "an older record behind damage in an earlier segment, as the clock may step back": (
        [segment(0, (300, 400, MAGIC, False)), STOPS], None, 1500, [(300, 100)],
    ),
    "an earlier segment that breaks off": (
        [segment(0, (300, -1, codes.BAD_SIZE, False), state="broken"), STOPS], None, 1500, [(300, 700)],
    ),
    "a segment of zeros between others": (
        [segment(0), empty(1), segment(2, (2500, -1, ZEROS, False))], None, 2500, [(1000, 1000)],
    ),
    "a missing segment, even where a recovery looks": (
        [segment(0), segment(2, (2500, -1, ZEROS, False))], 0, 2500, [(1000, 1000)],
    ),
    "damage where a recovery looks": (
        [segment(0, (300, 400, MAGIC, True)), STOPS], 300, 300, [(300, 100), (400, 1600)],
    ),
    "damage before the place where a recovery looks": (
        [segment(0, (300, 400, MAGIC, True)), STOPS], 301, 1500, [(300, 100)],
    ),
    "a segment that breaks off where a recovery looks hides all that follow": (
        [segment(0, (300, -1, codes.BAD_SIZE, False)), STOPS], 0, 300, [(300, 700), (1000, 1000)],
    ),
    "a false BLANK ends it in the last segment alone, since a broker goes on in the next": (
        [
            segment(0, (300, 400, codes.BAD_BLANK, True)),
            segment(1, (1300, 1400, codes.BAD_BLANK, True), (1500, -1, ZEROS, False)),
        ],
        0, 1300, [(300, 100), (1300, 100), (1400, 600)],
    ),
}  # fmt: skip
"""Summaries of segments, from where on a recovery looks, where the log ends, and what is damaged."""


@pytest.mark.parametrize("case", CASES)
def test_the_log_ends_behind_its_last_record_and_damage_is_passed_over(case: str) -> None:
    summaries, recovered_from, end, damages = CASES[case]
    log_end = find_log_end(summaries, recovered_from)
    assert (log_end.end, places(log_end.damages)) == (end, damages)


def test_damage_is_named_with_its_file_and_what_was_found() -> None:
    torn = find_log_end([segment(0), segment(1, (1500, -1, codes.BAD_BODY_CRC, False))], None)
    assert "body does not match its CRC" in torn.damages[0].found
    missing = find_log_end([segment(0), segment(2, (2500, -1, ZEROS, False))], 0)
    assert missing.damages[0].path == "/store/commitlog"
    assert "recovery" in find_log_end([segment(0, (300, 400, MAGIC, True)), STOPS], 300).damages[1].found


def test_places_beyond_those_that_are_listed_are_counted() -> None:
    summary = segment(0, (300, -1, ZEROS, False))
    summary["more_breaks"] = 7
    assert find_log_end([summary], None).more_damages == 7
