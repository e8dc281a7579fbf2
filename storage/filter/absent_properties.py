"""Why a SQL92 expression chose nothing: often a property that it asks for is one that no message has."""

from collections.abc import Iterable

from protocol.message import Message
from storage.amounts import counted
from storage.filter.sql92 import parse


def properties_in(sql: str) -> set[str]:
    """The names of the properties that an expression asks for."""
    return set(parse(sql).names)


def named_properties(properties: Iterable[str]) -> str:
    """Properties by name, as in a sentence."""
    names = sorted(properties)
    return f"{'property' if len(names) == 1 else 'properties'} {', '.join(names)}"


def note_of_some(messages: Iterable[Message], sql: str) -> str:
    """Say which properties of an expression none of some messages has; "" where each is in some message."""
    some = list(messages)
    missing = properties_in(sql).difference(*(message.properties for message in some))
    if not (some and missing):
        return ""
    return f"none of the first {counted(len(some), 'message')} there has {named_properties(missing)}"
