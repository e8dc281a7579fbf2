"""What would be sent and what would not: each message that is chosen as a row of the account, judged before it goes."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from broker.cluster.client import ClientError, ResponseError, each_of
from protocol.checksum import body_crc
from protocol.properties import UNIQ_KEY, property_value
from protocol.sending import OutgoingMessage
from protocol.system_topics import RETRY_PREFIX, Stage, stage_of
from rocketlens.replay.account import AccountRow, ReplayAccount, ReplayWay, ReplayWays, SendState, SentName, TopicSum
from rocketlens.replay.choice import Chosen, Piece, PlainRun, ReplayChoice, runs_of
from rocketlens.replay.resent import ORIGIN, NotResent, ResendManner, cluster_text, plain_rules, resent, source_queue
from rocketlens.replay.target import ASKED_AT_ONCE, ReplayTarget, TargetTopic
from storage.kernels.resending import ResendRules

Item = TypeVar("Item")

FEW_TOPICS: Final = 8
"""Topics for each of which all messages are looked through, rather than find them by an index."""

SENT_BEFORE: Final = "an earlier run has sent it; the account has its id there"


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The plan of a replay: messages by topic with the state of the target, refusals, and texts that name nothing."""

    topics: Sequence[tuple[TopicSum, TargetTopic]]
    refused: Sequence[tuple[str, int, str]]
    """Reasons, each with the number of messages and the place of the first one."""
    missing: Sequence[str]
    notes: Sequence[str]

    @property
    def messages(self) -> int:
        """How many messages are to be sent."""
        return sum(planned.messages for planned, _ in self.topics)


def row_of(chosen: Chosen, manner: ResendManner, ways: ReplayWays) -> tuple[AccountRow, OutgoingMessage | None]:
    """The row of a message that is chosen, and what is sent of it: planned, or refused with the reason."""
    message, state, reason = chosen.message, SendState.PLANNED, chosen.refusal
    outgoing: OutgoingMessage | None = None
    key, topic, origin, crc, size = message.unique_key or "", "", "", 0, len(message.stored_body)
    if not reason:
        try:
            outgoing = resent(message, manner)
        except NotResent as error:
            reason = str(error)
        else:
            topic, crc = outgoing.topic, body_crc(outgoing.body)
            key = property_value(outgoing.properties, UNIQ_KEY) or ""
            origin = property_value(outgoing.properties, ORIGIN) or ""
    if reason:
        state = SendState.REFUSED
    row = AccountRow(
        ways.number(ReplayWay(topic, str(message.store_host), source_queue(message))),
        key,
        message.physical_offset,
        message.queue_offset,
        crc,
        message.born_timestamp,
        message.store_timestamp,
        size,
        chosen.place,
        message.unique_key or key,
        origin,
        stage_of(message.topic) is not Stage.DELIVERED,
        not topic.startswith(RETRY_PREFIX),
        state,
        reason,
    )
    return row, outgoing


def _note(account: ReplayAccount, piece: Piece, manner: ResendManner, rules: ResendRules | None) -> None:
    """Note the messages of a piece in their order."""
    for run in runs_of(piece, rules):
        if isinstance(run, PlainRun):
            account.plan_plain(run.rows())
        else:
            account.plan([row_of(each, manner, account.ways)[0] for each in run])


def rules_of(order: str, manner: ResendManner, account: ReplayAccount) -> ResendRules | None:
    """The rules by which messages are only copied, where that serves an order: what shares a key is not looked at."""
    return None if order == "key" else plain_rules(manner, account.ways)


async def make_plan(
    choice: ReplayChoice,
    manner: ResendManner,
    target: ReplayTarget,
    account: ReplayAccount,
    order: str,
    report: Callable[[int], None],
    should_stop: Callable[[], bool],
) -> Sequence[str] | None:
    """Note all messages that are chosen, judged; what of them is not known, or None where it was stopped.

    `report` gets how many there are.
    """
    account.forget(keeps_run=True)
    account.say(cluster=cluster_text(manner), order=order)
    count = 0
    if not choice.is_distinct:
        account.keep_distinct()
    rules = rules_of(order, manner, account)
    async for piece in in_a_thread(choice.pieces(should_stop)):
        _note(account, piece, manner, rules)
        count += len(piece)
        report(count)
        if should_stop():
            return None
    account.name_nothing(choice.missing)
    account.refuse_second_copies()
    notes = [*choice.notes, *await _judge(account, target, account.topics(), should_stop)]
    return None if should_stop() else notes


async def plan_closed(account: ReplayAccount, target: ReplayTarget, should_stop: Callable[[], bool]) -> Sequence[str]:
    """Judge those messages again whose topics were closed when the plan was made, and are open; what is not known."""
    notes: list[str] = []
    for name in account.closed_topics():
        if should_stop() or (await target.topic(name)).problem:
            continue
        account.plan_closed(name)
        notes += await _judge(account, target, [name], should_stop)
        if not should_stop():
            account.open_topic(name)
    return notes


async def _judge(
    account: ReplayAccount, target: ReplayTarget, topics: Sequence[str], should_stop: Callable[[], bool]
) -> list[str]:
    """Refuse what the target does not take of what is planned for some topics, or has already; what is not known."""
    asked: dict[str, TargetTopic] = {}
    notes: list[str] = []
    if len(topics) > FEW_TOPICS:
        account.find_by_way()
    for name in topics:
        topic = await target.topic(name)
        if topic.problem:
            account.close_topic(name, topic.problem)
            continue
        limit = topic.size_limit
        account.refuse_topic(name, f"its body is larger than the {limit:,} bytes that the target takes", limit)
        if topic.messages:
            try:
                await _catch_up(target, topic)
                await target.copies(topic, SentName("-", ""))
            except ResponseError as error:
                notes.append(f"what earlier runs have sent to topic {topic.name} is not known: {error}")
            else:
                asked[topic.name] = topic
    if asked:
        await _refuse_sent_before(account, asked, target, should_stop)
    return notes


async def _refuse_sent_before(
    account: ReplayAccount, topics: Mapping[str, TargetTopic], target: ReplayTarget, should_stop: Callable[[], bool]
) -> None:
    """Refuse what an earlier run has sent to some topics, whose index is up to date."""
    for piece in account.each_sent(SendState.PLANNED):
        if should_stop():
            return
        for name in topics.keys() & {each.topic for each in piece}:
            mine = [each for each in piece if each.topic == name]
            ids = zip(mine, await _ids_there(target, topics[name], [each.name for each in mine]), strict=True)
            account.refuse_sent(SENT_BEFORE, ((each.number, known) for each, known in ids if known))


async def plan_of(account: ReplayAccount, target: ReplayTarget, notes: Iterable[str]) -> ReplayPlan:
    """The plan that an account holds."""
    topics = [(planned, await target.topic(planned.topic)) for planned in account.by_topic(SendState.PLANNED)]
    facts = [note for _, topic in topics for note in topic.notes]
    return ReplayPlan(
        topics,
        account.reasons(SendState.REFUSED),
        account.named_nothing(),
        tuple(dict.fromkeys((*notes, *facts))),
    )


async def sent_already(target: ReplayTarget, topic: TargetTopic, sent: Sequence[SentName]) -> list[str]:
    """The ids at the target of messages of a topic that may have been sent, empty for those that it does not have.

    Raises `ClientError` where it cannot be asked, or its index does not come to the end of its log.
    """
    await _catch_up(target, topic)
    return await _ids_there(target, topic, sent)


async def _catch_up(target: ReplayTarget, topic: TargetTopic) -> None:
    if not await target.catch_up(topic):
        raise ClientError(f"the index of a broker of topic {topic.name} lags behind its log")


async def _ids_there(target: ReplayTarget, topic: TargetTopic, sent: Sequence[SentName]) -> list[str]:
    found = await each_of(sent, lambda name: target.copies(topic, name), ASKED_AT_ONCE)
    return [copies[0].offset_message_id if copies else "" for copies in found]


async def in_a_thread(pieces: Iterator[Item]) -> AsyncIterator[Item]:
    """The items of an iterator that blocks, each made by a thread while the one before is worked on."""
    loop = asyncio.get_running_loop()

    def following() -> list[Item]:
        return list(itertools.islice(pieces, 1))

    coming = loop.run_in_executor(None, following)
    while made := await coming:
        coming = loop.run_in_executor(None, following)
        yield made[0]
