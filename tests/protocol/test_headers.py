"""Header classes against RocketMQ's: names and mandatory fields by a table, types by every recorded request."""

import inspect

import msgspec
import pytest

from protocol import headers
from protocol.codes import RequestCode
from protocol.command import Command, decode_command, decode_header, encode_request, ext_fields_of
from protocol.errors import BadHeader
from protocol.frame import FrameDecoder
from protocol.header_fields import field_plans, header_from_texts
from protocol.headers import RequestHeader
from recorded_headers import recorded_frames

# Fields as the Java classes of 5.5.0 declare them; * for @CFNotNull, except where a client may send no field at all
# (GetAllTopicConfig, GetAllSubscriptionGroup) and where Java cannot do without (topic of QueryConsumeQueue).
FIELDS = {
    "EmptyRequestHeader": "",
    "QueryMessageRequestHeader": "topic* key* maxNum* beginTimestamp* endTimestamp* indexType lastKey "
    "_UNIQUE_KEY_QUERY",
    "ViewMessageRequestHeader": "offset* topic",
    "PullMessageRequestHeader": "consumerGroup* topic* queueId* queueOffset* maxMsgNums* sysFlag* commitOffset* "
    "suspendTimeoutMillis* subVersion* subscription expressionType maxMsgBytes liteTopic requestSource "
    "proxyFrowardClientId",
    "QueryConsumeQueueRequestHeader": "topic* queueId index count consumerGroup",
    "GetMaxOffsetRequestHeader": "topic* queueId* committed",
    "GetMinOffsetRequestHeader": "topic* queueId*",
    "SearchOffsetRequestHeader": "topic* queueId* timestamp* boundaryType liteTopic",
    "GetEarliestMsgStoretimeRequestHeader": "topic* queueId*",
    "QueryConsumerOffsetRequestHeader": "consumerGroup* topic* queueId* setZeroIfNotFound",
    "UpdateConsumerOffsetRequestHeader": "consumerGroup* topic* queueId* commitOffset*",
    "GetRouteInfoRequestHeader": "topic* acceptStandardJsonOnly",
    "GetTopicStatsInfoRequestHeader": "topic*",
    "GetTopicConfigRequestHeader": "topic*",
    "GetAllTopicConfigRequestHeader": "topicSeq dataVersion maxTopicNum",
    "GetTopicsByClusterRequestHeader": "cluster*",
    "QueryTopicConsumeByWhoRequestHeader": "topic*",
    "QueryTopicsByConsumerRequestHeader": "group*",
    "GetConsumerListByGroupRequestHeader": "consumerGroup*",
    "GetConsumerConnectionListRequestHeader": "consumerGroup*",
    "GetProducerConnectionListRequestHeader": "producerGroup*",
    "GetConsumeStatsRequestHeader": "consumerGroup* topic topicList",
    "GetConsumeStatsInBrokerHeader": "isOrder*",
    "QueryConsumeTimeSpanRequestHeader": "topic* group*",
    "QuerySubscriptionByConsumerRequestHeader": "group* topic",
    "GetAllSubscriptionGroupRequestHeader": "groupSeq dataVersion maxGroupNum",
    "GetSubscriptionGroupConfigRequestHeader": "group*",
    "UnregisterClientRequestHeader": "clientID* producerGroup consumerGroup",
    "GetConsumerRunningInfoRequestHeader": "consumerGroup* clientId* jstackEnable",
    "ConsumeMessageDirectlyResultRequestHeader": "consumerGroup* clientId msgId brokerName topic topicSysFlag "
    "groupSysFlag",
    "ViewBrokerStatsDataRequestHeader": "statsName* statsKey*",
    "GetKVConfigRequestHeader": "namespace* key*",
    "GetKVListByNamespaceRequestHeader": "namespace*",
}

HEADER_TYPES = {
    name: member
    for name, member in inspect.getmembers(headers, inspect.isclass)
    if issubclass(member, RequestHeader) and member is not RequestHeader
}

# What each recorded request carries.
TYPE_OF_CODE: dict[RequestCode, type[RequestHeader]] = {
    RequestCode.PULL_MESSAGE: headers.PullMessageRequestHeader,
    RequestCode.LITE_PULL_MESSAGE: headers.PullMessageRequestHeader,
    RequestCode.QUERY_MESSAGE: headers.QueryMessageRequestHeader,
    RequestCode.VIEW_MESSAGE_BY_ID: headers.ViewMessageRequestHeader,
    RequestCode.QUERY_CONSUMER_OFFSET: headers.QueryConsumerOffsetRequestHeader,
    RequestCode.UPDATE_CONSUMER_OFFSET: headers.UpdateConsumerOffsetRequestHeader,
    RequestCode.GET_ALL_TOPIC_CONFIG: headers.GetAllTopicConfigRequestHeader,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: headers.SearchOffsetRequestHeader,
    RequestCode.GET_MAX_OFFSET: headers.GetMaxOffsetRequestHeader,
    RequestCode.GET_MIN_OFFSET: headers.GetMinOffsetRequestHeader,
    RequestCode.GET_EARLIEST_MSG_STORETIME: headers.GetEarliestMsgStoretimeRequestHeader,
    RequestCode.UNREGISTER_CLIENT: headers.UnregisterClientRequestHeader,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: headers.GetConsumerListByGroupRequestHeader,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: headers.GetRouteInfoRequestHeader,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: headers.GetAllSubscriptionGroupRequestHeader,
    RequestCode.GET_TOPIC_STATS_INFO: headers.GetTopicStatsInfoRequestHeader,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: headers.GetConsumerConnectionListRequestHeader,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: headers.GetProducerConnectionListRequestHeader,
    RequestCode.GET_CONSUME_STATS: headers.GetConsumeStatsRequestHeader,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: headers.QueryTopicConsumeByWhoRequestHeader,
    RequestCode.VIEW_BROKER_STATS_DATA: headers.ViewBrokerStatsDataRequestHeader,
    RequestCode.GET_BROKER_CONSUME_STATS: headers.GetConsumeStatsInBrokerHeader,
    RequestCode.QUERY_CONSUME_QUEUE: headers.QueryConsumeQueueRequestHeader,
    RequestCode.GET_TOPIC_CONFIG: headers.GetTopicConfigRequestHeader,
}
WITHOUT_FIELDS = {
    RequestCode.GET_BROKER_CONFIG,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.HEART_BEAT,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.CHECK_CLIENT_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    RequestCode.GET_NAMESRV_CONFIG,
    RequestCode.GET_BROKER_HA_STATUS,
    RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
}

# Fields that any request may carry and no header class lists, and those of signed requests.
COMMON = {"ns", "nsd", "bname", "lo", "oway", "ReqT", "AccessKey", "Signature"}

# What a broker sends, to its name server and to consumers.
IGNORED = {RequestCode.REGISTER_BROKER, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED}


def recorded_requests() -> list[tuple[Command, dict[str, str]]]:
    found = []
    for frame in recorded_frames():
        if frame.binary:
            command = decode_command((1, frame.binary, frame.body))
            header = headers_of(command)
        elif frame.header["flag"] & 1:
            continue
        else:
            command = decode_command((0, msgspec.json.encode(frame.header), frame.body))
            header = frame.header.get("extFields", {})
        if not command.is_response and command.code not in IGNORED:
            found.append((command, header))
    return found


def headers_of(command: Command) -> dict[str, str]:
    return ext_fields_of(command)


def as_texts(header: RequestHeader) -> dict[str, str]:
    """A header's fields as a Java client would write them, those without a value left out."""
    texts = {}
    for field in msgspec.structs.fields(header):
        value = getattr(header, field.name)
        if value is not None:
            texts[field.encode_name] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def test_the_table_lists_every_header() -> None:
    assert set(FIELDS) == set(HEADER_TYPES)


@pytest.mark.parametrize("name", FIELDS)
def test_a_header_has_the_fields_of_its_java_class(name: str) -> None:
    fields = field_plans(HEADER_TYPES[name])
    assert {field.wire_name + "*" * field.is_required for field in fields} == set(FIELDS[name].split())


@pytest.mark.parametrize("name", FIELDS)
def test_a_header_without_its_fields_names_the_first_one_missing(name: str) -> None:
    command = decode_command((0, b'{"code":1}', b""))
    mandatory = [field.wire_name for field in field_plans(HEADER_TYPES[name]) if field.is_required]
    if mandatory:
        with pytest.raises(BadHeader) as caught:
            decode_header(command, HEADER_TYPES[name])
        assert str(caught.value) == f"{mandatory[0]} is missing"
    else:
        assert decode_header(command, HEADER_TYPES[name]) == HEADER_TYPES[name]()


def test_every_recorded_request_is_decoded_field_by_field() -> None:
    requests = recorded_requests()
    assert len(requests) > 600
    assert {command.code for command, _ in requests} == {*TYPE_OF_CODE, *WITHOUT_FIELDS}
    for command, recorded in requests:
        header_type = TYPE_OF_CODE.get(RequestCode(command.code), headers.EmptyRequestHeader)
        header = decode_header(command, header_type)
        texts = as_texts(header)
        known = {name: text for name, text in recorded.items() if name not in COMMON}
        assert {name: texts.get(name) for name in known} == known


@pytest.mark.parametrize("name", [name for name in FIELDS if FIELDS[name]])
def test_the_fast_and_the_lenient_way_agree(name: str) -> None:
    header_type = HEADER_TYPES[name]
    texts = {field.wire_name: "7" for field in field_plans(header_type)}
    (fast,) = FrameDecoder().feed(encode_request(1, texts, opaque=1))
    assert as_texts(decode_header(decode_command(fast), header_type)) == as_texts(header_from_texts(header_type, texts))


def test_headers_are_immutable() -> None:
    header = headers.ViewMessageRequestHeader(offset=1)
    with pytest.raises(AttributeError):
        header.offset = 2  # type: ignore[misc]
