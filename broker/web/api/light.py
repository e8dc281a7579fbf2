"""Light topics by their parent: how many there are, what they hold, and how far groups are behind in them."""

from typing import Final

import msgspec

from broker.web.api.cursors import decode_cursor, encode_cursor
from broker.web.api.endpoint import Cursor, Milliseconds, Parameters
from broker.web.api.request_context import RequestContext
from broker.web.api.topics import group_progress
from protocol.errors import BeingSearched, RocketLensError, StoreError
from storage.store.light_topics import LightTopic, light_names, light_topic

LOOKED_AT: Final = 2000
"""Maximum number of light topics that one answer looks at."""


class LightQuestion(Parameters):
    """A question about all light topics; those that the time did not suffice for follow by the cursor."""

    milliseconds: Milliseconds = 1000
    cursor: Cursor | None = None


class LightLine(msgspec.Struct, rename="camel", kw_only=True):
    """The light topics of one parent, null where that is not known: how many, and their messages.

    Of `expired` ones the log has no message any more; `unreadable` cannot be read. `lag` is what groups have not
    consumed in them, null where that of one is not known.
    """

    parent: str | None
    count: int = 0
    messages: int = 0
    expired: int = 0
    unreadable: int = 0
    lag: int | None = 0


class LightAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """Parents by name, of the light topics that this answer looked at; the numbers of all answers are to be added."""

    parents: list[LightLine]
    looked_at: int
    total: int
    cursor: str | None


def light_topics(context: RequestContext, question: LightQuestion) -> LightAnswer:
    """Light topics by their parent topic, with what groups have not consumed of them."""
    context.allow(question.milliseconds)
    names = [name for name in light_names(context.store) if context.may_read(name)]
    after = "" if question.cursor is None else decode_cursor(question.cursor, str)
    left = [name for name in names if name > after]
    lines: dict[str | None, LightLine] = {}
    done = 0
    for name in left[:LOOKED_AT]:
        if done and context.is_time_up:
            break
        try:
            found, is_readable = light_topic(context.store, name), True
        except (StoreError, BeingSearched):
            found, is_readable = LightTopic(name, None, 0), False
        if found.parent is None or context.may_read(found.parent):
            line = lines.setdefault(found.parent, LightLine(parent=found.parent))
            line.count += 1
            line.messages += found.messages
            line.expired += found.is_expired and is_readable
            line.unreadable += not is_readable
            lag = _lag(context, name)
            line.lag = None if lag is None or line.lag is None else line.lag + lag
        done += 1
    return LightAnswer(
        parents=sorted(lines.values(), key=lambda line: line.parent or ""),
        looked_at=done,
        total=len(names),
        cursor=encode_cursor(left[done - 1]) if done < len(left) else None,
    )


def _lag(context: RequestContext, topic: str) -> int | None:
    """Count the messages that all groups together have not consumed in a light topic; None if that is not known."""
    lag = 0
    try:
        for group in context.service.offsets.groups_of(topic):
            behind = group_progress(context, group, topic).lag
            if behind is None:
                return None
            lag += behind
    except RocketLensError:
        return None
    return lag
