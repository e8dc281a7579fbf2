"""Header classes against RocketMQ's: names and mandatory fields by a table, types by every recorded request."""

import inspect

import msgspec

from broker.service.dispatcher import handled_methods
from broker.service.request_families import PROCESSORS
from golden_frames import recorded_frames
from protocol import headers
from protocol.codes import RequestCode
from protocol.command import Command, decode_command, decode_header, ext_fields_of
from protocol.header_fields import field_plans
from protocol.headers import RequestHeader

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

# What each recorded request carries, by what answers it.
TYPE_OF_CODE = {int(code): header for family in PROCESSORS for code, header, _ in handled_methods(family)}
# Fields that any request may carry and no header class lists, and those of signed requests.
COMMON = {"ns", "nsd", "bname", "lo", "oway", "ReqT", "AccessKey", "Signature"}

# What a broker sends, to its name server and to consumers.
IGNORED = {RequestCode.REGISTER_BROKER, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED}


def recorded_requests() -> list[tuple[Command, dict[str, str]]]:
    found = []
    for frame in recorded_frames():
        if frame.binary:
            command = decode_command((1, frame.binary, frame.body))
            header = ext_fields_of(command)
        elif frame.header["flag"] & 1:
            continue
        else:
            command = decode_command((0, msgspec.json.encode(frame.header), frame.body))
            header = frame.header.get("extFields", {})
        if not command.is_response and command.code not in IGNORED:
            found.append((command, header))
    return found


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


def test_a_header_has_the_fields_of_its_java_class() -> None:
    for name in FIELDS:
        fields = field_plans(HEADER_TYPES[name])
        assert {field.wire_name + "*" * field.is_required for field in fields} == set(FIELDS[name].split())


def test_every_recorded_request_is_decoded_field_by_field() -> None:
    requests = recorded_requests()
    assert len(requests) > 600
    assert len({command.code for command, _ in requests}) > 30
    for command, recorded in requests:
        texts = as_texts(decode_header(command, TYPE_OF_CODE.get(command.code, headers.EmptyRequestHeader)))
        known = {name: text for name, text in recorded.items() if name not in COMMON}
        assert {name: texts.get(name) for name in known} == known
