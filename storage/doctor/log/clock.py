"""Did the broker's clock step back, or is it ahead of ours? The store times of sampled messages show it."""

import itertools
import time
from collections.abc import Sequence

from storage.doctor._opened_store import OpenedStore
from storage.doctor._sampling import Sample
from storage.doctor.finding import Finding, Findings, FoundAt, Kind, Known, Severity
from storage.times import format_timestamp

TOLERATED_MS = 1000
"""A step back by less is what NTP does to any machine."""

AHEAD_MS = 24 * 60 * 60 * 1000
REMEDY = "no fix is needed to serve the store: every message's own time is compared"


def check_clock(store: OpenedStore, samples: Sequence[Sample]) -> list[Finding]:
    """Report steps back between neighbouring samples, and times in the future."""
    findings = Findings("clock", Known.SAMPLED)
    for before, after in itertools.pairwise(samples):
        step = before.store_timestamp - after.store_timestamp
        if step > TOLERATED_MS:
            found = (
                f"the clock stepped back by {step} ms: from {format_timestamp(before.store_timestamp)} at "
                f"{before.physical_offset} to {format_timestamp(after.store_timestamp)} at {after.physical_offset}"
            )
            meaning = "a broker's searches by time miss messages around this place"
            _add(store, findings, after, found, meaning)
    ahead = [sample for sample in samples if sample.store_timestamp > time.time() * 1000 + AHEAD_MS]
    if ahead:
        found = f"messages were stored at {format_timestamp(ahead[0].store_timestamp)}, which is in the future"
        _add(store, findings, ahead[0], found, "the clock of the broker was wrong, or that of this machine is")
    return findings.listed()


def _add(store: OpenedStore, findings: Findings, sample: Sample, found: str, meaning: str) -> None:
    segment = store.commit_log.segment_of(sample.physical_offset)
    if segment is not None:
        position = sample.physical_offset - segment.base_offset
        at = FoundAt(segment.file.path, position=position, physical_offset=sample.physical_offset)
        findings.add(Kind.CLOCK, Severity.WARNING, at, found, meaning, REMEDY)
