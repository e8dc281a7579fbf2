"""How far consumer groups are behind: per queue, the end, the consumed offset and the time of its message.

Source: remoting-protocol §2.2 (consumerProgress), §4.5, §4.2, §4.15; store-format §5.6.
"""

import itertools
import time
from collections.abc import Mapping

from broker.service.broker_service import BrokerService
from broker.service.dispatcher import Request, handles
from broker.service.long_work import leave_to_a_thread
from protocol.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    MessageQueue,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    encode_json,
    message_queue_map,
)
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response
from protocol.headers import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
)
from storage.files.waiting import Lookup, all_of
from storage.layout.store_config import GROUPS
from storage.queue.queue import NO_TIMESTAMP, Queue
from storage.store.topic_catalog import find_topic


class ConsumeStatsProcessor:
    """Answers requests for the progress of one group, of all groups, and for how late a group is."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service
        self._store = service.store

    @handles(RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader)
    def get_consume_stats(self, header: GetConsumeStatsRequestHeader) -> Lookup[Response]:
        """The progress of a group in each queue of its topics; empty for a group that never committed an offset."""
        group, topics = header.consumer_group, self._topics_of(header)
        yield from self._store.queues.listed()
        yield from leave_to_a_thread(sum(map(self._count, topics)))
        each = yield from all_of(self._progress(group, topic) for topic in topics)
        progress = list(itertools.chain.from_iterable(each))
        rate = sum(self._service.offsets.rates.rates(group, topic)[0].per_second for topic in topics)
        return Response(body=encode_json(ConsumeStats(message_queue_map(progress), rate)))

    def _topics_of(self, header: GetConsumeStatsRequestHeader) -> list[str]:
        """The topics of the request; if it lists none, only those to which a group with live members subscribes."""
        listed = {topic for topic in (header.topic_list or "").split(";") if topic}
        if listed:
            return sorted(listed)
        one = header.topic if header.topic and header.topic.strip() else None
        topics = self._service.offsets.topics_of(header.consumer_group) if one is None else [one]
        group = self._service.clients.consumer_group(header.consumer_group)
        if group is None or not group.subscriptions:
            return topics
        return [topic for topic in topics if topic in group.subscriptions]

    def _progress(self, group: str, topic: str) -> Lookup[list[tuple[MessageQueue, OffsetWrapper]]]:
        """The progress of a group in every queue that a topic's configuration counts."""
        pulled, names = self._pulled(group, topic), self._queues(topic)
        offsets = yield from all_of(self._progress_in(group, name, pulled) for name in names)
        return list(zip(names, offsets, strict=True))

    def _progress_in(self, group: str, name: MessageQueue, pulled: Mapping[int, int]) -> Lookup[OffsetWrapper]:
        queue = yield from self._store.queues.queue_lookup(name.topic, name.queue_id)
        consumed = self._consumed(group, name)
        ahead = pulled.get(name.queue_id, self._service.offsets.pulled(group, name.topic, name.queue_id))
        return OffsetWrapper(
            broker_offset=0 if queue is None else queue.max_offset,
            consumer_offset=consumed,
            last_timestamp=max((yield from _timestamp(queue, consumed - 1)), 0) if consumed else 0,
            pull_offset=max(consumed, ahead),
        )

    def _pulled(self, group: str, topic: str) -> dict[int, int]:
        """The next offsets that a group would pull, by queue id.

        Empty for a group without live members, for which the offsets count that the store's broker recorded.
        """
        is_live = self._service.clients.consumer_group(group) is not None
        return self._service.pulled.next_offsets(group, topic) if is_live else {}

    def _consumed(self, group: str, queue: MessageQueue) -> int:
        return max(self._service.offsets.committed(group, queue.topic, queue.queue_id) or 0, 0)

    def _queues(self, topic: str) -> list[MessageQueue]:
        """Every queue that a topic's configuration counts, whether or not it has ever held a message."""
        return [MessageQueue(self._service.broker_name, queue_id, topic) for queue_id in range(self._count(topic))]

    def _count(self, topic: str) -> int:
        config = find_topic(self._store, topic)
        return 0 if config is None else config.read_queue_nums

    @handles(RequestCode.GET_BROKER_CONSUME_STATS, GetConsumeStatsInBrokerHeader)
    def get_all_consume_stats(self, header: GetConsumeStatsInBrokerHeader, request: Request) -> Lookup[Response]:
        """The progress of every group, topic by topic; if the request says so, only in ordered topics.

        The groups are those of the store and those that consume here.
        """
        self._store.config.refuse_unknown(GROUPS)
        groups_by_name = sorted({*self._store.config.subscription_groups, *self._service.clients.consumer_groups()})
        topics = {group: self._service.offsets.topics_of(group) for group in groups_by_name}
        yield from self._store.queues.listed()
        yield from leave_to_a_thread(sum(self._count(topic) for names in topics.values() for topic in names))
        total = in_flight = 0
        groups: list[dict[str, list[ConsumeStats]]] = []
        for group, names in topics.items():
            tables: list[ConsumeStats] = []
            for topic in names:
                config = find_topic(self._store, topic)
                if config is None or (header.is_order and not config.order):
                    continue
                progress = yield from self._progress(group, topic)
                for _, wrapper in progress:
                    # A broker sets no pull offset here, so that its number of messages in flight is negative.
                    wrapper.pull_offset = 0
                    total += wrapper.broker_offset - wrapper.consumer_offset
                    in_flight -= wrapper.consumer_offset
                tables.append(ConsumeStats(message_queue_map(progress)))
            groups.append({group: tables})
        address = self._service.advertised_address(request.connection)
        return Response(body=encode_json(ConsumeStatsList(address, groups, total, in_flight)))

    @handles(RequestCode.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpanRequestHeader)
    def query_consume_time_span(self, header: QueryConsumeTimeSpanRequestHeader) -> Lookup[Response]:
        """For each queue, the times of its first, last and last consumed message and the delay of the group, in ms."""
        yield from self._store.queues.listed()
        if find_topic(self._store, header.topic) is None:
            return Response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        yield from leave_to_a_thread(self._count(header.topic))
        now = time.time_ns() // 1_000_000
        spans = yield from all_of(self._time_span(header.group, name, now) for name in self._queues(header.topic))
        return Response(body=encode_json(QueryConsumeTimeSpanBody(spans)))

    def _time_span(self, group: str, name: MessageQueue, now: int) -> Lookup[QueueTimeSpan]:
        queue = yield from self._store.queues.queue_lookup(name.topic, name.queue_id)
        consumed = self._consumed(group, name)
        first = NO_TIMESTAMP if queue is None else (yield from _timestamp(queue, queue.min_offset))
        end = 0 if queue is None else queue.max_offset
        return QueueTimeSpan(
            message_queue=name,
            min_time_stamp=first,
            max_time_stamp=(yield from _timestamp(queue, end - 1)),
            consume_time_stamp=(yield from _timestamp(queue, consumed - 1)) if consumed else first,
            delay_time=now - (yield from _timestamp(queue, consumed)) if consumed < end else 0,
        )


def _timestamp(queue: Queue | None, queue_offset: int) -> Lookup[int]:
    return NO_TIMESTAMP if queue is None else (yield from queue.store_timestamp_at_lookup(queue_offset))
