"""Where a job takes the log to end, and what of it is damaged.

The summary of each segment says where it broke off and where it goes on. A break without a record behind it is the end
of the log, as for a recovery. A break with intact records behind it is damage, and passed over. But if the output
replaces files of the store, and the damage is where the broker's own recovery is going to look, the broker will cut its
log there, write on at that place, and index nothing below the last entry it finds. So there the log ends for us too.
"""

import os
from collections.abc import Sequence
from typing import Final

import msgspec

from spark_jobs.run.report import Damage
from spark_jobs.scan.segment_walk import WalkSummary
from storage.doctor.words import damaged_record
from storage.kernels.records import BAD_BLANK
from storage.log.damaged_ranges import ZEROS

MISSING: Final = "a segment"
"""What is expected where no file is."""

_CUT_OFF: Final = "records behind damage, which a broker's recovery is going to cut off"


class LogEnd(msgspec.Struct, frozen=True):
    """Records that start at `end` or beyond do not count."""

    end: int
    damages: tuple[Damage, ...]
    more_damages: int


def find_log_end(summaries: Sequence[WalkSummary], cut_from: int | None) -> LogEnd:
    """Check the summaries of all segments in order; damage at or behind `cut_from` ends the log, if that is given."""
    damages: list[Damage] = []
    last = _last_with_data(summaries)
    read_end = _segment_end(summaries[last]) if summaries else 0
    for number, summary in enumerate(summaries[: last + 1]):
        for offset, following, code, is_credible in summary["breaks"]:
            behind = following if is_credible else -1
            # A broker believes any BLANK, and its recovery goes on in the next segment, if there is one.
            is_cut = cut_from is not None and offset >= cut_from and not (code == BAD_BLANK and number < last)
            if (number == last and behind < 0) or is_cut:
                damages += _at_end(summary, offset, behind, code, read_end)
                return LogEnd(offset, tuple(damages), _uncounted(summaries))
            stop = following if following >= 0 else _segment_end(summary)
            damages.append(unreadable(summary["path"], offset, stop - offset, code))
        if number < last:
            damages += _hole(summary, summaries[number + 1])
    return LogEnd(summaries[last]["end"] if summaries else 0, tuple(damages), _uncounted(summaries))


def unreadable(path: str, physical_offset: int, length: int, code: int) -> Damage:
    """Bytes where the log does not go on; `code` is ZEROS or of :mod:`storage.kernels.records`."""
    return Damage(path, physical_offset, length, *damaged_record(code))


def _last_with_data(summaries: Sequence[WalkSummary]) -> int:
    """The last segment that holds anything; those behind it were made ahead and are empty."""
    for number in range(len(summaries) - 1, 0, -1):
        summary = summaries[number]
        is_empty = [facts[:3] for facts in summary["breaks"]] == [[summary["base"], -1, ZEROS]]
        if not is_empty:
            return number
    return 0


def _segment_end(summary: WalkSummary) -> int:
    end: int = summary["base"] + summary["size"]
    return end


def _at_end(summary: WalkSummary, offset: int, following: int, code: int, read_end: int) -> list[Damage]:
    """Return the damage at the place where the log ends; none where it just stops."""
    path, stop = summary["path"], following if following >= 0 else _segment_end(summary)
    is_last = stop >= read_end
    damages = [] if is_last and code == ZEROS else [unreadable(path, offset, stop - offset, code)]
    return damages if is_last else [*damages, Damage(path, stop, read_end - stop, "nothing", _CUT_OFF)]


def _hole(left: WalkSummary, right: WalkSummary) -> list[Damage]:
    end = _segment_end(left)
    if end >= right["base"]:
        return []
    return [Damage(os.path.dirname(left["path"]), end, right["base"] - end, MISSING, "no file")]


def _uncounted(summaries: Sequence[WalkSummary]) -> int:
    return sum(summary["more_breaks"] for summary in summaries)
