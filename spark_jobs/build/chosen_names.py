"""The names of the index files that a job builds, chosen once, since a job that continues later would choose others.

Names lie between those that are kept and the present (:mod:`spark_jobs.build._index_names`), so those of a second
choice would differ from what tasks have built already.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from typing import Final

from spark_jobs.build._index_names import implied_zone, name_files
from spark_jobs.build.place_entries import Ask, PlacedFile, ask_here, entry_places
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.probe_store import IndexFileFacts
from storage.index.index_file import IndexHeader
from storage.times import parse_zone

PLACE: Final = "place"
"""The phase in which a driver deals out entries to files and names these."""

_NAMES: Final = "place-names"


def zone_of_names(zone: str | None, index_files: Sequence[IndexFileFacts]) -> tzinfo | None:
    """The zone of names: the one asked for, else the one that existing names imply; None for the machine's."""
    if zone is not None:
        return parse_zone(zone)
    return implied_zone([(file["name"], file["header"][0]) for file in index_files if "header" in file])


def choose_names(
    work: WorkDirectory,
    placed: Sequence[PlacedFile],
    zone: tzinfo | None,
    last: IndexHeader | None,
    *,
    above: str = "",
    ask: Ask = ask_here,
) -> list[str]:
    """A name for each file, as a run before this one chose them, else chosen now: `above` the last name that is kept.

    `last` is the header of the file before all of them: of what it says an empty first file gets its time. `ask` has
    entries looked at where they are.
    """
    known = work.done(_NAMES)
    if known is None or len(known["names"]) != len(placed):
        stamps = _begin_timestamps(placed, last, ask)
        known = work.finish(_NAMES, {"names": name_files(stamps, zone, above=above, now=datetime.now(UTC))})
    return [str(name) for name in known["names"]]


def _begin_timestamps(placed: Sequence[PlacedFile], last: IndexHeader | None, ask: Ask) -> list[int]:
    """Store time (ms) of the first entry of each file; of one without entries, that of the entry before it."""
    firsts = [file.pieces[0] if file.pieces else file.before for file in placed]
    times = iter(entry_places([first for first in firsts if first is not None], ask))
    without = last.end_timestamp if last is not None else 0
    return [without if first is None else next(times)[1] for first in firsts]
