"""The places of a search's matches in the messages that it found, with some of the text around them.

The text is what the client is shown, behind all masks. A regular expression is run once more, in a process that can be
killed; where it does not come to an end, or the match lies far behind, nothing is marked.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from broker.web.api.bodies import text_of
from protocol.errors import ConfigError
from protocol.message import Message
from storage.patterns.condition import PatternCondition
from storage.patterns.processes import PatternLimit
from storage.search.criteria import SearchPlace

BEFORE: Final = 40
MATCHED: Final = 120
BEHIND: Final = 80
"""Characters that are shown of the text before a match, of the match, and of the text behind it."""

MOST_MATCHED: Final = 64 * 1024
"""Characters of each text that a regular expression is run on."""

Span: TypeAlias = tuple[int, int]


def matches_in(
    messages: Sequence[Message],
    contains: str | None,
    regex: str | None,
    place: SearchPlace,
    charset: str | None,
    should_stop: Callable[[], bool],
) -> list[list[str] | None]:
    """Return for each message the text before the match, the match, and the text behind it; None without a match."""
    texts = [list(_texts(message, place, charset)) if contains or regex else [] for message in messages]
    if contains:
        spans = [[_span(text, contains) for text in each] for each in texts]
    elif regex:
        spans = _spans(texts, regex, charset, should_stop)
    else:
        spans = [[] for _ in texts]
    return [
        next((_excerpt(text, span) for text, span in zip(each, found, strict=True) if span is not None), None)
        for each, found in zip(texts, spans, strict=True)
    ]


def _texts(message: Message, place: SearchPlace, charset: str | None) -> Iterator[str]:
    """Return the texts of a message that are searched."""
    if place is not SearchPlace.PROPERTIES:
        body = text_of(message, charset)
        if body is not None:
            yield body
    if place is not SearchPlace.BODY:
        yield from message.properties.values()


def _span(text: str, contains: str) -> Span | None:
    start = text.find(contains)
    return None if start < 0 else (start, start + len(contains))


def _spans(
    texts: Sequence[Sequence[str]], regex: str, charset: str | None, should_stop: Callable[[], bool]
) -> list[list[Span | None]]:
    """Where a regular expression matches; nowhere where it does not come to an end."""
    found: list[Span | None] = []
    flat = [text[:MOST_MATCHED] for each in texts for text in each]
    try:
        found = PatternCondition("regex", regex, charset, should_stop).spans(flat)
    except (ConfigError, PatternLimit):
        found = [None] * len(flat)
    left = iter(found)
    return [[next(left) for _ in each] for each in texts]


def _excerpt(text: str, span: Span) -> list[str]:
    """A match with the text around it, on one line."""
    start, end = span
    before, behind = text[max(start - BEFORE, 0) : start], text[end : end + BEHIND]
    matched = text[start : min(end, start + MATCHED)]
    marked = (
        "…" * (start > BEFORE) + before,
        matched + "…" * (end - start > MATCHED),
        behind + "…" * (end + BEHIND < len(text)),
    )
    return [re.sub(r"\s+", " ", each) for each in marked]
