"""The name server's part: where topics, brokers and clusters are. There is one broker, this one, with id 0.

Every queue is announced for reading alone, whatever the store's configuration says. Answers are stable from one call to
the next: clients compare them, and rebalance when they differ. Source: remoting-protocol §4.1–4.3, §5.1, §5.4.
"""

from broker.broker_service import BrokerService
from broker.dispatcher import Request, handles
from broker.long_work import leave_to_a_thread
from broker.topic_catalog import READ_ONLY_PERM, find_topic, topic_names
from protocol.bodies import BrokerData, ClusterInfo, QueueData, TopicList, TopicRouteData, encode_json
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response
from protocol.headers import (
    EmptyRequestHeader,
    GetKVConfigRequestHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
)

NO_ROUTE = (
    "No topic route info in name server for the topic: {}\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)
"""A name server's own words, which Java clients show to their users."""

UNIT_FLAG = 1
"""Bit of topicSysFlag: a topic of one unit."""

UNIT_SUB_FLAG = 2
"""Bit of topicSysFlag: a topic with subscriptions from units."""


class NameServerProcessor:
    """Routes, clusters and topic lists."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service
        self._store = service.store

    @handles(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader)
    def get_route(self, header: GetRouteInfoRequestHeader, request: Request) -> Response:
        """The broker and the readable queues of a topic."""
        topic = find_topic(self._store, header.topic)
        if topic is None:
            return Response(ResponseCode.TOPIC_NOT_EXIST, NO_ROUTE.format(header.topic))
        queues = QueueData(
            broker_name=self._service.broker_name,
            perm=READ_ONLY_PERM,
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            topic_sys_flag=topic.topic_sys_flag,
        )
        return Response(body=encode_json(TopicRouteData(broker_datas=[self._broker(request)], queue_datas=[queues])))

    @handles(RequestCode.GET_BROKER_CLUSTER_INFO, EmptyRequestHeader)
    def get_cluster_info(self, _header: EmptyRequestHeader, request: Request) -> Response:
        """The one broker of the one cluster."""
        broker = self._broker(request)
        info = ClusterInfo(
            broker_addr_table={broker.broker_name: broker}, cluster_addr_table={broker.cluster: [broker.broker_name]}
        )
        return Response(body=encode_json(info))

    @handles(RequestCode.GET_BROKER_MEMBER_GROUP, EmptyRequestHeader)
    def get_broker_member_group(self, _header: EmptyRequestHeader, request: Request) -> Response:
        """The brokers of our name: us."""
        return Response(body=encode_json({"brokerMemberGroup": self._broker(request)}))

    @handles(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, EmptyRequestHeader)
    def get_all_topics(self, _header: EmptyRequestHeader) -> Response:
        """Every topic, system and retry topics included."""
        return _topic_list(self._all_topics())

    @handles(RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader)
    def get_topics_by_cluster(self, header: GetTopicsByClusterRequestHeader) -> Response:
        """Every topic for our cluster, none for another one."""
        return _topic_list(self._all_topics() if header.cluster == self._service.cluster else [])

    @handles(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, EmptyRequestHeader)
    def get_system_topics(self, _header: EmptyRequestHeader, request: Request) -> Response:
        """The topics a name server makes up itself, and the broker to ask for its own ones (code 305)."""
        names = sorted({self._service.cluster, self._service.broker_name})
        return _topic_list(names, self._service.advertised_address(request.connection))

    @handles(RequestCode.GET_UNIT_TOPIC_LIST, EmptyRequestHeader)
    def get_unit_topics(self, _header: EmptyRequestHeader) -> Response:
        """The topics of one unit."""
        return _topic_list(self._topics_with(UNIT_FLAG, UNIT_FLAG))

    @handles(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, EmptyRequestHeader)
    def get_topics_subscribed_by_units(self, _header: EmptyRequestHeader) -> Response:
        """The topics that units subscribe to."""
        return _topic_list(self._topics_with(UNIT_SUB_FLAG, UNIT_SUB_FLAG))

    @handles(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, EmptyRequestHeader)
    def get_shared_topics_subscribed_by_units(self, _header: EmptyRequestHeader) -> Response:
        """The topics of no unit that units subscribe to."""
        return _topic_list(self._topics_with(UNIT_FLAG | UNIT_SUB_FLAG, UNIT_SUB_FLAG))

    @handles(RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader)
    def get_kv_config(self, header: GetKVConfigRequestHeader) -> Response:
        """Nothing: a store holds no key-value configuration of a name server."""
        remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
        return Response(ResponseCode.QUERY_NOT_FOUND, remark)

    @handles(RequestCode.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceRequestHeader)
    def get_kv_list(self, header: GetKVListByNamespaceRequestHeader) -> Response:
        """The same for a whole namespace."""
        return Response(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace}")

    @handles(RequestCode.GET_NAMESRV_CONFIG, EmptyRequestHeader)
    def get_name_server_config(self, _header: EmptyRequestHeader, request: Request) -> Response:
        """What of a name server's configuration is true of us, as Java properties."""
        options = self._service.options
        properties = {
            "bindAddress": request.connection.local_address.host,
            "enableAllTopicList": "true",
            "enableTopicList": "true",
            "listenPort": str(request.connection.local_address.port),
            "orderMessageEnable": "false",
            "serverChannelMaxIdleTimeSeconds": str(options.limits.idle_seconds),
            "supportActingMaster": "false",
        }
        return Response(body=encode_properties_text(properties))

    def _broker(self, request: Request) -> BrokerData:
        return BrokerData(
            cluster=self._service.cluster,
            broker_name=self._service.broker_name,
            broker_addrs={"0": self._service.advertised_address(request.connection)},
        )

    def _all_topics(self) -> list[str]:
        leave_to_a_thread(len(self._store.config.topics))
        return topic_names(self._store)

    def _topics_with(self, mask: int, value: int) -> list[str]:
        flags = self._store.config.topics
        return sorted(name for name, topic in flags.items() if topic.topic_sys_flag & mask == value)


def encode_properties_text(properties: dict[str, str]) -> bytes:
    """A configuration as Java properties: one `name=value` a line, sorted."""
    return "".join(f"{name}={value}\n" for name, value in sorted(properties.items())).encode("utf-8")


def _topic_list(topics: list[str], broker_addr: str | None = None) -> Response:
    return Response(body=encode_json(TopicList(topic_list=topics, broker_addr=broker_addr)))
