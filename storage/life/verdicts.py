"""What consumer groups did with a message: with each of its records, and with the message in all.

That a group's offset is beyond a record does not say that the group consumed it. Its filter may have skipped it; a
group that pops is beyond a message before it acknowledges it. So what else is known is held against the offset: the
subscription, the broker's notes of pops, and the copies that were stored after a failure.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from protocol.errors import FilterSyntaxError
from protocol.message import Message
from protocol.properties import RETRY_TOPIC
from protocol.system_topics import RETRY_PREFIX, Origin, Stage, stage_of
from storage.filter.expression import SQL92_TYPE
from storage.filter.sql92 import parse
from storage.filter.tag import is_tag_type, parse_tag_expression
from storage.layout.store_config import StoreConfig

LONGEST_FILTER: Final = 64 * 1024
"""Characters of a filter that is applied."""


class Passage(Enum):
    """How a group has dealt with one record, as far as that is known."""

    AHEAD = "ahead"
    """The group has not come to it."""
    BEYOND = "beyond"
    """Its offset is beyond it, and that is all."""
    CONSUMED = "consumed"
    """Its offset is beyond it, and no filter kept it from the group."""
    ACKNOWLEDGED = "acknowledged"
    """The group popped and acknowledged it."""
    SKIPPED = "skipped"
    """The group's filter does not let it through."""
    POPPED = "popped"
    """The group popped it, and has not acknowledged it."""
    CAME_BACK = "came back"
    """The group popped it and did not acknowledge it: a copy was stored for it."""
    UNKNOWN = "unknown"
    """The group is beyond it by popping it; whether it acknowledged it is not known."""


_WORDS: Final = {
    Passage.BEYOND: "is beyond it",
    Passage.CONSUMED: "has passed",
    Passage.ACKNOWLEDGED: "has passed (acknowledged)",
    Passage.SKIPPED: "skipped by its filter",
    Passage.POPPED: "popped it, not acknowledged",
    Passage.CAME_BACK: "popped it, not acknowledged in time",
    Passage.UNKNOWN: "POP: read; whether it was acknowledged is not known",
}


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far a consumer group has come in the queue of a record, and what became of the record there."""

    group: str
    next_offset: int
    """The queue offset that the group reads next."""
    has_passed: bool
    """Whether the group is beyond the record, and is not known to have it unacknowledged."""
    passage: Passage
    until_timestamp: int | None = None
    """When a record that is popped comes back, in ms."""

    @property
    def text(self) -> str:
        """The verdict in words that stand behind the name of the group."""
        return _WORDS.get(self.passage, f"is at {self.next_offset}")


class Ending(Enum):
    """How a message ended for a consumer group, or how far it is."""

    NOT_YET = "not yet"
    """The group has not come to it."""
    PASSED = "passed"
    """The group has passed it, or its last retry."""
    SKIPPED = "skipped"
    """The group's filter does not let it through."""
    POPPED = "popped"
    """The group popped it and has not acknowledged it: it comes back."""
    UNKNOWN = "unknown"
    """The group popped it; whether it acknowledged it is not known."""
    RETRYING = "retrying"
    """The group failed to consume it, and it waits to be consumed again."""
    GAVE_UP = "gave up"
    """The group failed to consume it to the end, and it lies among the group's dead letters."""


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """What all records of a message together say of one group. `retries` counts how often it was delivered again.

    `passage` is what is known of the group and the record that decides. Of several messages that are named alike
    `number` says which one is meant, from 1 on.
    """

    group: str
    ending: Ending
    retries: int = 0
    passage: Passage | None = None
    until_timestamp: int | None = None
    """When a message that is popped comes back, in ms."""
    number: int = 1

    @property
    def is_certain(self) -> bool:
        """Whether more than the group's offset says so."""
        return self.ending is not Ending.PASSED or self.passage is not Passage.BEYOND

    @property
    def text(self) -> str:
        """The verdict in words that stand behind the name of the group."""
        at = f" at retry {self.retries}" if self.retries else ""
        if self.ending is Ending.GAVE_UP:
            return f"gave up after {self.retries} {'retry' if self.retries == 1 else 'retries'} → DLQ"
        if self.ending is Ending.RETRYING:
            return f"failed, retry {self.retries} waits"
        if self.ending is Ending.POPPED:
            return f"popped it{at}, not acknowledged"
        if self.ending is Ending.UNKNOWN:
            return f"POP: read{at}; whether it was acknowledged is not known"
        if self.ending is Ending.SKIPPED:
            return "skipped by its filter"
        if self.ending is Ending.PASSED:
            if self.passage is Passage.BEYOND:
                return "is beyond it"
            return f"has passed it{at}{' (acknowledged)' if self.passage is Passage.ACKNOWLEDGED else ''}"
        return "not yet"


@dataclass(frozen=True, slots=True)
class KnownFilter:
    """What a group subscribes to: an expression of a type, registered at a time (ms) and dropped at another one.

    None for a time that is not known, or has not come.
    """

    expression: str | None
    expression_type: str | None
    since_timestamp: int | None = None
    until_timestamp: int | None = None

    def lets_through(self, message: Message) -> bool | None:
        """Whether a message passes; None where that is not known, as for one that was stored at another time."""
        stored = message.store_timestamp
        if self.since_timestamp is not None and stored < self.since_timestamp:
            return None
        if self.until_timestamp is not None and stored > self.until_timestamp:
            return None
        if len(self.expression or "") > LONGEST_FILTER:
            return None
        try:
            if is_tag_type(self.expression_type):
                tags = parse_tag_expression(self.expression, self.expression_type)
                return tags.matches_everything or message.tags in tags.tags
            if self.expression_type == SQL92_TYPE and self.expression:
                return parse(self.expression).delivers(message.properties_bytes)
        except FilterSyntaxError:
            return None
        return None


Filters: TypeAlias = Callable[[str, str], KnownFilter | None]
"""Gives what a group subscribes to, by group and topic; None where that is not known."""


def registered_filters(config: StoreConfig) -> Filters:
    """The filters that a store's broker had registered when it was written: expressions, not tags."""

    def known(group: str, topic: str) -> KnownFilter | None:
        found = config.filters.get(topic, {}).get(group)
        if found is None:
            return None
        return KnownFilter(found.expression, found.expression_type, found.born_time or None, found.dead_time or None)

    return known


def group_verdicts(
    records: Iterable[tuple[Message, Origin | None, tuple[GroupProgress, ...]]],
) -> tuple[GroupVerdict, ...]:
    """The verdict of every group that met a message, by name; of its records what was stored last decides."""
    found: dict[str, GroupVerdict] = {}
    for message, origin, groups in records:
        failure = verdict_of_failure(message, origin, groups)
        if failure is not None:
            found[failure.group] = failure
        for each in groups:
            if failure is not None and each.group == failure.group:
                continue
            known = found.get(each.group)
            if not each.has_passed or known is None or known.ending in (Ending.GAVE_UP, Ending.SKIPPED):
                found[each.group] = _verdict(each)
    return tuple(found[group] for group in sorted(found))


_ENDINGS: Final = {
    Passage.AHEAD: Ending.NOT_YET,
    Passage.SKIPPED: Ending.SKIPPED,
    Passage.POPPED: Ending.POPPED,
    Passage.UNKNOWN: Ending.UNKNOWN,
}


def _verdict(progress: GroupProgress, retries: int = 0) -> GroupVerdict:
    ending = _ENDINGS.get(progress.passage, Ending.PASSED)
    return GroupVerdict(progress.group, ending, retries, progress.passage, progress.until_timestamp)


def verdict_of_failure(
    message: Message, origin: Origin | None, groups: tuple[GroupProgress, ...] = ()
) -> GroupVerdict | None:
    """What a copy says that is there because a group failed to consume the message; None for other records."""
    group, times = origin.group if origin else None, message.reconsume_times
    if group is None:
        return None
    if stage_of(message.topic) is Stage.DEAD_LETTER:
        # The broker has counted the delivery that failed last as well.
        return GroupVerdict(group, Ending.GAVE_UP, max(times - (2 if is_withheld(message) else 1), 0))
    own = next((each for each in groups if each.group == group), None)
    if stage_of(message.topic) is Stage.RETRY and own is not None and own.passage is not Passage.AHEAD:
        return _verdict(own, times)
    return GroupVerdict(group, Ending.RETRYING, times)


def is_withheld(dead_letter: Message) -> bool:
    """Whether a dead letter was made of a retry of a popped message that no client got.

    A proxy pops a message once more than its group may try it, and sends it to the dead letters itself
    (PopMessageResultFilterImpl).
    """
    retry_topic = dead_letter.properties.get(RETRY_TOPIC, "")
    return retry_topic.startswith(RETRY_PREFIX) and dead_letter.reconsume_times > 1
