"""Requests to a name server: the addresses of topics, brokers and clusters.

There is one broker for each store that this process serves, with id 0; each of them answers with all of them.

Every queue is listed as readable only, whatever the store's configuration says. Answers do not change from one call to
the next: clients compare them, and rebalance when they differ. Source: remoting-protocol §4.1–4.3, §5.1, §5.4.
"""

from collections.abc import Iterable

from broker.service.broker_service import BrokerService
from broker.service.dispatcher import Request, handles
from broker.service.long_work import leave_to_a_thread
from broker.service.served_brokers import ServedBrokers
from protocol.bodies import BrokerData, ClusterInfo, QueueData, TopicList, TopicRouteData, encode_json
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response, ext_field_of
from protocol.headers import (
    EmptyRequestHeader,
    GetKVConfigRequestHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
)
from storage.files.waiting import Lookup
from storage.store.topic_catalog import READ_ONLY_PERM, topic_names

NO_ROUTE = (
    "No topic route info in name server for the topic: {}\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)
"""The error text of a name server, which Java clients show to their users."""

UNIT_FLAG = 1
"""Bit of topicSysFlag: a topic of one unit."""

UNIT_SUB_FLAG = 2
"""Bit of topicSysFlag: a topic with subscriptions from units."""


class NameServerProcessor:
    """Answers requests for routes, clusters and lists of topics."""

    def __init__(self, service: BrokerService, brokers: ServedBrokers) -> None:
        self._service = service
        self._brokers = brokers

    @handles(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader)
    def get_route(self, header: GetRouteInfoRequestHeader, request: Request) -> Lookup[Response]:
        """The brokers and the readable queues of a topic."""
        yield from self._brokers.listed()
        found = list(self._brokers.with_topic(header.topic))
        if not found:
            return Response(ResponseCode.TOPIC_NOT_EXIST, NO_ROUTE.format(header.topic))
        queues = [
            QueueData(
                broker_name=service.broker_name,
                perm=READ_ONLY_PERM,
                read_queue_nums=topic.read_queue_nums,
                write_queue_nums=topic.write_queue_nums,
                topic_sys_flag=topic.topic_sys_flag,
            )
            for service, topic in found
        ]
        brokers = [self._broker(service, request) for service, _ in found]
        return Response(body=encode_json(TopicRouteData(broker_datas=brokers, queue_datas=queues)))

    @handles(RequestCode.GET_BROKER_CLUSTER_INFO, EmptyRequestHeader)
    def get_cluster_info(self, _header: EmptyRequestHeader, request: Request) -> Response:
        """All brokers, and the cluster that they are in."""
        info = ClusterInfo(broker_addr_table={}, cluster_addr_table={})
        for service in self._brokers.services:
            info.broker_addr_table[service.broker_name] = self._broker(service, request)
            info.cluster_addr_table.setdefault(service.cluster, []).append(service.broker_name)
        return Response(body=encode_json(info))

    @handles(RequestCode.GET_BROKER_MEMBER_GROUP, EmptyRequestHeader)
    def get_broker_member_group(self, _header: EmptyRequestHeader, request: Request) -> Response:
        """The brokers with a name: the served one that has it, else this one."""
        name = ext_field_of(request.command, "brokerName")
        services = [service for service in self._brokers.services if service.broker_name == name]
        group = self._broker(services[0] if services else self._service, request)
        return Response(body=encode_json({"brokerMemberGroup": group}))

    @handles(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, EmptyRequestHeader)
    def get_all_topics(self, _header: EmptyRequestHeader) -> Lookup[Response]:
        """Every topic, system and retry topics included."""
        return _topic_list((yield from self._all_topics(self._brokers.services)))

    @handles(RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader)
    def get_topics_by_cluster(self, header: GetTopicsByClusterRequestHeader) -> Lookup[Response]:
        """Every topic of the served brokers in a cluster; none for another cluster."""
        services = [service for service in self._brokers.services if service.cluster == header.cluster]
        return _topic_list((yield from self._all_topics(services)))

    @handles(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, EmptyRequestHeader)
    def get_system_topics(self, _header: EmptyRequestHeader, request: Request) -> Response:
        """The names of clusters and brokers, which count as topics, and the broker to ask for its own (code 305)."""
        services = self._brokers.services
        names = sorted({name for service in services for name in (service.cluster, service.broker_name)})
        return _topic_list(names, self._service.advertised_address(request.connection))

    @handles(RequestCode.GET_UNIT_TOPIC_LIST, EmptyRequestHeader)
    def get_unit_topics(self, _header: EmptyRequestHeader) -> Response:
        """The topics that belong to a unit."""
        return _topic_list(self._topics_with(UNIT_FLAG, UNIT_FLAG))

    @handles(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, EmptyRequestHeader)
    def get_topics_subscribed_by_units(self, _header: EmptyRequestHeader) -> Response:
        """The topics that units subscribe to."""
        return _topic_list(self._topics_with(UNIT_SUB_FLAG, UNIT_SUB_FLAG))

    @handles(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, EmptyRequestHeader)
    def get_shared_topics_subscribed_by_units(self, _header: EmptyRequestHeader) -> Response:
        """The topics that belong to no unit and that units subscribe to."""
        return _topic_list(self._topics_with(UNIT_FLAG | UNIT_SUB_FLAG, UNIT_SUB_FLAG))

    @handles(RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader)
    def get_kv_config(self, header: GetKVConfigRequestHeader) -> Response:
        """Answer that nothing is found: a store has no key-value configuration of a name server."""
        remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
        return Response(ResponseCode.QUERY_NOT_FOUND, remark)

    @handles(RequestCode.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceRequestHeader)
    def get_kv_list(self, header: GetKVListByNamespaceRequestHeader) -> Response:
        """Answer that nothing is found, as for a single key."""
        return Response(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace}")

    @handles(RequestCode.GET_NAMESRV_CONFIG, EmptyRequestHeader)
    def get_name_server_config(self, _header: EmptyRequestHeader, request: Request) -> Response:
        """The parts of a name server's configuration that apply to us, as Java properties."""
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

    def _broker(self, service: BrokerService, request: Request) -> BrokerData:
        return BrokerData(
            cluster=service.cluster,
            broker_name=service.broker_name,
            broker_addrs={"0": self._brokers.address_of(service, self._service, request.connection)},
        )

    def _all_topics(self, services: Iterable[BrokerService]) -> Lookup[list[str]]:
        """The topics of the stores, and retry topics of the groups that consume here: tools find groups by these."""
        services = list(services)
        yield from self._brokers.listed()
        yield from leave_to_a_thread(sum(len(each.store.config.topics) + len(each.clients) for each in services))
        names = {name for each in services for name in topic_names(each.store)}
        names.update(name for each in services for name in each.live_retry_topics)
        return sorted(names)

    def _topics_with(self, mask: int, value: int) -> list[str]:
        return sorted(
            {
                name
                for service in self._brokers.services
                for name, topic in service.store.config.topics.items()
                if topic.topic_sys_flag & mask == value
            }
        )


def encode_properties_text(properties: dict[str, str]) -> bytes:
    """Encode a configuration as Java properties: one `name=value` a line, sorted, in UTF-8."""
    return "".join(f"{name}={value}\n" for name, value in sorted(properties.items())).encode("utf-8")


def _topic_list(topics: list[str], broker_addr: str | None = None) -> Response:
    return Response(body=encode_json(TopicList(topic_list=topics, broker_addr=broker_addr)))
