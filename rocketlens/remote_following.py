"""The messages that come to a topic of a broker that runs, as they come."""

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

from broker.cluster.client import Client, PullAnswer, QueueQuestion
from broker.endpoint import Endpoint
from protocol.message import Message, decode_messages
from rocketlens.arguments import MOST_PULLED, Subscription, pulled
from rocketlens.following import stored_order

WATCH_SECONDS: Final = 1.0
"""Seconds between two looks at which queues the topic has."""

SUSPENDED_MILLISECONDS: Final = 5000
"""How long the broker is to hold a pull for which there is no message yet."""


@dataclass(slots=True)
class RemoteFollowing:
    """Follows one topic of a broker: for each of its queues a pull waits there; else as
    :class:`rocketlens.following.StoreFollowing`."""

    client: Client
    server: Endpoint
    topic: str
    places: dict[int, int]
    wanted: Subscription
    group: str

    async def pieces(self) -> AsyncGenerator[list[Message]]:
        """The messages as they come; endless. Raises ClientError where the broker does not answer any more."""
        waiting: dict[asyncio.Task[PullAnswer], int] = {}
        next_watch = 0.0
        try:
            while True:
                if time.monotonic() >= next_watch:
                    known = (await self.client.topic_offsets(self.server, self.topic)).keys()
                    for queue_id in set(known).difference(waiting.values()):
                        self._ask(queue_id, waiting)
                    next_watch = time.monotonic() + WATCH_SECONDS
                done, _ = await asyncio.wait(waiting, timeout=WATCH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                found: list[Message] = []
                for task in done:
                    queue_id, answer = waiting.pop(task), task.result()
                    found += pulled(
                        decode_messages(answer.records), self.topic, self.places.get(queue_id, 0), self.wanted
                    )[0]
                    self.places[queue_id] = answer.next_offset
                    self._ask(queue_id, waiting)
                if found:
                    yield sorted(found, key=stored_order)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    def _ask(self, queue_id: int, waiting: dict[asyncio.Task[PullAnswer], int]) -> None:
        question = QueueQuestion(
            self.topic,
            queue_id,
            self.places.get(queue_id, 0),
            MOST_PULLED,
            self.group,
            self.wanted.text,
            self.wanted.kind,
            SUSPENDED_MILLISECONDS,
        )
        waiting[asyncio.create_task(self.client.pull(self.server, question))] = queue_id
