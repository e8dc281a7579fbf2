"""A report of what a key query searched, in numbers and as one sentence, which explains an empty answer.

This is a module apart from the query, because its sentence is for people and the rest of this folder is not.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from storage.times import format_timestamp

MOST_CLAUSES: Final = 16
"""Clauses about what may be missing that are joined."""


@dataclass(frozen=True, slots=True)
class SearchReport:
    """The numbers of files and entries that one query searched.

    ``refused`` counts entries with the key's hash whose record is damaged, gone, or does not match. Timestamps in ms
    and physical offsets are the range that the index files cover, 0 without any. ``log_beyond_index`` is the number of
    bytes of log after the last record in an index file, ``unscanned`` that of bytes that no index file covers and that
    are not scanned yet. ``tier_logs`` counts the queues of a tier whose logs were scanned.
    """

    files_searched: int
    entries_walked: int
    refused: int
    bad_pointers: int
    index_begin_timestamp: int
    index_end_timestamp: int
    index_begin_physical_offset: int
    index_end_physical_offset: int
    log_minimum: int
    log_end: int
    log_beyond_index: int
    unscanned: int
    tier_logs: int = 0

    def sentence(self) -> str:
        """The report as a sentence for people, without a full stop."""
        files = _count(self.files_searched, "index file")
        entries = _count(self.entries_walked, "entry", "entries")
        parts = [f"searched {files}, walked {entries}, refused {_count(self.refused, 'hash hit')}"]
        if self.bad_pointers:
            parts.append(f"met {_count(self.bad_pointers, 'bad pointer')}")
        if self.index_end_timestamp:
            begin = format_timestamp(self.index_begin_timestamp)
            end = format_timestamp(self.index_end_timestamp)
            offsets = f"{self.index_begin_physical_offset} to {self.index_end_physical_offset}"
            parts.append(f"index covers {begin} to {end}, physical offsets {offsets}")
        else:
            parts.append("there is no usable index file")
        if self.tier_logs:
            parts.append(f"scanned the tier's logs of {_count(self.tier_logs, 'queue')}")
        if not self.log_end:
            return "; ".join(parts)
        beyond = f"the log holds {self.log_minimum} to {self.log_end}"
        if self.log_beyond_index:
            beyond += f", {_count(self.log_beyond_index, 'byte')} of it beyond the index"
            beyond += f" with {self.unscanned} still to be scanned" if self.unscanned else ", scanned instead"
        return "; ".join([*parts, beyond])


def summed(reports: Sequence[SearchReport]) -> SearchReport:
    """One report of several searches of a store, at least one: entries are added up, the rest is that of the last."""
    return replace(
        reports[-1],
        entries_walked=sum(report.entries_walked for report in reports),
        refused=sum(report.refused for report in reports),
    )


def joined_clauses(clauses: Iterable[str | None]) -> str | None:
    """Join what several answers may lack, each clause once, the first `MOST_CLAUSES`; None where that is nothing."""
    parts = list(dict.fromkeys(part for each in clauses if each for part in each.split("; ")))
    return "; ".join(parts if len(parts) <= MOST_CLAUSES else (*parts[:MOST_CLAUSES], "and more")) or None


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
