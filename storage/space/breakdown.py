"""Counts by name, as people and programs read them: names are texts, addresses and times."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from protocol.host_address import HostAddress
from protocol.java_hash import decode_java
from protocol.mask import PROPERTIES, Mask
from protocol.properties import BORN_HOST
from storage.amounts import bytes_text
from storage.space.tally import HOUR_MS, Counts, Tally

NAME_FIELDS: Final = {
    "topic": ("topic",),
    "queue": ("topic", "queueId"),
    "tag": ("topic", "tag"),
    "host": ("host",),
    "hour": ("hourTimestamp",),
}
"""What messages are counted by, and what JSON calls the parts of such a name."""

COUNTED_BY: Final = tuple(NAME_FIELDS)

CountedName: TypeAlias = tuple[str | int | None, ...]
"""A topic; a topic and queue id; a topic and tag, None for none; an IP address; the beginning of an hour, in ms."""


class NameCount(NamedTuple):
    """Messages of one name, and the bytes of their records: at least `size`, at most `most_size`."""

    names: CountedName
    messages: int
    size: int
    most_size: int


_NAMED: Final[dict[str, Callable[[Any], CountedName]]] = {
    "topic": lambda name: (decode_java(name),),
    "queue": lambda name: (decode_java(name[0]), name[1]),
    "tag": lambda name: (decode_java(name[0]), None if name[1] is None else decode_java(name[1])),
    "host": lambda name: (name if isinstance(name, str) else HostAddress.from_raw(name, 0).ip,),
    "hour": lambda name: (name * HOUR_MS,),
}


def counts_of(tally: Tally, kind: str) -> Counts[Any]:
    """The counts by one of :data:`COUNTED_BY`."""
    by_kind: dict[str, Counts[Any]] = {
        "topic": tally.topics,
        "queue": tally.queues,
        "tag": tally.tags,
        "host": tally.hosts,
        "hour": tally.hours,
    }
    return by_kind[kind]


def _hides_properties(mask: Mask) -> bool:
    return PROPERTIES in mask.fields or bool(mask.property_patterns)


def counts_are_masked(mask: Mask, kind: str) -> bool:
    """Whether counts by one of :data:`COUNTED_BY` would say what a mask hides."""
    if kind == "tag":
        return "tags" in mask.fields or _hides_properties(mask)
    if kind != "host":
        return False
    # Behind a proxy the sender is in a property.
    return "born_host" in mask.fields or BORN_HOST in mask.properties or _hides_properties(mask)


def name_counts(tally: Tally, kind: str, most: int | None = None) -> list[NameCount]:
    """The counts by one of :data:`COUNTED_BY`, the most bytes first, hours from the newest on; at most `most`."""
    counts = counts_of(tally, kind)
    rows = sorted(counts.largest(), reverse=True)[:most] if kind == "hour" else counts.largest(most)
    return [NameCount(_NAMED[kind](name), messages, size, size + counts.error) for name, messages, size in rows]


def count_fields(kind: str, row: NameCount) -> dict[str, str | int | None]:
    """A row as JSON has it: the parts of its name, as in :data:`NAME_FIELDS`, and `messages`, `bytes`, `mostBytes`."""
    names = dict(zip(NAME_FIELDS[kind], row.names, strict=True))
    return {**names, "messages": row.messages, "bytes": row.size, "mostBytes": row.most_size}


def inexact_counts(tally: Tally) -> list[str]:
    """Sentences about the counts that are not exact, because there are too many names."""
    return [
        f"there are more {kind}s than are counted exactly: each may have up to {bytes_text(counts.error)} more, and "
        f"{bytes_text(counts.given_up_bytes)} are of others"
        for kind in COUNTED_BY
        if (counts := counts_of(tally, kind)).error
    ]
