"""Headers and bodies of requests: recorded ones, those of the Java classes, and any."""

import inspect
import json
from enum import StrEnum
from pathlib import Path

import msgspec
import pytest

from body_samples import SAMPLES
from broker.service.dispatcher import handled_methods
from broker.service.request_families import PROCESSORS
from golden_frames import parse_java_json, recorded_frames
from protocol import bodies, headers
from protocol.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from protocol.command import decode_command, decode_header, ext_fields_of
from protocol.errors import BadCommand, BadHeader
from protocol.header_fields import I32, I64, field_plans, header_from_texts
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


def recorded_requests():
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
    texts = {}
    for field in msgspec.structs.fields(header):
        value = getattr(header, field.name)
        if value is not None:
            texts[field.encode_name] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def test_a_header_has_the_fields_of_its_java_class() -> None:
    # The table lists every header.
    assert set(FIELDS) == set(HEADER_TYPES)
    # A header has the fields of its java class.
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


class Choice(StrEnum):
    LOWER = "LOWER"
    UPPER = "UPPER"


class Needed(msgspec.Struct, rename="camel"):
    some_int: I32
    some_long: I64
    some_text: str


class Optional(msgspec.Struct, rename="camel"):
    some_int: I32 | None = None
    some_long: I64 = -1
    some_text: str | None = None
    some_flag: bool = True
    other_flag: bool | None = None
    choice: Choice = Choice.LOWER


GOOD = {"someInt": "1", "someLong": "2", "someText": "x"}

# (text, Integer.parseInt, Long.parseLong): None where Java leaves the field null.
NUMBERS = [
    ("1", 1, 1), ("+1", 1, 1), ("-0", 0, 0), ("007", 7, 7), (" 1", None, None), ("1 ", None, None), ("1_0", None, None),
    ("1e3", None, None), ("1.0", None, None), ("0x10", None, None), ("--1", None, None), ("", None, None),
    ("true", None, None), ("2147483647", 2**31 - 1, 2**31 - 1), ("2147483648", None, 2**31),
    ("-2147483648", -(2**31), -(2**31)), ("9223372036854775807", None, 2**63 - 1), ("9223372036854775808", None, None),
    ("-9223372036854775808", None, -(2**63)), ("9" * 100_000, None, None),
]  # fmt: skip


def test_numbers_are_what_java_parses() -> None:
    for text, as_int, as_long in NUMBERS:
        for name, expected, bits in (("someInt", as_int, 32), ("someLong", as_long, 64)):
            if expected is None:
                with pytest.raises(BadHeader) as caught:
                    header_from_texts(Needed, GOOD | {name: text})
                assert (caught.value.field, caught.value.value) == (name, text)
                assert caught.value.reason == f"is no {bits}-bit integer"
            else:
                header = header_from_texts(Needed, GOOD | {name: text})
                assert getattr(header, "some_" + name[4:].lower()) == expected


def test_an_empty_number_or_boolean_is_absent_but_an_empty_text_is_a_text() -> None:
    empty = dict.fromkeys(("someInt", "someLong", "someText", "someFlag", "otherFlag", "choice"), "")
    assert header_from_texts(Optional, empty) == Optional(some_text="")


RESPONSE_FLAG = 1

# Those that the file below does not list, as the Java classes of the same names in 5.5.1 have them.
CONSTANTS = [
    (RequestCode, "DELETE_TOPIC_IN_BROKER_LIST", 5002), (RequestCode, "DELETE_SUBSCRIPTION_GROUP_LIST", 5003),
    (LanguageCode, "JAVA", 0), (LanguageCode, "GO", 9), (LanguageCode, "NODE_JS", 13), (SerializeType, "JSON", 0),
    (SerializeType, "ROCKETMQ", 1),
]  # fmt: skip

JAVA_CODES = Path(__file__).parents[1] / "data" / "java-codes.tsv"
"""Class, name and value of each constant: what `javap -constants` prints of the jar of remoting 5.5.0, where
RemotingSysResponseCode is what ResponseCode extends, and at the end the four of 4.9.8 that 5.5.0 has no more."""

NEVER_ON_THE_WIRE = set(range(1014, 1019))
"""What controllers say to themselves, in the log that they replicate."""


@pytest.mark.parametrize(
    ("kind", "classes"), [(RequestCode, {"RequestCode"}), (ResponseCode, {"ResponseCode", "RemotingSysResponseCode"})]
)
def test_the_codes_are_all_constants_of_the_java_classes(kind, classes) -> None:
    rows = [line.split("\t") for line in JAVA_CODES.read_text().splitlines()]
    java = {name: int(value) for class_, name, value in rows if class_ in classes}
    assert len(java) > 60
    java |= {name: value for newer, name, value in CONSTANTS if newer is kind}
    expected = {name: value for name, value in java.items() if kind is ResponseCode or value not in NEVER_ON_THE_WIRE}
    assert {name: int(code) for name, code in kind.__members__.items()} == expected


def test_every_recorded_code_and_language_is_known() -> None:
    headers = [frame.header for frame in recorded_frames() if frame.header]
    assert {bool(header["flag"] & RESPONSE_FLAG) for header in headers} == {True, False}
    for header in headers:
        kind = ResponseCode if header["flag"] & RESPONSE_FLAG else RequestCode
        assert header["code"] in list(kind)
        assert header["language"] in LanguageCode.__members__


READ_ALONE = {
    bodies.ConsumerOffsetTable,
    bodies.SubscriptionGroupTable,
    bodies.TopicConfigTable,
    bodies.TopicOffsets,
    bodies.TopicQueues,
}
"""What our client reads of answers that `storage.layout.store_config` writes."""

# Which struct reads and writes the recorded body of a code, request or answer.
KIND_OF_CODE = {
    34: bodies.HeartbeatData,
    41: bodies.LockBatchRequestBody,
    42: bodies.LockBatchRequestBody,
    46: bodies.CheckClientRequestBody,
}
KIND_OF_ANSWER = {
    28: bodies.KVTable, 38: bodies.GetConsumerListByGroupResponseBody, 41: bodies.LockBatchResponseBody,
    105: bodies.TopicRouteData, 106: bodies.ClusterInfo, 206: bodies.TopicList, 300: bodies.GroupList,
    305: bodies.TopicList, 315: bodies.BrokerStatsData, 321: bodies.QueryConsumeQueueResponseBody,
    907: bodies.HARuntimeInfo,
}  # fmt: skip


def test_every_struct_is_encoded_and_equals_its_sample() -> None:
    # A body equals the sample as values.
    for value, text in SAMPLES:
        assert parse_java_json(bodies.encode_json(value).decode()) == parse_java_json(text)
    # Every struct is encoded somewhere above.
    seen: set[type] = set()
    todo = [value for value, _ in SAMPLES]
    while todo:
        value = todo.pop()
        if isinstance(value, msgspec.Struct):
            seen.add(type(value))
            todo += [getattr(value, name) for name in value.__struct_fields__]
        elif isinstance(value, dict | list):
            todo += value.values() if isinstance(value, dict) else value
    within_raw = {bodies.TopicOffset, bodies.OffsetWrapper}
    structs = {
        member
        for name, member in inspect.getmembers(bodies, inspect.isclass)
        if member.__module__ == bodies.__name__ and not name.startswith("_")
    }
    assert structs == seen | within_raw | READ_ALONE | {bodies.CheckClientRequestBody}


def coded_frames():
    """Each recorded frame with a header, the code of the request that it is or answers, and whether it answers it."""
    codes = {}
    for frame in recorded_frames():
        if frame.header and frame.header["flag"] & 1:
            yield frame, codes.get((frame.destination, frame.source, frame.header["opaque"]), 0), True
        elif frame.header:
            codes[frame.source, frame.destination, frame.header["opaque"]] = frame.header["code"]
            yield frame, frame.header["code"], False


def test_what_our_client_reads_alone_is_read_from_recorded_answers() -> None:
    kinds = {
        RequestCode.GET_ALL_TOPIC_CONFIG: bodies.TopicConfigTable,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: bodies.SubscriptionGroupTable,
        RequestCode.GET_TOPIC_STATS_INFO: bodies.TopicOffsets,
    }
    answers = [(code, frame.body) for frame, code, is_answer in coded_frames() if is_answer and frame.body]
    found = {code: bodies.decode_json(body, kinds[code]) for code, body in answers if code in kinds}
    topics, groups, offsets = (found[code] for code in kinds)
    assert topics.topic_config_table["TopicTest"] == bodies.TopicQueues(4, 4, {})
    assert topics.topic_config_table["SCHEDULE_TOPIC_XXXX"] == bodies.TopicQueues(18, 18, {})
    assert {"CG_TAG", "CG_SQL", "TOOLS_CONSUMER"} <= groups.subscription_group_table.keys()
    assert offsets.by_queue().keys() == {0, 1, 2, 3}


def test_recorded_bodies_are_read_and_written_with_equal_values() -> None:
    coded = [(KIND_OF_ANSWER if answers else KIND_OF_CODE, code, frame.body) for frame, code, answers in coded_frames()]
    recorded = [(kinds[code], body) for kinds, code, body in coded if code in kinds and body]
    assert {kind for kind, _ in recorded} == {*KIND_OF_CODE.values(), *KIND_OF_ANSWER.values()}
    for kind, body in recorded:
        expected = parse_java_json(body.decode())
        if kind is bodies.CheckClientRequestBody:
            expected["namespace"] = None
        assert parse_java_json(bodies.encode_json(bodies.decode_json(body, kind)).decode()) == expected


def test_a_cpp_heartbeat_names_its_enums_by_number() -> None:
    consumer = {"groupName": "G", "consumeType": 1, "messageModel": 1, "consumeFromWhere": 4, "subscriptionDataSet": []}
    found = bodies.decode_json(
        json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode(), bodies.HeartbeatData
    )
    assert found.consumer_data_set == [
        bodies.ConsumerData("G", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET")
    ]


def test_go_heartbeats_have_nulls_and_quoted_hashes() -> None:
    subscription = {"topic": "T", "subString": "TagA", "tagsSet": ["TagA"], "codeSet": ["2598919"], "subVersion": 1}
    data = {
        "clientID": "c",
        "producerDataSet": None,
        "consumerDataSet": [
            {"groupName": "G", "subscriptionDataSet": [subscription, None]},
            {"groupName": "H", "subscriptionDataSet": None, "unitMode": None},
        ],
    }
    found = bodies.decode_json(json.dumps(data).encode(), bodies.HeartbeatData)
    assert found.producer_data_set == []
    assert [consumer.group_name for consumer in found.consumer_data_set] == ["G", "H"]
    (kept,) = found.consumer_data_set[0].subscription_data_set
    assert (kept.code_set, kept.tags_set, kept.expression_type) == ([2598919], ["TagA"], "TAG")


@pytest.mark.untraced  # at the end of the stack a tracer fails itself
@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":' * 100_000, b'{"clientID":' + b"[" * 400 + b"]" * 400 + b"}"])
def test_deep_bodies_are_refused(data: bytes) -> None:
    with pytest.raises(BadCommand):
        bodies.decode_json(data, bodies.HeartbeatData)
