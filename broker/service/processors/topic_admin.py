"""Requests of administrators about topics and their queues: configuration, offsets, times, queue units.

Source: remoting-protocol §2.2, §4.3–4.7, §4.14, §4.20; store-format §5.3–5.6. A request for a queue that does not exist
is answered as for an empty one, not with an error: brokers do the same, since their look-up creates the queue.
"""

from msgspec import UNSET, UnsetType

from broker.service._metadata_page import page_of
from broker.service.broker_service import BrokerService
from broker.service.consumers.filter_data import NO_FILTER, filter_data
from broker.service.dispatcher import handles
from broker.service.long_work import leave_to_a_thread
from protocol.bodies import (
    ConsumeQueueData,
    MessageQueue,
    QueryConsumeQueueResponseBody,
    SubscriptionData,
    TopicList,
    TopicOffset,
    TopicStatsTable,
    encode_json,
    message_queue_map,
)
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response
from protocol.errors import FilterSyntaxError
from protocol.headers import (
    EmptyRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeQueueRequestHeader,
    SearchOffsetRequestHeader,
)
from protocol.system_topics import RETRY_PREFIX
from storage.files.waiting import Lookup, all_of
from storage.filter.base import MessageFilter
from storage.layout.store_config import DataVersion, TopicConfig
from storage.queue.consume_queue_ext import ConsumeQueueExtUnit
from storage.queue.queue import NO_TIMESTAMP, ConsumeQueueEntry, Queue, TimeBoundary
from storage.store.topic_catalog import find_topic, stored_topic, system_topics, topic_names

ENTRIES_LIMIT = 16_384
"""Most queue units of one answer: some two megabytes of JSON."""


class TopicAdminProcessor:
    """Answers requests for topic configuration and statistics, queue offsets (by time too) and queue units."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service
        self._store = service.store

    # ------------------------------------------------------------------ topics

    def _known(self, name: str) -> TopicConfig | None:
        """A topic of the store, or the retry topic of a group that consumes here; None for others."""
        group = name.removeprefix(RETRY_PREFIX)
        is_live = group != name and self._service.clients.consumer_group(group) is not None
        return (find_topic if is_live else stored_topic)(self._store, name)

    @handles(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader)
    def get_topic_stats(self, header: GetTopicStatsInfoRequestHeader) -> Lookup[Response]:
        """The first offset and the end of each queue of a topic, and the store time of its last message in ms."""
        yield from self._store.queues.listed()
        topic = self._known(header.topic)
        if topic is None:
            return Response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        queue_ids = range(max(topic.read_queue_nums, topic.write_queue_nums))
        yield from leave_to_a_thread(len(queue_ids))
        names = [MessageQueue(self._service.broker_name, queue_id, header.topic) for queue_id in queue_ids]
        offsets = yield from all_of(self._offsets(header.topic, queue_id) for queue_id in queue_ids)
        return Response(body=encode_json(TopicStatsTable(message_queue_map(zip(names, offsets, strict=True)))))

    def _queue(self, topic: str, queue_id: int) -> Lookup[Queue | None]:
        """Return a queue of which the first or last offset is asked for; raises StoreError where they are not known."""
        self._store.commit_log.refuse_hidden_ends()
        return (yield from self._store.queues.queue_lookup(topic, queue_id))

    def _offsets(self, topic: str, queue_id: int) -> Lookup[TopicOffset]:
        queue = yield from self._queue(topic, queue_id)
        if queue is None:
            return TopicOffset(last_update_timestamp=0, max_offset=0, min_offset=0)
        last = (yield from queue.store_timestamp_at_lookup(queue.max_offset - 1)) if queue.max_offset else 0
        return TopicOffset(last_update_timestamp=last, max_offset=queue.max_offset, min_offset=queue.min_offset)

    @handles(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader)
    def get_topic_config(self, header: GetTopicConfigRequestHeader) -> Lookup[Response]:
        """The configuration of a topic; its permissions are here those that the store recorded."""
        yield from self._store.queues.listed()
        topic = self._known(header.topic)
        if topic is None:
            return Response(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {header.topic}")
        return Response(body=encode_json(topic))

    @handles(RequestCode.GET_ALL_TOPIC_CONFIG, GetAllTopicConfigRequestHeader)
    def get_all_topic_config(self, header: GetAllTopicConfigRequestHeader) -> Lookup[Response]:
        """The configuration of all topics, in pages for clients that ask for pages.

        Retry topics of groups that consume here stand last, so that no entry changes its place as a group comes.
        """
        yield from self._store.queues.listed()
        names, version = topic_names(self._store), self._store.config.topics_version
        names += sorted(self._service.live_retry_topics.difference(names))
        page = page_of(names, header.topic_seq, header.max_topic_num, header.data_version, version)
        yield from leave_to_a_thread(len(page))
        body = {
            "dataVersion": version,
            "mappingDataVersion": DataVersion(),
            "topicConfigTable": {name: find_topic(self._store, name) for name in page},
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {},
        }
        return Response(ext_fields={"totalTopicNum": str(len(names))}, body=encode_json(body))

    @handles(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, EmptyRequestHeader)
    def get_system_topics(self, _header: EmptyRequestHeader) -> Lookup[Response]:
        """The system topics of the broker."""
        yield from self._store.queues.listed()
        topics = system_topics(self._store, self._service.broker_name, self._service.cluster)
        return Response(body=encode_json(TopicList(topics)))

    # ------------------------------------------------------------------ offsets

    @handles(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader)
    def get_max_offset(self, header: GetMaxOffsetRequestHeader) -> Lookup[Response]:
        """The offset that the next message of a queue would get."""
        queue = yield from self._queue(header.topic, header.queue_id)
        return _offset(0 if queue is None else queue.max_offset)

    @handles(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader)
    def get_min_offset(self, header: GetMinOffsetRequestHeader) -> Lookup[Response]:
        """The offset of the first message that a queue still has."""
        queue = yield from self._queue(header.topic, header.queue_id)
        return _offset(0 if queue is None else queue.min_offset)

    @handles(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequestHeader)
    def search_offset(self, header: SearchOffsetRequestHeader) -> Lookup[Response]:
        """The offset of the first message at a time or after it, or of the last one at that time or before it."""
        queue = yield from self._queue(header.topic, header.queue_id)
        if queue is None:
            return _offset(0)
        boundary = TimeBoundary[header.boundary_type.name]
        return _offset((yield from queue.offset_by_timestamp_lookup(header.timestamp, boundary)))

    @handles(RequestCode.GET_EARLIEST_MSG_STORETIME, GetEarliestMsgStoretimeRequestHeader)
    def get_earliest_store_timestamp(self, header: GetEarliestMsgStoretimeRequestHeader) -> Lookup[Response]:
        """The store time in ms of the first message that a queue still has, −1 for an empty queue."""
        queue = yield from self._queue(header.topic, header.queue_id)
        timestamp = NO_TIMESTAMP
        if queue is not None:
            timestamp = yield from queue.store_timestamp_at_lookup(queue.min_offset)
        return Response(ext_fields={"timestamp": str(timestamp)})

    # ------------------------------------------------------------------ queue units

    @handles(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequestHeader)
    def query_consume_queue(self, header: QueryConsumeQueueRequestHeader) -> Lookup[Response]:
        """The units of a queue, and for each whether it passes the filter of a group's subscription."""
        queue = yield from self._store.queues.queue_lookup(header.topic, header.queue_id)
        if queue is None:
            return Response(ResponseCode.SYSTEM_ERROR, f"{header.queue_id}@{header.topic} is not exist!")
        count = max(min(header.count, ENTRIES_LIMIT, queue.max_offset - header.index), 0)
        yield from leave_to_a_thread(count)
        subscription, filter_data = self._subscription(header)
        entries = (yield from queue.entries_lookup(header.index, count)) if count else []
        chosen = None
        if subscription is not UNSET:
            chosen = yield from self._filter(header.consumer_group, subscription)
        body = QueryConsumeQueueResponseBody(
            max_queue_index=queue.max_offset,
            min_queue_index=queue.min_offset,
            queue_data=[_queue_data(entry, chosen) for entry in entries],
            filter_data=filter_data,
            subscription_data=subscription,
        )
        # A broker sends no body when there are no units from this index on; all clients fail on that.
        remark = None if entries else f"Index {header.index} of {header.queue_id}@{header.topic} is not exist!"
        if count and not entries and queue.min_offset <= header.index:
            remark = f"{remark} Its unit is lost; pulls bring what the log has of its message."
        return Response(remark=remark, body=encode_json(body))

    def _subscription(
        self, header: QueryConsumeQueueRequestHeader
    ) -> tuple[SubscriptionData | UnsetType, str | UnsetType]:
        """The subscription of the group in the header, and the text about its filter."""
        if header.consumer_group is None:
            return UNSET, UNSET
        subscription = self._service.clients.subscription(header.consumer_group, header.topic)
        if subscription is None:
            return UNSET, f"{header.consumer_group}@{header.topic} is not online!"
        group, topic = header.consumer_group, header.topic
        reported = self._service.clients.filters_of(group).get(topic)
        stored = self._store.config.filters.get(topic, {}).get(group)
        data = filter_data(group, topic, reported, stored, self._service.started_timestamp)
        return subscription, NO_FILTER if data is None else data.text()

    def _filter(self, group: str | None, subscription: SubscriptionData) -> Lookup[MessageFilter | None]:
        """The filter of a group's subscription, None for one that does not compile."""
        reported = self._service.clients.filters_of(group or "").get(subscription.topic)
        try:
            return (yield from self._service.subscriptions.of_group(group or "", subscription, reported))
        except FilterSyntaxError:
            return None


def _offset(offset: int) -> Response:
    return Response(ext_fields={"offset": str(offset)})


def _queue_data(entry: ConsumeQueueEntry, chosen: MessageFilter | None) -> ConsumeQueueData:
    """Describe one unit; as in a broker, the filter is evaluated only for units with an extension."""
    data = ConsumeQueueData(entry.physical_offset, entry.size, entry.tags_code)
    extension = entry.extension
    if extension is not None:
        data.extend_data_json = _extension_json(extension)
        data.bit_map = UNSET if extension.bitmap is None else format_bitmap(extension.bitmap)
        data.eval = chosen is not None and chosen.matches_consume_queue_entry(entry.tags_code, extension)
    elif entry.valid_tags_code is None:
        data.msg = f"Cq extend not exist!addr: {entry.tags_code}"
    return data


def _extension_json(extension: ConsumeQueueExtUnit) -> str:
    """An extension unit as 5.5 writes it into the text: JSON, with the bitmap as Java's signed bytes."""
    bitmap = {} if extension.bitmap is None else {"filterBitMap": memoryview(extension.bitmap).cast("b").tolist()}
    members = {
        "msgStoreTime": extension.store_timestamp,
        "size": extension.size,
        "tagsCode": extension.tags_code,
    }
    return encode_json(bitmap | members).decode("ascii")


def format_bitmap(bitmap: bytes) -> str:
    """Format a filter bitmap as Java's `BitsArray` prints it: from the last bit to the first, eight bytes a line."""
    lines = []
    for number in range(len(bitmap) - 1, -1, -1):
        lines.append(f"{bitmap[number]:08b}")
        if number % 8 == 0:
            lines.append("\n")
    return "".join(lines)
