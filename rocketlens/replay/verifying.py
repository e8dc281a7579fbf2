"""Ask the target for every message that was sent: whether it is there, once, and with the body that it had.

The queues that were sent to are read from where they ended before to where they end now. What was not seen there is
asked for by its key: of a queue that retention has shortened, or that may not be read.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from broker.cluster.client import ClientError, QueueQuestion, ResponseError, each_of
from broker.endpoint import Endpoint
from protocol.checksum import body_crc
from protocol.errors import StoreError
from protocol.message import Message, decode_message
from protocol.message_layout import locate
from protocol.question import taken_apart
from protocol.sys_flag import has_inner_messages
from rocketlens.replay.account import ReplayAccount, SendState, SentMessage, Verification
from rocketlens.replay.resent import ORIGIN
from rocketlens.replay.sending import Patience, is_final
from rocketlens.replay.target import ASKED_AT_ONCE, ReplayTarget

Answer = TypeVar("Answer")

MOST_PULLED: Final = 256
"""Messages that are asked for at once; a broker gives as many as it is configured for."""

QUEUES_AT_ONCE: Final = 8
"""Queues that are read at the same time."""

_ORIGIN: Final = ORIGIN.encode() + b"\x01"


@dataclass
class ReplayVerifying:
    """Notes of each message that was sent what the target has of it; `report` gets how many were asked for.

    After `most_failures` of one request in a row nothing more is asked.
    """

    account: ReplayAccount
    target: ReplayTarget
    most_failures: int
    report: Callable[[int], None]
    should_stop: Callable[[], bool]
    count: int = 0

    async def run(self) -> str:
        """Ask for all; why the others could not be asked for, empty where all were."""
        self.account.forget_verified()
        try:
            for planned in self.account.by_topic(SendState.SENT):
                await self._see(planned.topic)
            for piece in self.account.each_sent(SendState.SENT, most=ASKED_AT_ONCE, is_unverified=True):
                if self.should_stop():
                    break
                self.account.verify(await self._patiently(partial(each_of, piece, self._asked_by_key, ASKED_AT_ONCE)))
                self._tell(len(piece))
        except ClientError as error:
            return str(error)
        return ""

    def _tell(self, count: int) -> None:
        self.count += count
        self.report(self.count)

    async def _patiently(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer to a question that is asked again while the target is away, or busy; raises `ClientError`."""
        patience = Patience()

        def gives_up(error: ClientError) -> bool:
            return is_final(error) or patience.failures >= self.most_failures or self.should_stop()

        return await patience.answer(ask, gives_up)

    # -- by reading queues ------------------------------------------------------------------------------------------

    async def _see(self, name: str) -> None:
        """Read the queues of a topic from where they ended before this run sent to them."""
        topic = await self._patiently(lambda: self.target.topic(name))
        # What the queues, or the index, lack yet would not be seen.
        with suppress(ClientError):  # asked below, where failures are counted
            await self.target.catch_up(topic)
        before = self.account.end_of_queues(name)
        if not before:
            return
        try:
            ends = await self._patiently(lambda: self.target.ends(topic))
        except ResponseError:  # not for this account
            return
        self.account.find_by_name()
        brokers = topic.brokers
        queues = [
            (brokers[broker], QueueQuestion(name, queue_id, before.get((broker, queue_id), 0), MOST_PULLED), end)
            for (broker, queue_id), end in ends.items()
        ]
        problems = await each_of(queues, lambda queue: self._see_queue(*queue), QUEUES_AT_ONCE)
        for problem in filter(None, problems):
            raise problem

    async def _see_queue(self, endpoint: Endpoint, question: QueueQuestion, end: int) -> ClientError | None:
        """Note what is in a queue up to an offset; what keeps the target from answering, None where nothing does."""
        offset = question.queue_offset
        while offset < end and not self.should_stop():
            from_here = replace(question, queue_offset=offset)
            try:
                answer = await self._patiently(partial(self.target.client.pull, endpoint, from_here))
            except ResponseError:
                return None  # it may not be read
            except ClientError as error:
                return error
            if answer.next_offset <= offset:
                return None
            with suppress(StoreError):
                self._tell(self.account.see(question.topic, _seen(answer.records, offset)))
            offset = answer.next_offset
        return None

    # -- by key -----------------------------------------------------------------------------------------------------

    async def _asked_by_key(self, sent: SentMessage) -> tuple[int, Verification, str]:
        """What the target has of one message, with the ids of all its copies."""
        topic = await self.target.topic(sent.topic)
        copies = {
            f"{each.offset_message_id}+{each.queue_offset}": each for each in await self.target.copies(topic, sent.name)
        }
        if not copies and sent.sent_id:
            at = await self.target.at(topic, sent)
            if at is not None:
                copies[sent.sent_id] = at
        ids = " ".join(name.partition("+")[0] for name in copies)
        if not copies:
            return sent.number, Verification.MISSING, ids
        if not all(_is_equal(each, sent) for each in copies.values()):
            return sent.number, Verification.DIFFERENT, ids
        return sent.number, Verification.VERIFIED if len(copies) == 1 else Verification.DOUBLE, ids


def _seen(records: bytes, first: int) -> Iterator[tuple[str, str, int, int, str]]:
    """Unique key, origin, bytes and CRC of the body, and id of what a replay sent, from a queue offset on.

    Of other messages only the bytes are looked through. Raises `StoreError` for bytes that are no records.
    """
    view, position = memoryview(records), 0
    while position < len(records):
        places = locate(view[position:])
        end = position + places.total_size
        # Of a batch the properties may be compressed.
        is_batch = has_inner_messages(places.fixed.unpack_from(view, position)[7])
        if is_batch or records.find(_ORIGIN, position, end) >= 0:
            for message in taken_apart(decode_message(view[position:end], check_crc=False)):
                origin, key = message.properties.get(ORIGIN), message.unique_key
                if origin and key and message.queue_offset >= first:
                    body = message.stored_body
                    yield key, origin, len(body), body_crc(body), message.offset_message_id
        position = end


def _is_equal(message: Message, sent: SentMessage) -> bool:
    return len(message.stored_body) == sent.size and body_crc(message.stored_body) == sent.body_crc
