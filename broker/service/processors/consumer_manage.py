"""Requests about consumer groups: their members, configuration and offsets.

Offsets that groups had committed when the store was written are read from it; those that they commit now are kept
outside the store.
Source: remoting-protocol §2.1 (track), §2.2, §3.2, §4.2, §4.8–4.11, §4.20.
"""

from collections.abc import Iterator
from itertools import chain

from broker.service._metadata_page import page_of
from broker.service._refusals import READ_ONLY
from broker.service.broker_service import BrokerService
from broker.service.consumers.client_registry import as_connection
from broker.service.consumers.report_limits import check_group
from broker.service.dispatcher import Request, handles
from broker.service.long_work import leave_to_a_thread
from protocol.bodies import (
    ConsumerConnection,
    GetConsumerListByGroupResponseBody,
    GroupList,
    QuerySubscriptionResponseBody,
    TopicList,
    encode_json,
)
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response
from protocol.errors import StoreError
from protocol.headers import (
    EmptyRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from protocol.offset_keys import offset_key
from storage.files.waiting import Lookup
from storage.layout.store_config import GROUPS, OFFSETS, new_group
from storage.store.topic_catalog import find_topic

NO_MEMBER = f"{READ_ONLY}: offsets of a group are taken from its members alone, and this client did not join {{}} here"
"""The remark with which a committed offset is refused; the group's name is filled in."""


class ConsumerManageProcessor:
    """Answers requests for members, configuration and offsets of consumer groups."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service
        self._store = service.store
        self._clients = service.clients
        self._offsets, self._commits = service.offsets, service.commits

    # ------------------------------------------------------------------ members

    @handles(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader)
    def get_consumer_list(self, header: GetConsumerListByGroupRequestHeader) -> Lookup[Response]:
        """The client ids of a group, by which its members share out the queues."""
        yield from leave_to_a_thread(self._clients.count_of(header.consumer_group))
        client_ids = sorted({member.client_id for member in self._clients.members_of(header.consumer_group)})
        if not client_ids:
            return Response(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {header.consumer_group}")
        return Response(body=encode_json(GetConsumerListByGroupResponseBody(client_ids)))

    @handles(RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequestHeader)
    def get_consumer_connections(self, header: GetConsumerConnectionListRequestHeader) -> Lookup[Response]:
        """The connections of a group and its subscriptions."""
        yield from leave_to_a_thread(self._clients.count_of(header.consumer_group))
        group = self._clients.consumer_group(header.consumer_group)
        if group is None:
            remark = f"the consumer group[{header.consumer_group}] not online"
            return Response(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        body = ConsumerConnection(
            connection_set=[as_connection(member) for member in self._clients.members_of(header.consumer_group)],
            consume_from_where=group.consume_from_where,
            consume_type=group.consume_type,
            message_model=group.message_model,
            subscription_table=group.subscriptions,
        )
        return Response(body=encode_json(body))

    @handles(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, QueryTopicConsumeByWhoRequestHeader)
    def query_topic_consume_by_who(self, header: QueryTopicConsumeByWhoRequestHeader) -> Lookup[Response]:
        """The groups that consume a topic: those that committed an offset in it, and those that subscribe to it now."""
        yield from leave_to_a_thread(len(self._clients))
        groups = {*self._offsets.groups_of(header.topic), *self._clients.groups_subscribed_to(header.topic)}
        return Response(body=encode_json(GroupList(sorted(groups))))

    @handles(RequestCode.QUERY_TOPICS_BY_CONSUMER, QueryTopicsByConsumerRequestHeader)
    def query_topics_by_consumer(self, header: QueryTopicsByConsumerRequestHeader) -> Response:
        """The topics in which a group committed an offset."""
        return Response(body=encode_json(TopicList(self._offsets.topics_of(header.group))))

    @handles(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, QuerySubscriptionByConsumerRequestHeader)
    def query_subscription_by_consumer(self, header: QuerySubscriptionByConsumerRequestHeader) -> Response:
        """The subscription of a group with live members to a topic."""
        body = QuerySubscriptionResponseBody(header.group, header.topic)
        subscription = None if header.topic is None else self._clients.subscription(header.group, header.topic)
        if subscription is not None:
            body.subscription_data = subscription
        return Response(body=encode_json(body))

    # ------------------------------------------------------------------ configuration

    @handles(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GetAllSubscriptionGroupRequestHeader)
    def get_all_groups(self, header: GetAllSubscriptionGroupRequestHeader) -> Lookup[Response]:
        """The configuration of all groups, in pages for clients that ask for pages.

        Groups that consume here and are not in the store have what a broker would make them with.
        """
        config = self._store.config
        config.refuse_unknown(GROUPS)
        yield from leave_to_a_thread(len(config.subscription_groups) + len(self._clients))
        live = {name: made for name in self._clients.consumer_groups() if (made := new_group(name)) is not None}
        groups = live | config.subscription_groups
        names, version = sorted(groups), config.subscription_groups_version
        page = page_of(names, header.group_seq, header.max_group_num, header.data_version, version)
        body = {
            "dataVersion": version,
            "forbiddenTable": {name: config.forbidden[name] for name in page if name in config.forbidden},
            "subscriptionGroupTable": {name: groups[name] for name in page},
        }
        return Response(ext_fields={"totalGroupNum": str(len(names))}, body=encode_json(body))

    @handles(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GetSubscriptionGroupConfigRequestHeader)
    def get_group(self, header: GetSubscriptionGroupConfigRequestHeader) -> Response:
        """The configuration of one group; of one that the store does not have, what a broker would make it with.

        A proxy refuses the consumers of a group that is not there. Nothing is kept.
        """
        group = self._store.config.subscription_groups.get(header.group)
        if group is None:
            self._store.config.refuse_unknown(GROUPS, header.group)
            group = new_group(header.group)
        if group is None:
            return Response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return Response(body=encode_json(group))

    # ------------------------------------------------------------------ offsets

    @handles(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader)
    def query_consumer_offset(self, header: QueryConsumerOffsetRequestHeader) -> Lookup[Response]:
        """The next offset of a group in a queue; it is 0 for a new group if the queue still has its first message.

        Raises RocketLensError where the offset is not known; the client gets no answer then, see
        :func:`broker.service.dispatcher.is_better_unanswered`.
        """
        offset = self._offsets.committed(header.consumer_group, header.topic, header.queue_id)
        if offset is not None:
            return Response(ext_fields={"offset": str(offset)})
        if header.set_zero_if_not_found is False:
            remark = "Not found, do not set to zero, maybe this group boot first"
            return Response(ResponseCode.QUERY_NOT_FOUND, remark)
        queue = yield from self._store.queues.queue_lookup(header.topic, header.queue_id)
        if queue is not None and queue.min_offset <= 0 < queue.max_offset:
            return Response(ext_fields={"offset": "0"})
        remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        return Response(ResponseCode.QUERY_NOT_FOUND, remark)

    @handles(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader)
    def update_consumer_offset(self, header: UpdateConsumerOffsetRequestHeader, request: Request) -> Lookup[Response]:
        """Commit the offset that a member of a group reports.

        Consumers do not wait for the answer. After a restart of this server they commit before their first heartbeat;
        such an offset is held. A client that waits for the answer and is no member is a tool (cloneGroupOffset); it is
        refused, since it would report an offset as set that no broker ever gets.
        """
        yield from self._store.queues.listed()
        topic = find_topic(self._store, header.topic)
        if topic is None or not 0 <= header.queue_id < topic.read_queue_nums:
            remark = f"there is no queue {header.queue_id} of topic {header.topic}"
            return Response(ResponseCode.TOPIC_NOT_EXIST, remark)
        group, connection = header.consumer_group, request.connection
        # The last commit of a consumer may come after it has unregistered.
        if not (request.command.is_oneway or self._clients.was_member(connection, group)):
            return Response(ResponseCode.NO_PERMISSION, NO_MEMBER.format(group))
        check_group("consumerGroup", group)
        if not self._commits.commit(connection, group, header.topic, header.queue_id, header.commit_offset):
            raise self._offsets.room.spent
        return Response()

    @handles(RequestCode.GET_ALL_CONSUMER_OFFSET, EmptyRequestHeader)
    def get_all_consumer_offsets(self, _header: EmptyRequestHeader) -> Lookup[Response]:
        """The committed offsets of all groups."""
        self._offsets.refuse_unknown()
        if self._store.config.has_unknown_offsets:
            raise StoreError(self._store.layout.config / OFFSETS, what="some entries are damaged")
        yield from leave_to_a_thread(len(self._store.config.consumer_offsets) + len(self._offsets))
        table = {
            key: {str(queue_id): offset for queue_id, offset in offsets.items()}
            for key, offsets in chain(self._store.config.broadcast_offsets.items(), self._of_groups())
        }
        version = self._store.config.consumer_offsets_version
        return Response(body=encode_json({"dataVersion": version, "offsetTable": table}))

    def _of_groups(self) -> Iterator[tuple[str, dict[int, int]]]:
        for (group, topic), offsets in self._offsets.everything().items():
            yield offset_key(topic, group), offsets
