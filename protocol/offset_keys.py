"""The keys of a broker's tables of consumer offsets: `topic@group`, in `consumerOffset.json` and in request 43.

A broker cuts a key at every `@`, which neither name may have, and takes for a group's what comes of two pieces. It
writes another kind itself: `topic@group@broadcast`, the least offset of the clients of a group that broadcasts behind a
proxy, each of which keeps its own. No group has that name. Source: ConsumerOffsetManager and BroadcastOffsetManager of
RocketMQ 5.5.0.
"""

from typing import Final

SEPARATOR: Final = "@"
_BROADCAST: Final = f"{SEPARATOR}broadcast"


def offset_key(topic: str, group: str) -> str:
    """The key of a group's offsets in a topic."""
    return f"{topic}{SEPARATOR}{group}"


def split_offset_key(key: str) -> tuple[str, str] | None:
    """Topic and group of a key; None for a key of clients that broadcast, and for one that is none."""
    topic, separator, group = key.partition(SEPARATOR)
    return (topic, group) if separator and not is_broadcast_key(key) else None


def is_broadcast_key(key: str) -> bool:
    """Whether a key stands for the clients of a group that broadcasts."""
    return key.endswith(_BROADCAST) and key.count(SEPARATOR) > 1
