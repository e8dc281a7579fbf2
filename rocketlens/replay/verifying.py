"""Ask the target for every message that was sent: whether it is there, once, and with the body that it had."""

from collections.abc import Callable
from contextlib import suppress

from broker.cluster.client import ClientError, ResponseError, each_of
from protocol.checksum import body_crc
from protocol.message import Message
from protocol.sending import BUSY
from rocketlens.replay.account import ReplayAccount, SendState, SentMessage, Verification
from rocketlens.replay.sending import Patience
from rocketlens.replay.target import ASKED_AT_ONCE, ReplayTarget


async def verify(
    account: ReplayAccount,
    target: ReplayTarget,
    most_failures: int,
    report: Callable[[int], None],
    should_stop: Callable[[], bool],
) -> str:
    """Note of each message that was sent what the target has of it; `report` gets how many were asked for.

    Why the others could not be asked for, after so many failures in a row; empty where all were.
    """
    account.forget_verified()
    count = 0
    patience = Patience()
    for planned in account.by_topic(SendState.SENT):
        # A copy that the index lacks yet would not be seen.
        with suppress(ClientError):  # asked below, where failures are counted
            await target.catch_up(await target.topic(planned.topic))
    for piece in account.each_sent(SendState.SENT, most=ASKED_AT_ONCE):
        while not should_stop():
            try:
                account.verify(await each_of(piece, lambda sent: _verified(target, sent), ASKED_AT_ONCE))
            except ClientError as error:
                patience.failures += 1
                is_final = isinstance(error, ResponseError) and error.code not in BUSY
                if is_final or patience.failures >= most_failures:
                    return str(error)
                await patience.pause()
            else:
                patience, count = Patience(), count + len(piece)
                report(count)
                break
    return ""


async def _verified(target: ReplayTarget, sent: SentMessage) -> tuple[int, Verification, str]:
    """What the target has of one message, with the ids of all its copies."""
    topic = await target.topic(sent.topic)
    copies = {f"{each.offset_message_id}+{each.queue_offset}": each for each in await target.copies(topic, sent.name)}
    if not copies and sent.sent_id:
        at = await target.at(topic, sent)
        if at is not None:
            copies[sent.sent_id] = at
    ids = " ".join(name.partition("+")[0] for name in copies)
    if not copies:
        return sent.number, Verification.MISSING, ids
    if not all(_is_equal(each, sent) for each in copies.values()):
        return sent.number, Verification.DIFFERENT, ids
    return sent.number, Verification.VERIFIED if len(copies) == 1 else Verification.DOUBLE, ids


def _is_equal(message: Message, sent: SentMessage) -> bool:
    return len(message.stored_body) == sent.size and body_crc(message.stored_body) == sent.body_crc
