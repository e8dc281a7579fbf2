"""Which of a store's index files a rebuild keeps: intact ones at the front of the chain.

Kept is a file that is full, sound and of this log, has the counts and the profile that are wanted, and joins what
follows without a gap: its successor begins with the very entry that a broker puts next. The first file must begin where
the log's first key is, or before. From the first file that fails on, everything is built anew, a last file that is not
full included.
"""

from collections.abc import Sequence

import msgspec

from spark_jobs.build.index_profiles import AUTO_PROFILE, CLASSIC_PROFILE, TAGGED_PROFILE
from spark_jobs.build.place_entries import Boundary
from spark_jobs.scan.probe_store import IndexFileFacts
from storage.index.index_copy import LARGEST_FILE
from storage.index.index_file import DEFAULT_ENTRIES, DEFAULT_SLOTS, IndexHeader
from storage.kernels.indexes import ENTRY_BYTES, INDEX_HEADER, SLOT_BYTES


class IndexShapeWanted(msgspec.Struct, frozen=True):
    """Counts of the files to be built, and whether they hold tag entries."""

    slots: int
    capacity: int
    tags: bool

    @property
    def profile(self) -> str:
        """The name of the profile that has such entries."""
        return TAGGED_PROFILE if self.tags else CLASSIC_PROFILE


class KeptIndex(msgspec.Struct, frozen=True):
    """Names of the files that stay, the header of the last one, and where its entries end; `reasons` for the others."""

    names: tuple[str, ...]
    seed: IndexHeader | None
    boundary: Boundary | None
    reasons: tuple[str, ...]


def choose_shape(
    checks: Sequence[IndexFileFacts], *, profile: str, slots: int | None, capacity: int | None
) -> IndexShapeWanted:
    """Choose the shape that was asked for; else the newest readable file's, else the defaults of a 5.5 broker.

    A file that is longer than a broker can map says nothing about others.
    """
    readable = [check for check in checks if "slots" in check]
    newest = {"slots": DEFAULT_SLOTS, "capacity": DEFAULT_ENTRIES}
    for check in readable:
        if INDEX_HEADER + SLOT_BYTES * check["slots"] + ENTRY_BYTES * check["capacity"] <= LARGEST_FILE:
            newest = {"slots": check["slots"], "capacity": check["capacity"]}
    tagged = [tags for check in readable if (tags := check.get("has_tags")) is not None]
    tags = profile == TAGGED_PROFILE if profile != AUTO_PROFILE else (tagged[-1] if tagged else True)
    return IndexShapeWanted(slots or newest["slots"], capacity or newest["capacity"], tags)


def keep_index(
    checks: Sequence[IndexFileFacts], wanted: IndexShapeWanted, first_entry: Sequence[int] | None, minimum: int
) -> KeptIndex:
    """The leading files that stay; `first_entry` is (hash, physical offset) of the log's first, or None."""
    kept: list[IndexFileFacts] = []
    reasons: list[str] = []
    for check in checks:
        problem = check["problem"] or _mismatch(check, wanted) or _gap(kept, check, first_entry, minimum)
        if problem:
            reasons.append(f"{check['name']}: {problem}")
            break
        kept.append(check)
    return _kept(kept, tuple(reasons)) if kept else KeptIndex((), None, None, tuple(reasons))


def keep_below(kept: KeptIndex, checks: Sequence[IndexFileFacts], start: int) -> KeptIndex:
    """Keep, of the files that could stay, those that end below a physical offset: what they index stays indexed."""
    below = [check for check in checks[: len(kept.names)] if check["last"] < start]
    reasons = (*kept.reasons, f"files from physical offset {start} on are built anew (--from-offset)")
    if below:
        return _kept(below, reasons)
    first = min((check["first"][1] for check in checks if "first" in check), default=start)
    return KeptIndex((), None, Boundary(min(first, start), 0), reasons)


def _kept(files: Sequence[IndexFileFacts], reasons: tuple[str, ...]) -> KeptIndex:
    """These files stay: how the last one ends."""
    last = files[-1]["last"]
    entries = 0
    for check in reversed(files):
        if check["last"] == last:
            entries += check["last_entries"]
    seed = IndexHeader(*files[-1]["header"])
    return KeptIndex(tuple(check["name"] for check in files), seed, Boundary(last, entries), reasons)


def _mismatch(check: IndexFileFacts, wanted: IndexShapeWanted) -> str:
    if (check["slots"], check["capacity"]) != (wanted.slots, wanted.capacity):
        return (
            f"it has {check['slots']} slots and {check['capacity']} entries, wanted are {wanted.slots} and "
            f"{wanted.capacity}"
        )
    if check["has_tags"] is not None and check["has_tags"] != wanted.tags:
        return f"it was written {'with' if check['has_tags'] else 'without'} tag entries"
    return ""


def _gap(kept: Sequence[IndexFileFacts], check: IndexFileFacts, first_entry: Sequence[int] | None, minimum: int) -> str:
    """Return why a file does not join those that are kept already, "" where it does."""
    first = check["first"]
    if not kept:
        joins = first[1] < minimum or (first_entry is not None and list(first_entry) == first)
        return "" if joins else "entries are missing before its first one"
    before = kept[-1]
    if check["last"] < minimum:  # all of it has expired, nothing can be compared any more
        return "" if first[1] >= before["last"] else "it lies before its predecessor"
    expected = before.get("next")
    # After a crash a broker puts the entries of the boundary record a second time.
    repeats = first[1] == before["last"]
    return "" if expected == first or repeats else "entries are missing between it and its predecessor"
