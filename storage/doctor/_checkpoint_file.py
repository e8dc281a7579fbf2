"""Compare the checkpoint with log, queues and index: will a broker's recovery start where it must?"""

from collections.abc import Sequence

from protocol.errors import StoreError
from storage.doctor._next_start import NextStart
from storage.doctor._opened_store import OpenedStore
from storage.doctor._rescue_line import after_checkpoint
from storage.doctor._sampling import Sample
from storage.doctor.finding import CLEARED_BY_A_START, INDEX, Finding, Findings, FoundAt, Kind, Severity
from storage.layout.checkpoint import CHECKPOINT, Checkpoint
from storage.log.segment_end import is_blank
from storage.times import format_timestamp

MARGIN_MS = 60_000
"""A broker writes its checkpoint about once a second; what is ahead of the log by more is of another log."""

HARMLESS = "no fix is needed to serve the store"


def check_checkpoint(store: OpenedStore, samples: Sequence[Sample], start: NextStart | None = None) -> list[Finding]:
    """Check that the checkpoint exists, is complete, and is not ahead of log, queues or index.

    Where the next `start` would cut the log without a checkpoint, none is advised to remove it.
    """
    findings, path = Findings("checkpoint"), store.layout.checkpoint
    try:
        checkpoint = Checkpoint.read(path)
    except StoreError as error:
        found = str(error).partition(": ")[2] or str(error)
        meaning = "a broker that starts here cannot know what was flushed"
        at, remedy = FoundAt(path, position=0), _start_anew(store, start)
        findings.add(Kind.CHECKPOINT, Severity.WARNING, at, found, meaning, remedy)
        return findings.listed()
    if checkpoint is None and not samples:
        meaning, remedy = "there is no message for which it would be needed", "no fix is needed: a broker writes one"
        findings.add(Kind.CHECKPOINT, Severity.INFO, path, "is missing", meaning, remedy)
        return findings.listed()
    if checkpoint is None:
        meaning = "after a crash a broker reads its whole log again, and deletes all index files"
        findings.add(Kind.CHECKPOINT, Severity.WARNING, path, "is missing", meaning, store.command("rebuild index"))
        return findings.listed()
    if samples:
        _check_times(store, checkpoint, max(sample.store_timestamp for sample in samples), start, findings)
    _check_offsets(store, checkpoint, start, findings)
    return findings.listed()


def _start_anew(store: OpenedStore, start: NextStart | None) -> str:
    """What makes a recovery read all of the log; without a checkpoint a broker would delete the index after a crash."""
    if start is not None and start.needs_checkpoint:
        return f"{HARMLESS}; leave it as it is: a recovery that reads more of the log meets damage, and cuts it there"
    return after_checkpoint(store, store.command(INDEX))


def _check_times(
    store: OpenedStore, checkpoint: Checkpoint, newest: int, start: NextStart | None, findings: Findings
) -> None:
    """Report times that are later than the newest message's, or that are 0."""
    stated = {
        "physic_msg_timestamp": checkpoint.physic_msg_timestamp,
        "logics_msg_timestamp": checkpoint.logics_msg_timestamp,
        "index_msg_timestamp": checkpoint.index_msg_timestamp,
    }
    for number, (name, timestamp) in enumerate(stated.items()):
        if timestamp > newest + MARGIN_MS:
            found = f"{name} is {format_timestamp(timestamp)}, the newest message was stored {format_timestamp(newest)}"
            meaning = "it belongs to another log, or the log was cut: a broker's recovery may start too late"
            _add(store, findings, found, meaning, _start_anew(store, start), 8 * number)
        elif timestamp < 0:
            found, meaning = (
                f"{name} is {timestamp}",
                "it is not a time: a broker's recovery starts at the first message",
            )
            _add(store, findings, found, meaning, HARMLESS, 8 * number)


def _check_offsets(store: OpenedStore, checkpoint: Checkpoint, start: NextStart | None, findings: Findings) -> None:
    """Report physical offsets behind the end of the log: that of its last segment where a BLANK closes it."""
    log_end = store.commit_log.end
    if store.commit_log.segments:
        last = store.commit_log.segments[-1]
        is_closed = is_blank(last.file, last.valid_length, last.boundary - last.base_offset)
        log_end = last.boundary if is_closed else log_end
    stated = {
        "confirm_physical_offset": (checkpoint.confirm_physical_offset, 32),
        "logics_physical_offset": (checkpoint.logics_physical_offset, 40),
    }
    for name, (offset, position) in stated.items():
        if offset > log_end or offset < 0:
            found = f"{name} is {offset}, the log ends at {log_end}"
            meaning = (
                "the log was cut, or the checkpoint belongs to another one: a broker's recovery may start too late"
            )
            remedy = CLEARED_BY_A_START if store.state.has_crashed else _start_anew(store, start)
            _add(store, findings, found, meaning, remedy, position)


def _add(store: OpenedStore, findings: Findings, found: str, meaning: str, remedy: str, position: int) -> None:
    assert position < CHECKPOINT.size
    at = FoundAt(store.layout.checkpoint, position=position)
    findings.add(Kind.CHECKPOINT, Severity.WARNING, at, found, meaning, remedy)
