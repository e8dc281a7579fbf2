"""Where a list of what a text names goes on: a place that costs as much to reach as the first one.

What a text names is listed in one order: ids, then unique keys and keys topic by topic, then tags topic by topic, the
newest of each first. So the place behind a message follows from the message.
"""

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple, Self

from msgspec import Meta

from protocol.cursors import decode_cursor, encode_cursor
from protocol.question import KIND_OF_WORDS, LARGEST, FoundBy, KeyKind

MOST_PASSED: Final = 10_000
"""Messages behind a place that are passed over; a list that goes on from more is one of another place."""


class FindPlace(NamedTuple):
    """The place where a list goes on: kind of the text, topic, and the physical offset below which messages are left.

    `passed` messages there are listed already. Of the kind ANY it is a place among ids, with which a list begins.
    """

    kind: KeyKind = KeyKind.UNIQUE
    topic: str = ""
    before: Annotated[int, Meta(ge=0, le=LARGEST)] = LARGEST
    passed: Annotated[int, Meta(ge=0, le=MOST_PASSED)] = 0

    @classmethod
    def behind(cls, listed: Sequence[FoundBy], start: "FindPlace | None") -> Self:
        """The place behind some messages, at least one, of a list that began at another place, or with ids."""
        kind = KIND_OF_WORDS.get(listed[-1].kind)
        if kind is None:
            return cls(KeyKind.ANY, passed=len(listed) + (start.passed if start is not None else 0))
        return cls(kind, listed[-1].message.topic, listed[-1].message.physical_offset)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The place of a cursor; raises ConfigError."""
        return decode_cursor(text, cls)

    @property
    def text(self) -> str:
        """The cursor that leads here."""
        return encode_cursor(self)

    def left_of(self, parts: Sequence[KeyKind], kind: KeyKind, topic: str) -> int | None:
        """Below which physical offset messages of a topic are left, as found by one of some parts; None for none."""
        if self.kind not in parts:
            return None if self.kind is KeyKind.TAG else LARGEST
        if (topic, parts.index(kind)) < (self.topic, parts.index(self.kind)):
            return None
        return self.before if (kind, topic) == self[:2] else LARGEST
