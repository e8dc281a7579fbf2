"""Pull messages of one queue from an offset on, filtered by a subscription.

Statuses and codes are a broker's (store-format §5.4, remoting-protocol §3.4), with two differences (remoting-protocol
§3.2, §9). A consumer that polls outside of a queue's range gets *no match* with an offset in the range, instead of
*illegal offset*, after which it would wait and rebalance. And when no message passes the filter a pull scans on until
one does, since tools treat the first *no match* as the end. A pull that may wait and finds nothing new is held.

Where units of the queue are damaged or lost the log is searched for their messages. Meanwhile a pull returns the
messages before them, or is answered SYSTEM_BUSY. Afterwards it returns those that were found, and the remark says how
many messages are lost.
"""

import weakref
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import msgspec

from broker.config import ServeOptions
from broker.service.broker_service import BrokerService
from broker.service.consumers.client_registry import ConsumerGroup
from broker.service.consumers.group_notices import BROADCASTING
from broker.service.consumers.kept_filters import KeptFilters
from broker.service.consumers.report_limits import check_group
from broker.service.dispatcher import Answer, Request, handles
from broker.service.long_polling import QueueKey
from protocol.bodies import SubscriptionData
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response
from protocol.errors import BeingSearched, FilterSyntaxError
from protocol.headers import PullMessageRequestHeader
from storage.files.waiting import Lookup, Wait
from storage.filter.base import MessageFilter
from storage.filter.tag import is_tag_type
from storage.kernels.pulls import Choice
from storage.layout.store_config import TopicConfig
from storage.query.get_message import GetMessageResult, GetMessageStatus, Lost, get_message_lookup
from storage.store.message_store import Snapshot
from storage.store.topic_catalog import find_topic

COMMIT_OFFSET_FLAG = 1
SUSPEND_FLAG = 2
SUBSCRIPTION_FLAG = 4
"""Bits of sysFlag: commitOffset is valid, the answer may wait for messages, the subscription is in the request."""

DEFAULT_MAX_BYTES = 256 * 1024
"""Bytes of one answer unless the request says otherwise, as in 5.x clients."""

HEADER_RESERVE = 8 * 1024
"""Bytes of a frame that are reserved for its header."""

SCANS_ON_LOOP = 2
"""Scans of 16,000 bytes of queue units, without a match, before a pull asks for a thread that may wait."""

SCANS_IN_POOL = 4096
"""Scans in all for one pull, some three million messages; after them the answer names the offset to go on from."""

FAQ = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."

READ_BIT = 4
"""The bit, among those that forbid things to a group on a topic, that forbids reading."""

BROADCASTING_FORBIDDEN, SUBSCRIPTION_FORBIDDEN = "4", "5"
"""Values of `forbiddenType` for a group that may not broadcast, and for one that may not read a topic."""

NO_FILTER_DATA = "The broker's consumer filter data is not exist!Your expression may be wrong!"

CODES = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
}
"""The response code of each status. For offset 0 of an empty queue it is PULL_NOT_FOUND instead."""

LOOK_ON = (GetMessageStatus.NO_MATCHED_MESSAGE, GetMessageStatus.MESSAGE_WAS_REMOVING)


class Refused(Exception):
    """Raised to answer a pull with the error `response`."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.remark)
        self.response = response


class FoundPull(NamedTuple):
    """A pull that found messages, and everything that its answer depends on.

    `snapshot`, which is not kept alive, and `group_changes` were current when the pull was looked at first.
    """

    code: int
    header: PullMessageRequestHeader
    choice: Choice
    topic_sys_flag: int
    group_sys_flag: int
    snapshot: "weakref.ref[Snapshot]"
    group_changes: int


Learn: TypeAlias = Callable[[FoundPull], None]
"""Called with each pull that found messages, so that a lane can answer later pulls with the same parameters."""


class PullMessageProcessor:
    """Answers PULL_MESSAGE and LITE_PULL_MESSAGE, which are the same for a server that only reads."""

    def __init__(self, service: BrokerService, learn: Learn | None = None) -> None:
        """Answer for `service`; `learn` is called with pulls that found messages, on any thread."""
        self._service = service
        self._learn = learn
        self._store = service.store
        self._polls = service.polls
        self._body_limit = service.options.frame_limit - HEADER_RESERVE

    @handles(RequestCode.PULL_MESSAGE, PullMessageRequestHeader)
    @handles(RequestCode.LITE_PULL_MESSAGE, PullMessageRequestHeader)
    def pull_message(self, header: PullMessageRequestHeader, request: Request) -> Lookup[Answer]:
        """The messages from a queue offset on; the header fields name the offset to go on from."""
        snapshot, group_changes = self._store.snapshot, self._service.clients.changes
        try:
            if not snapshot.queues.is_listed_for(header.topic):
                yield from snapshot.queues.listed()
            topic = self._topic(header, request)
            if self._polls.is_stopping:
                self._commit(header, request)
                return self._polls.refusal()
            message_filter = self._known_filter(header) or (yield from self._filter(header))
            result = yield from self._look(snapshot, header, header.queue_offset, message_filter)
        except Refused as refused:
            return refused.response
        except BeingSearched:
            self._commit(header, request)
            raise
        self._commit(header, request)
        if (
            header.sys_flag & SUSPEND_FLAG
            and _is_nothing_new(result, header.queue_offset)
            and result.next_begin_offset == header.queue_offset
            and not request.command.is_oneway
        ):
            self._service.pulled.note(header.consumer_group, header.topic, header.queue_id, header.queue_offset)
            pull = HeldQuestion(self, header, topic, message_filter, result)
            return self._polls.hold(pull, header.suspend_timeout_millis / 1000, snapshot.queues)
        learn, choice = self._learn, message_filter.choice
        if learn is not None and result.records and choice is not None:
            flags = topic.topic_sys_flag, self._group_sys_flag(header.consumer_group)
            now = weakref.ref(snapshot), group_changes
            learn(FoundPull(request.command.code, header, choice, *flags, *now))
        return self.answer(header, topic, result)

    def look_again(self, question: "HeldQuestion") -> Lookup[Response | None]:
        """Make a held pull again from where it stopped; None if still no message passes its filter."""
        queue_offset = question.result.next_begin_offset
        result = yield from self._look(self._store.snapshot, question.header, queue_offset, question.message_filter)
        if question.result.lost is not None:
            result = replace(result, lost=question.result.lost + result.lost)
        passed_over = result.status in LOOK_ON and result.next_begin_offset >= result.max_offset
        if passed_over or _is_nothing_new(result, queue_offset):
            question.result = result
            return None
        return self.answer(question.header, question.topic, result)

    def _topic(self, header: PullMessageRequestHeader, request: Request) -> TopicConfig:
        """Return the topic; raise `Refused` for a closed group, an unknown topic, or a queue that the topic lacks."""
        check_group("consumerGroup", header.consumer_group)
        group = self._store.config.subscription_groups.get(header.consumer_group)
        if group is not None and not group.consume_enable:
            remark = f"subscription group no permission, {header.consumer_group}"
            raise Refused(Response(ResponseCode.NO_PERMISSION, remark))
        topic = find_topic(self._store, header.topic)
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please!\n{FAQ}"
            raise Refused(Response(ResponseCode.TOPIC_NOT_EXIST, remark))
        if not 0 <= header.queue_id < topic.read_queue_nums:
            remark = (
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{request.connection.peer_address}]"
            )
            raise Refused(Response(ResponseCode.INVALID_PARAMETER, remark))
        return topic

    def _known_filter(self, header: PullMessageRequestHeader) -> MessageFilter | None:
        """The filter of the request's subscription if it is kept from an earlier one, else None."""
        if not header.sys_flag & SUBSCRIPTION_FLAG:
            return None
        return self._service.subscriptions.known_in_pull(header.topic, header.subscription, header.expression_type)

    def _filter(self, header: PullMessageRequestHeader) -> Lookup[MessageFilter]:
        """Return the filter of the request's subscription, else of the one that the group's members reported."""
        if header.sys_flag & SUBSCRIPTION_FLAG:
            try:
                subscriptions = self._service.subscriptions
                return (yield from subscriptions.in_pull(header.topic, header.subscription, header.expression_type))
            except FilterSyntaxError as error:
                raise Refused(_unparsed(error)) from error
        group = self._service.clients.consumer_group(header.consumer_group)
        if group is None:
            raise Refused(Response(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist\n{FAQ}"))
        self._refuse_forbidden(group, header.topic)
        subscription = group.subscriptions.get(header.topic)
        if subscription is None:
            raise Refused(
                Response(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist\n{FAQ}")
            )
        if subscription.sub_version < header.sub_version:
            raise Refused(Response(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"))
        return (yield from self._reported_filter(group, subscription, header.sub_version))

    def _refuse_forbidden(self, group: ConsumerGroup, topic: str) -> None:
        """Raise `Refused` if the store's configuration forbids the group to broadcast, or to read this topic."""
        config = self._store.config.subscription_groups.get(group.name)
        if config is not None and not config.consume_broadcast_enable and group.message_model == BROADCASTING:
            remark = f"the consumer group[{group.name}] can not consume by broadcast way"
            raise Refused(Response(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": BROADCASTING_FORBIDDEN}))
        if max(self._store.config.forbidden.get(group.name, {}).get(topic, 0), 0) & READ_BIT:
            remark = f"the consumer group[{group.name}] is forbidden for topic[{topic}]"
            raise Refused(Response(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": SUBSCRIPTION_FORBIDDEN}))

    def _reported_filter(
        self, group: ConsumerGroup, subscription: SubscriptionData, sub_version: int
    ) -> Lookup[MessageFilter]:
        """Return the filter of a heartbeat's subscription; raises `Refused` where it has none."""
        reported = group.filters.get(subscription.topic)
        try:
            chosen = yield from self._service.subscriptions.of_group(group.name, subscription, reported)
        except FilterSyntaxError as error:
            raise Refused(_unparsed(error)) from error
        if chosen is None:
            why_none = yield from _why_no_filter(self._service.subscriptions.filters, subscription)
            remark = NO_FILTER_DATA + why_none
            raise Refused(Response(ResponseCode.FILTER_DATA_NOT_EXIST, remark))
        is_by_tags = is_tag_type(subscription.expression_type)
        if reported is not None and reported.version < sub_version and not is_by_tags:
            remark = "the consumer's consumer filter data not latest"
            raise Refused(Response(ResponseCode.FILTER_DATA_NOT_LATEST, remark))
        return chosen

    def _look(
        self, snapshot: Snapshot, header: PullMessageRequestHeader, queue_offset: int, message_filter: MessageFilter
    ) -> Lookup[GetMessageResult]:
        """Scan until a message passes the filter, the queue ends, or `SCANS_IN_POOL` is reached.

        Raises `BeingSearched` while the log is searched for the messages at the offset.
        """
        limits = limits_of(header, self._service.options)
        result: GetMessageResult | None = None
        lost: Lost | None = None
        for number in range(SCANS_IN_POOL):
            if number == SCANS_ON_LOOP:
                yield Wait("no message of many passes the filter")
            try:
                result = yield from get_message_lookup(
                    snapshot.queues,
                    header.topic,
                    header.queue_id,
                    queue_offset,
                    *limits,
                    message_filter,
                )
            except BeingSearched:
                if result is None:
                    raise
                break
            lost = result.lost if lost is None else lost + result.lost
            if result.status not in LOOK_ON or not queue_offset < result.next_begin_offset < result.max_offset:
                break
            queue_offset = result.next_begin_offset
        assert result is not None
        if snapshot.commit_log.unreadable and CODES[result.status] is ResponseCode.PULL_OFFSET_MOVED:
            snapshot.commit_log.refuse_hidden_ends()
        return result if lost is result.lost else replace(result, lost=lost)

    def _commit(self, header: PullMessageRequestHeader, request: Request) -> None:
        """Commit the offset that comes with the request, if one does."""
        if header.sys_flag & COMMIT_OFFSET_FLAG and header.commit_offset > 0:
            group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
            self._service.commits.commit(request.connection, group, topic, queue_id, header.commit_offset)

    def answer(self, header: PullMessageRequestHeader, topic: TopicConfig, result: GetMessageResult) -> Response:
        """Make the answer to a pull from its result."""
        code = CODES[result.status]
        if _is_nothing_new(result, header.queue_offset):
            code = ResponseCode.PULL_NOT_FOUND
        if code is ResponseCode.PULL_OFFSET_MOVED and header.sys_flag & SUSPEND_FLAG:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
        flags = topic.topic_sys_flag, self._group_sys_flag(header.consumer_group)
        fields = found_fields(result.next_begin_offset, result.max_offset, result.min_offset, *flags)
        body = result.records[0] if len(result.records) == 1 else b"".join(result.records)
        if len(body) > self._body_limit:
            remark = f"the record at queue offset {result.next_begin_offset - 1} has {len(body)} bytes, more than fit"
            return Response(ResponseCode.PULL_RETRY_IMMEDIATELY, remark, fields)
        self._service.pulled.note(header.consumer_group, header.topic, header.queue_id, result.next_begin_offset)
        remark = result.status.name if result.lost is None else f"{result.status.name}: {result.lost}"
        return Response(code, remark, fields, body)

    def _group_sys_flag(self, consumer_group: str) -> int:
        group = self._store.config.subscription_groups.get(consumer_group)
        return 0 if group is None else group.group_sys_flag


def limits_of(header: PullMessageRequestHeader, options: ServeOptions) -> tuple[int, int]:
    """Return the number of messages and of their bytes that a pull asks for, limited to what one answer can hold."""
    wanted = header.max_msg_bytes if header.max_msg_bytes is not None else DEFAULT_MAX_BYTES
    return max(header.max_msg_nums, 1), min(wanted, options.frame_limit - HEADER_RESERVE)


def found_fields(
    next_begin_offset: int, max_offset: int, min_offset: int, topic_sys_flag: int, group_sys_flag: int
) -> dict[str, str]:
    """Make the header fields of the answer to a pull."""
    return {
        "suggestWhichBrokerId": "0",
        "groupSysFlag": str(group_sys_flag),
        "nextBeginOffset": str(next_begin_offset),
        "maxOffset": str(max_offset),
        "minOffset": str(min_offset),
        "topicSysFlag": str(topic_sys_flag),
    }


def _unparsed(error: FilterSyntaxError) -> Response:
    return Response(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}")


def _why_no_filter(filters: KeptFilters, subscription: SubscriptionData) -> Lookup[str]:
    """Return the error in the expression of a group without a filter, "" if there is none."""
    try:
        yield from filters.make_lookup(subscription.sub_string, subscription.expression_type)
    except FilterSyntaxError as error:
        return f": {error}"
    return ""


class HeldQuestion(msgspec.Struct, gc=False):
    """A pull that waits for messages; `result` is its last one, without messages but with the offset to go on from."""

    processor: PullMessageProcessor
    header: PullMessageRequestHeader
    topic: TopicConfig
    message_filter: MessageFilter
    result: GetMessageResult

    @property
    def queue_key(self) -> QueueKey:
        """The queue that is asked for."""
        return self.header.topic, self.header.queue_id

    @property
    def queue_offset(self) -> int:
        """The first offset that was not looked at yet."""
        return self.result.next_begin_offset

    @property
    def sameness(self) -> Hashable:
        """Everything besides the queue that an answer depends on; equal subscriptions have the same filter object."""
        header = self.header
        wanted = header.max_msg_nums, header.max_msg_bytes, header.sys_flag, header.consumer_group
        return header.queue_offset, id(self.message_filter), self.topic.topic_sys_flag, wanted

    def look(self) -> Lookup[Response | None]:
        """Return the answer, or None while no new message passes the filter."""
        return self.processor.look_again(self)

    def give_up(self) -> Response:
        """Return the answer that the queue has no further message for this pull."""
        result = self.result
        if result.status in LOOK_ON:
            result = replace(result, status=GetMessageStatus.OFFSET_OVERFLOW_ONE)
        return self.processor.answer(self.header, self.topic, result)


def _is_nothing_new(result: GetMessageResult, queue_offset: int) -> bool:
    """Whether a pull is at the end of its queue, which may be empty, so that it is held if it may wait."""
    if result.status is GetMessageStatus.NO_MESSAGE_IN_QUEUE:
        return queue_offset == 0
    return CODES[result.status] is ResponseCode.PULL_NOT_FOUND
