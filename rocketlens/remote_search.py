"""A search by content of a topic over the network: its queues are pulled to their end and their messages looked at."""

import re
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker.cluster.client import Client, ClientError, PullAnswer, QueueQuestion
from broker.endpoint import Endpoint
from protocol.errors import ConfigError, StoreError
from protocol.message import Message, decode_messages
from protocol.system_topics import queue_offset_in
from storage.search.matcher import Matcher, Unreadable
from storage.search.progress import ProgressReport
from storage.search.step import Step

MOST_AT_ONCE: Final = 32
CURSOR: Final = re.compile(r"queue ([0-9]{1,10}) offset ([0-9]{1,19})", re.ASCII)
MOST_NAMED: Final = 5
"""Messages that could not be decided about, which are named one by one."""


def parse_cursor(text: str | None) -> tuple[int, int]:
    """Queue id and queue offset where a search goes on; raises ConfigError for what is no cursor of such a search."""
    if text is None:
        return 0, 0
    found = CURSOR.fullmatch(text)
    if found is None:
        raise ConfigError(f"the cursor {text[:80]!r} is none of a search over the network")
    return int(found[1]), int(found[2])


@dataclass(slots=True)
class RemoteSearch:
    """One search under way; `begin` is a queue id and a queue offset of it."""

    client: Client
    server: Endpoint
    topic: str
    queues: Sequence[int]
    matcher: Matcher
    begin: tuple[int, int]
    limit: int | None
    group: str
    _started: float = field(default_factory=time.monotonic)
    _found: int = 0
    _bytes: int = 0
    _messages: int = 0
    _left: int = 0
    _undecided: int = 0
    _named: list[str] = field(default_factory=list)

    async def steps(self) -> AsyncIterator[Step]:
        """What each pull brought; the last step says what could not be searched."""
        for queue_id in self.queues:
            if queue_id >= self.begin[0]:
                async for messages, offset in self._pulls(queue_id):
                    is_last = self.limit is not None and self._found >= self.limit
                    yield self._step(messages, f"queue {queue_id} offset {offset}", is_last=is_last)
                    if is_last:
                        return
        yield self._step([], None, is_last=True)

    async def _pulls(self, queue_id: int) -> AsyncIterator[tuple[list[Message], int]]:
        """The messages of one queue that match, pull by pull, and the queue offset behind them."""
        offset = await self._first_offset(queue_id)
        end = offset + 1
        while offset < end:
            question = QueueQuestion(self.topic, queue_id, offset, MOST_AT_ONCE, self.group)
            answer = await self.client.pull(self.server, question)
            end = answer.max_offset
            if not offset < answer.next_offset <= end and offset < end:
                raise ClientError(f"{self.server} leads from queue offset {offset} to {answer.next_offset}")
            self._left = max(end - answer.next_offset, 0)
            messages = self._matches(answer, offset)
            offset = answer.next_offset
            if self.limit is not None and self._found + len(messages) > self.limit:
                messages = messages[: self.limit - self._found]
                offset = queue_offset_in(messages[-1], self.topic) + 1
            self._found += len(messages)
            yield messages, offset

    async def _first_offset(self, queue_id: int) -> int:
        """Where a queue's messages of the wanted time begin, or where the cursor says."""
        if queue_id == self.begin[0] and self.begin[1]:
            return self.begin[1]
        earliest = self.matcher.criteria.begin_timestamp
        return await self.client.offset_at(self.server, self.topic, queue_id, earliest) if earliest > 0 else 0

    def _matches(self, answer: PullAnswer, offset: int) -> list[Message]:
        found: list[Message] = []
        try:
            for message in decode_messages(answer.records):
                self._bytes += message.total_size
                self._messages += 1
                found += self._decide(message, offset)
        except StoreError as error:
            raise ClientError(f"{self.server} answered bytes that are not messages: {error}") from error
        return found

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
        total = self._bytes + int(average * self._left)
        progress = ProgressReport(self._bytes, total, self._found, time.monotonic() - self._started)
        return Step(tuple(messages), progress, cursor, is_last, self._notes() if is_last else ())

    def _notes(self) -> tuple[str, ...]:
        if not self._undecided:
            return ()
        more = self._undecided - len(self._named)
        named = ", ".join(self._named) + (f" and {more} more" if more else "")
        why = "whose body cannot be decompressed or taken apart, or holds a pattern up without end,"
        return (f"messages {why} are left out: {named}",)
