"""Where a broker that starts on a store begins to read its log again: damage from there on ends its log.

A broker steps back from the last segment to the first one whose first record it trusts: after a clean stop one that
the queues reach, after a crash one that the checkpoint vouches for. Brokers of 5.5 and older ones have different rules
for the latter; the earlier of the two places counts here, so that neither is going to cut what we keep
(store-format §6.3, §10). These rules open no file, so they stand apart from the scan.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from storage.layout.checkpoint import Checkpoint


class SegmentHead(msgspec.Struct, frozen=True, array_like=True):
    """The first record of a segment: `timestamp` is when it was stored, 0 where there is no intact one."""

    base_offset: int
    timestamp: int


def recovery_start(
    heads: Sequence[SegmentHead], *, has_crashed: bool, checkpoint: Checkpoint | None, queues_end: int
) -> int:
    """Physical offset where a recovery starts at the latest; `queues_end`: up to where queues reach."""
    if not heads:
        return 0
    if not has_crashed:
        return _last_head(heads, lambda head: head.base_offset <= queues_end)
    facts = checkpoint or Checkpoint(0, 0, 0, 0, 0, 0)
    older = _last_head(heads, lambda head: head.timestamp <= facts.min_timestamp)
    if facts.logics_physical_offset > 0:
        return min(older, _last_head(heads, lambda head: head.base_offset <= facts.logics_physical_offset))
    return min(older, _last_head(heads, lambda head: head.timestamp <= facts.logics_msg_timestamp))


def _last_head(heads: Sequence[SegmentHead], is_trusted: Callable[[SegmentHead], Any]) -> int:
    for head in reversed(heads):
        if head.timestamp and is_trusted(head):
            return head.base_offset
    return heads[0].base_offset
