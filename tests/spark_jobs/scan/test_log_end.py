"""Where the log ends for a job, and what counts as damage on the way."""

from typing import Any

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


def test_a_log_that_just_stops_has_no_damage() -> None:
    log_end = find_log_end([segment(0), segment(1, (1500, -1, ZEROS, False))], None)
    assert (log_end.end, log_end.damages) == (1500, ())


def test_segments_made_ahead_change_nothing() -> None:
    log_end = find_log_end([segment(0), segment(1, (1500, -1, ZEROS, False)), empty(2), empty(3)], None)
    assert (log_end.end, log_end.damages) == (1500, ())


def test_a_log_without_any_record_ends_where_it_starts() -> None:
    assert find_log_end([empty(0), empty(1)], None).end == 0


def test_a_torn_record_at_the_end_is_told() -> None:
    log_end = find_log_end([segment(0), segment(1, (1500, -1, codes.BAD_BODY_CRC, False))], None)
    assert (log_end.end, places(log_end.damages)) == (1500, [(1500, 500)])
    assert "body does not match its CRC" in log_end.damages[0].found


def test_records_older_than_those_before_the_end_are_what_a_truncation_left() -> None:
    log_end = find_log_end([segment(0), segment(1, (1500, 1700, ZEROS, False), (1900, -1, ZEROS, False))], None)
    assert (log_end.end, log_end.damages) == (1500, ())


def test_a_hole_of_zeros_before_newer_records_is_damage_and_passed_over() -> None:
    log_end = find_log_end([segment(0), segment(1, (1500, 1700, ZEROS, True), (1900, -1, ZEROS, False))], None)
    assert (log_end.end, places(log_end.damages)) == (1900, [(1500, 200)])


def test_damage_inside_an_earlier_segment_is_passed_over() -> None:
    log_end = find_log_end([segment(0, (300, 400, codes.BAD_MAGIC, True)), segment(1, (1500, -1, ZEROS, False))], None)
    assert (log_end.end, places(log_end.damages)) == (1500, [(300, 100)])


def test_an_older_record_behind_damage_inside_an_earlier_segment_counts_all_the_same() -> None:
    """The clock may have stepped back; only at the very end of the log do old records mean a truncation."""
    log_end = find_log_end([segment(0, (300, 400, codes.BAD_MAGIC, False)), segment(1, (1500, -1, ZEROS, False))], None)
    assert (log_end.end, places(log_end.damages)) == (1500, [(300, 100)])


def test_an_earlier_segment_that_breaks_off_is_damage_up_to_its_end() -> None:
    log_end = find_log_end(
        [segment(0, (300, -1, codes.BAD_SIZE, False), state="broken"), segment(1, (1500, -1, ZEROS, False))], None
    )
    assert (log_end.end, places(log_end.damages)) == (1500, [(300, 700)])


def test_a_segment_of_zeros_between_others_is_damage() -> None:
    log_end = find_log_end([segment(0), empty(1), segment(2, (2500, -1, ZEROS, False))], None)
    assert (log_end.end, places(log_end.damages)) == (2500, [(1000, 1000)])


def test_a_missing_segment_is_damage_and_passed_over_even_where_a_recovery_looks() -> None:
    log_end = find_log_end([segment(0), segment(2, (2500, -1, ZEROS, False))], 0)
    assert (log_end.end, places(log_end.damages)) == (2500, [(1000, 1000)])
    assert log_end.damages[0].path == "/store/commitlog"


def test_in_place_damage_where_a_recovery_looks_ends_the_log_there() -> None:
    summaries = [segment(0, (300, 400, codes.BAD_MAGIC, True)), segment(1, (1500, -1, ZEROS, False))]
    log_end = find_log_end(summaries, 300)
    assert log_end.end == 300
    assert places(log_end.damages) == [(300, 100), (400, 1600)]
    assert "recovery" in log_end.damages[1].found


def test_in_place_damage_before_the_place_where_a_recovery_looks_is_passed_over() -> None:
    summaries = [segment(0, (300, 400, codes.BAD_MAGIC, True)), segment(1, (1500, -1, ZEROS, False))]
    assert find_log_end(summaries, 301).end == 1500


def test_in_place_a_segment_that_breaks_off_hides_all_that_follow() -> None:
    summaries = [segment(0, (300, -1, codes.BAD_SIZE, False)), segment(1, (1500, -1, ZEROS, False))]
    assert places(find_log_end(summaries, 0).damages) == [(300, 700), (1000, 1000)]


def test_places_beyond_those_that_are_listed_are_counted() -> None:
    summary = segment(0, (300, -1, ZEROS, False))
    summary["more_breaks"] = 7
    assert find_log_end([summary], None).more_damages == 7


def test_a_recovery_cuts_at_a_false_blank_in_the_last_segment_alone() -> None:
    """A broker believes any BLANK: it goes on in the next segment, and where there is none it writes on there."""
    breaks = (300, 400, codes.BAD_BLANK, True), (1300, 1400, codes.BAD_BLANK, True)
    summaries = [segment(0, breaks[0]), segment(1, breaks[1], (1500, -1, ZEROS, False))]
    log_end = find_log_end(summaries, 0)
    assert log_end.end == 1300
    assert [damage.physical_offset for damage in log_end.damages][:2] == [300, 1300]
