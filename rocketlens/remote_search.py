"""A search by content of a topic over the network: its queues are pulled to their end and their messages looked at.

They are merged by physical offset, the order in which a search of the store itself finds them: that queue is pulled
next whose messages are the furthest behind, so each is ahead of the others by one pull at most.
"""

import heapq
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.cluster.client import Client, ClientError, PullAnswer, QueueQuestion
from broker.endpoint import Endpoint
from protocol.errors import ConfigError, StoreError
from protocol.message import Message, decode_messages
from protocol.question import LARGEST
from protocol.system_topics import queue_offset_in
from storage.amounts import counted
from storage.search.matcher import Matcher, Unreadable
from storage.search.progress import ProgressReport
from storage.search.step import Step

MOST_AT_ONCE: Final = 32
CURSOR: Final = re.compile(r"[0-9]{1,10}:[0-9]{1,19}(,[0-9]{1,10}:[0-9]{1,19})*", re.ASCII)
MOST_NAMED: Final = 5
"""Undecided messages, and places of lost ones, that are listed one by one."""


def parse_cursor(text: str | None) -> dict[int, int]:
    """Read the queue offsets of a cursor, by queue id; raises ConfigError if it is not one of such a search."""
    if text is None:
        return {}
    if CURSOR.fullmatch(text) is None:
        raise ConfigError(f"cursor {text[:80]!r} is not valid for a search over the network")
    places = {int(queue_id): int(offset) for queue_id, _, offset in (each.partition(":") for each in text.split(","))}
    if max(places.values()) > LARGEST:
        raise ConfigError(f"cursor {text[:80]!r} is not valid for a search over the network")
    return places


class _Found(NamedTuple):
    """A message that matches, in the order of the log; those of a batch are in one place of it.

    `number` counts them: damaged units may lead to one message twice.
    """

    physical_offset: int
    queue_id: int
    queue_offset: int
    number: int
    message: Message


@dataclass(slots=True)
class RemoteSearch:
    """One search under way; `begin` are queue offsets by queue id."""

    client: Client
    server: Endpoint
    topic: str
    queues: Sequence[int]
    matcher: Matcher
    begin: Mapping[int, int]
    limit: int | None
    group: str
    _started: float = field(default_factory=time.monotonic)
    _found: int = 0
    _bytes: int = 0
    _messages: int = 0
    _left: dict[int, int] = field(default_factory=dict)
    _matched: int = 0
    _ahead: list[_Found] = field(default_factory=list)
    _places: dict[int, int] = field(default_factory=dict)
    _undecided: int = 0
    _named: list[str] = field(default_factory=list)
    _lost: list[str] = field(default_factory=list)

    async def steps(self) -> AsyncIterator[Step]:
        """What each pull brought; the last step says what could not be searched."""
        behind = [(-1, queue_id) for queue_id in self.queues]
        while behind:
            _, queue_id = heapq.heappop(behind)
            reached = await self._pull(queue_id)
            if reached is not None:
                heapq.heappush(behind, (reached, queue_id))
            messages = self._passed(behind[0][0] if behind else None)
            is_last = self.limit is not None and self._found >= self.limit
            yield self._step(messages, self._cursor(), is_last=is_last)
            if is_last:
                return
        yield self._step([], None, is_last=True)

    async def _pull(self, queue_id: int) -> int | None:
        """Look at the next messages of a queue; the physical offset that it is read to, None at its end."""
        if queue_id not in self._places:
            self._places[queue_id] = await self._first_offset(queue_id)
        offset = self._places[queue_id]
        question = QueueQuestion(self.topic, queue_id, offset, MOST_AT_ONCE, self.group)
        answer = await self.client.pull(self.server, question)
        end = answer.max_offset
        if offset >= end:
            self._left.pop(queue_id, None)
            return None
        if not offset < answer.next_offset <= end:
            raise ClientError(f"{self.server} leads from queue offset {offset} to {answer.next_offset}")
        if answer.lost:
            self._lost.append(f"queue {queue_id}: {answer.lost}")
        reached = self._look_at(answer, queue_id, offset)
        self._places[queue_id], self._left[queue_id] = answer.next_offset, end - answer.next_offset
        return reached if answer.next_offset < end else None

    def _passed(self, reached: int | None) -> list[Message]:
        """Take the messages that no queue may have another one before, which all are read to a physical offset."""
        taken: list[Message] = []
        while self._ahead and (reached is None or self._ahead[0].physical_offset <= reached):
            if self.limit is not None and self._found >= self.limit:
                break
            taken.append(heapq.heappop(self._ahead).message)
            self._found += 1
        return taken

    def _cursor(self) -> str:
        """Where to go on in each queue behind what was given."""
        places = dict(self._places)
        for each in self._ahead:
            places[each.queue_id] = min(places[each.queue_id], each.queue_offset)
        return ",".join(f"{queue_id}:{offset}" for queue_id, offset in sorted(places.items()))

    async def _first_offset(self, queue_id: int) -> int:
        """Where a queue's messages of the wanted time begin, or where the cursor says."""
        if queue_id in self.begin:
            return self.begin[queue_id]
        earliest = self.matcher.criteria.begin_timestamp
        return await self.client.offset_at(self.server, self.topic, queue_id, earliest) if earliest > 0 else 0

    def _look_at(self, answer: PullAnswer, queue_id: int, offset: int) -> int:
        """Keep what matches of a pull; the physical offset of its last message, -1 for none."""
        reached = -1
        try:
            for message in decode_messages(answer.records):
                self._bytes += message.total_size
                self._messages += 1
                reached = message.physical_offset
                for each in self._decide(message, offset):
                    place = queue_offset_in(each, self.topic)
                    self._matched += 1
                    heapq.heappush(self._ahead, _Found(each.physical_offset, queue_id, place, self._matched, each))
        except StoreError as error:
            raise ClientError(f"{self.server} answered bytes that are not messages: {error}") from error
        return reached

    def _decide(self, message: Message, offset: int) -> list[Message]:
        try:
            return [each for each in self.matcher.matches_of(message) if queue_offset_in(each, self.topic) >= offset]
        except Unreadable:
            self._undecided += 1
            if len(self._named) < MOST_NAMED:
                self._named.append(message.offset_message_id)
            return []

    def _step(self, messages: Sequence[Message], cursor: str | None, *, is_last: bool = False) -> Step:
        average = self._bytes / self._messages if self._messages else 0.0
        total = self._bytes + int(average * sum(self._left.values()))
        progress = ProgressReport(self._bytes, total, self._found, time.monotonic() - self._started)
        return Step(tuple(messages), progress, cursor, is_last, self._notes() if is_last else ())

    def _notes(self) -> tuple[str, ...]:
        lost = list(self._lost[:MOST_NAMED])
        if len(self._lost) > MOST_NAMED:
            lost.append(f"at {counted(len(self._lost) - MOST_NAMED, 'more place')} messages are lost")
        if not self._undecided:
            return tuple(lost)
        more = self._undecided - len(self._named)
        named = ", ".join(self._named) + (f" and {more} more" if more else "")
        why = "whose body cannot be decompressed or taken apart, or holds a pattern up without end,"
        return (*lost, f"messages {why} are left out: {named}")
