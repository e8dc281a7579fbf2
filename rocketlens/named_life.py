"""Which message is meant where a life is asked for by a text that is no unique key, but names some as `find` does."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from protocol.question import Answer
from protocol.system_topics import TopicContent, content_of
from storage.amounts import counted

if TYPE_CHECKING:
    from storage.life.message_life import MessageLife


def keys_named(found: Answer) -> tuple[str, ...]:
    """The unique keys of messages that were found, that of the newest first.

    Reports about messages, such as traces, have the keys of those: they come last.
    """
    newest = sorted(
        found,
        key=lambda each: (
            content_of(each.topic) is not TopicContent.REPORTS,
            each.born_timestamp,
            each.physical_offset,
        ),
        reverse=True,
    )
    return tuple(dict.fromkeys(each.unique_key for each in newest if each.unique_key))


def life_of(text: str, look: Callable[[str], "MessageLife"], find: Callable[[], Answer]) -> "MessageLife":
    """The life of the message that a text names: by a look at its unique key, else at that of the newest one found."""
    life = look(text)
    if life.events:
        return life
    found = find()
    if named := keys_named(found):
        return replace(look(named[0]), named=named)
    return with_reason(life, found)


def with_reason(life: "MessageLife", found: Answer) -> "MessageLife":
    """A life of nothing, which says why: nothing is named so, or nothing that has a unique key."""
    messages = counted(len(found), "message is", "messages are")
    reported = f"something may be missing: {life.incomplete}"
    notes = tuple(dict.fromkeys((*life.notes, *(each for each in found.notes if each != reported))))
    return replace(
        life, notes=notes, reason=found.reason or f"{messages} named so, without a unique key, by which a life is found"
    )
