"""Pulls that found messages on the ordinary way, told to the fast lane, which may answer those that are like them."""

import weakref
from typing import TYPE_CHECKING, NamedTuple

from protocol.headers import PullMessageRequestHeader
from storage.kernels.pulls import Choice

if TYPE_CHECKING:
    from storage.store.message_store import Snapshot

KEPT = 256
"""Pulls that wait to be taken notice of; of more, the oldest are forgotten."""


class FoundPull(NamedTuple):
    """A pull that found messages, and what its answer depended on.

    `snapshot`, which is not kept alive, and `group_changes` are what was current when it was looked at first.
    """

    code: int
    header: PullMessageRequestHeader
    choice: Choice
    topic_sys_flag: int
    group_sys_flag: int
    snapshot: "weakref.ref[Snapshot]"
    group_changes: int
