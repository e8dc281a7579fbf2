"""Ask the target for every message that was sent: whether it is there, once, and with the body that it had."""

from collections.abc import Callable

from broker.cluster.client import each_of
from protocol.checksum import body_crc
from protocol.message import Message
from rocketlens.replay.account import ReplayAccount, SendState, SentMessage, Verification
from rocketlens.replay.target import ASKED_AT_ONCE, ReplayTarget


async def verify(
    account: ReplayAccount, target: ReplayTarget, report: Callable[[int], None], should_stop: Callable[[], bool]
) -> None:
    """Note of each message that was sent what the target has of it; `report` gets how many were asked for."""
    count = 0
    for planned in account.by_topic(SendState.SENT):
        # A copy that the index lacks yet would not be seen.
        await target.catch_up(await target.topic(planned.topic))
    for piece in account.each_sent(SendState.SENT, most=ASKED_AT_ONCE):
        if should_stop():
            return
        account.verify(await each_of(piece, lambda sent: _verified(target, sent), ASKED_AT_ONCE))
        count += len(piece)
        report(count)


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
