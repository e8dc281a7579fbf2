"""Tag subscriptions: `TagA || TagB`, compared by hash with what the queue units hold.

The broker compares hashes only and the client compares the tags themselves again, so that two tags of equal hash never
reach a consumer mixed up, but both count as delivered by the queue. Source: filters §1.1–§1.4.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from protocol.errors import FilterSyntaxError
from protocol.java_hash import java_hash
from storage.filter.base import CHOICE_OF_EVERYTHING
from storage.kernels.pulls import BY_TAG, Choice
from storage.queue.consume_queue_ext import ConsumeQueueExtUnit

TAG_TYPE: Final = "TAG"
EVERYTHING: Final = "*"
_SEPARATOR: Final = "||"
# Java's String.trim cuts every character up to the blank, not what Unicode calls white space.
_TRIMMED: Final = "".join(map(chr, range(0x21)))


def is_tag_type(expression_type: str | None) -> bool:
    """Whether a subscription of this type is one by tags: absent, empty or exactly `TAG`."""
    return not expression_type or expression_type == TAG_TYPE


@dataclass(frozen=True, slots=True)
class TagExpression:
    """A parsed tag subscription: its text as it came, the tags in it and their hashes (signed 32 bits)."""

    text: str
    tags: frozenset[str]
    codes: frozenset[int]

    @property
    def matches_everything(self) -> bool:
        """Whether this is the subscription to all messages, tagged or not."""
        return self.text == EVERYTHING


def parse_tag_expression(text: str | None, expression_type: str | None = TAG_TYPE) -> TagExpression:
    """Parse the text of a tag subscription as client library and broker do.

    No text, the empty text and `*` mean everything. An empty `expression_type` (not None) is the peers' odd case: the
    text is kept unparsed, so that only `*` matches anything. Raises `FilterSyntaxError` for a text of separators
    alone.
    """
    if expression_type == "":
        if text is None or text == "":
            raise FilterSyntaxError("", (0, 0), "the expression is empty")
        return TagExpression(text, frozenset(), frozenset())
    if not text or text == EVERYTHING:
        return TagExpression(EVERYTHING, frozenset(), frozenset())
    # Java's split forgets empty pieces at the end, and an array without pieces is an error.
    if not text.replace(_SEPARATOR, ""):
        raise FilterSyntaxError(text, (0, len(text)), "no tag between the separators")
    tags = frozenset(tag for piece in text.split(_SEPARATOR) if (tag := piece.strip(_TRIMMED)))
    return TagExpression(text, tags, frozenset(map(java_hash, tags)))


def choice_of_tags(codes: Iterable[int]) -> Choice:
    """The choice of messages by the hashes of their tags, unsigned 32 bits."""
    return Choice(BY_TAG, array("I", codes))


class TagFilter:
    """The `MessageFilter` of a tag subscription; `choice` is what the kernel of a pull takes."""

    __slots__ = ("__weakref__", "_codes", "choice", "expression", "matches_everything")
    needs_properties = False

    def __init__(self, expression: TagExpression) -> None:
        self.expression = expression
        self.matches_everything = expression.matches_everything
        # A unit's code is compared by its low 32 bits: as unsigned numbers that is one mask, not a sign to extend.
        self._codes = frozenset(code & 0xFFFFFFFF for code in expression.codes)
        self.choice = CHOICE_OF_EVERYTHING if self.matches_everything else choice_of_tags(self._codes)

    def matches_consume_queue_entry(self, tags_code: int | None, extension: ConsumeQueueExtUnit | None) -> bool:
        """Whether the low 32 bits of the unit's code are one of the subscription's hashes."""
        return tags_code is None or self.matches_everything or tags_code & 0xFFFFFFFF in self._codes

    def matches_commit_log(self, properties: bytes | memoryview) -> bool:
        """Always: the broker leaves the comparison of the tags themselves to the client."""
        return True
