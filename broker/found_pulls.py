"""Pulls that found messages on the ordinary way, told to the fast lane, which may answer those that are like them."""

from typing import TYPE_CHECKING, NamedTuple

from protocol.headers import PullMessageRequestHeader
from storage.filter.tag import TagFilter

if TYPE_CHECKING:
    from storage.message_store import Snapshot

KEPT = 256
"""Pulls that wait to be taken notice of; of more, the oldest are forgotten."""


class FoundPull(NamedTuple):
    """A pull that found messages, and what its answer depended on.

    `snapshot` and `group_changes` are what was current when it was looked at first.
    """

    code: int
    header: PullMessageRequestHeader
    chosen: TagFilter
    topic_sys_flag: int
    group_sys_flag: int
    snapshot: "Snapshot"
    group_changes: int
