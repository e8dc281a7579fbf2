"""Bodies against the recorded ones (equal as values, in the strict form) and against what clients of all kinds send."""

import inspect
import json

import msgspec
import pytest

from body_samples import SAMPLES
from golden_frames import parse_java_json, recorded_frames
from protocol import bodies
from protocol.bodies import (
    BrokerStatsData,
    CheckClientRequestBody,
    ClusterInfo,
    ConsumerData,
    ConsumerOffsetTable,
    GetConsumerListByGroupResponseBody,
    GroupList,
    HARuntimeInfo,
    HeartbeatData,
    KVTable,
    LockBatchRequestBody,
    LockBatchResponseBody,
    OffsetWrapper,
    QueryConsumeQueueResponseBody,
    SubscriptionGroupTable,
    TopicConfigTable,
    TopicList,
    TopicOffset,
    TopicOffsets,
    TopicQueues,
    TopicRouteData,
    decode_json,
    encode_json,
)
from protocol.codes import RequestCode
from protocol.errors import BadCommand

READ_ALONE = {ConsumerOffsetTable, SubscriptionGroupTable, TopicConfigTable, TopicOffsets, TopicQueues}
"""What our client reads of answers that `storage.layout.store_config` writes."""

# Which struct reads and writes the recorded body of a code, request or answer.
KIND_OF_CODE = {34: HeartbeatData, 41: LockBatchRequestBody, 42: LockBatchRequestBody, 46: CheckClientRequestBody}
KIND_OF_ANSWER = {
    28: KVTable,
    38: GetConsumerListByGroupResponseBody,
    41: LockBatchResponseBody,
    105: TopicRouteData,
    106: ClusterInfo,
    206: TopicList,
    300: GroupList,
    305: TopicList,
    315: BrokerStatsData,
    321: QueryConsumeQueueResponseBody,
    907: HARuntimeInfo,
}


def test_a_body_equals_the_sample_as_values() -> None:
    for value, text in SAMPLES:
        assert parse_java_json(encode_json(value).decode()) == parse_java_json(text)


def test_every_struct_is_encoded_somewhere_above() -> None:
    seen: set[type] = set()
    todo = [value for value, _ in SAMPLES]
    while todo:
        value = todo.pop()
        if isinstance(value, msgspec.Struct):
            seen.add(type(value))
            todo += [getattr(value, name) for name in value.__struct_fields__]
        elif isinstance(value, dict | list):
            todo += value.values() if isinstance(value, dict) else value
    within_raw = {TopicOffset, OffsetWrapper}
    structs = {
        member
        for name, member in inspect.getmembers(bodies, inspect.isclass)
        if member.__module__ == bodies.__name__ and not name.startswith("_")
    }
    assert structs == seen | within_raw | READ_ALONE | {CheckClientRequestBody}


def test_what_our_client_reads_alone_is_read_from_recorded_answers() -> None:
    topics, groups, offsets = recorded_answers(
        {
            RequestCode.GET_ALL_TOPIC_CONFIG: TopicConfigTable,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: SubscriptionGroupTable,
            RequestCode.GET_TOPIC_STATS_INFO: TopicOffsets,
        }
    )
    assert topics.topic_config_table["TopicTest"] == TopicQueues(4, 4, {})
    assert topics.topic_config_table["SCHEDULE_TOPIC_XXXX"] == TopicQueues(18, 18, {})
    assert {"CG_TAG", "CG_SQL", "TOOLS_CONSUMER"} <= groups.subscription_group_table.keys()
    assert offsets.by_queue().keys() == {0, 1, 2, 3}


def recorded_answers(kinds):
    codes: dict[tuple[int, int, int], int] = {}
    found = {}
    for frame in recorded_frames():
        if frame.header and frame.header["flag"] & 1:
            code = codes.get((frame.destination, frame.source, frame.header["opaque"]), 0)
            if code in kinds and frame.body:
                found[code] = decode_json(frame.body, kinds[code])
        elif frame.header:
            codes[frame.source, frame.destination, frame.header["opaque"]] = frame.header["code"]
    return [found[code] for code in kinds]


def recorded_bodies():
    codes: dict[tuple[int, int, int], int] = {}
    found = []
    for frame in recorded_frames():
        if not frame.header:
            continue
        code, opaque = frame.header["code"], frame.header["opaque"]
        if frame.header["flag"] & 1:
            code = codes.get((frame.destination, frame.source, opaque), 0)
            kind = KIND_OF_ANSWER.get(code)
        else:
            codes[frame.source, frame.destination, opaque] = code
            kind = KIND_OF_CODE.get(code)
        if kind is not None and frame.body:
            found.append((kind, frame.body))
    return found


def test_recorded_bodies_are_read_and_written_with_equal_values() -> None:
    recorded = recorded_bodies()
    assert {kind for kind, _ in recorded} == {*KIND_OF_CODE.values(), *KIND_OF_ANSWER.values()}
    for kind, body in recorded:
        expected = parse_java_json(body.decode())
        if kind is CheckClientRequestBody:
            expected["namespace"] = None
        assert parse_java_json(encode_json(decode_json(body, kind)).decode()) == expected


def test_a_cpp_heartbeat_names_its_enums_by_number() -> None:
    consumer = {"groupName": "G", "consumeType": 1, "messageModel": 1, "consumeFromWhere": 4, "subscriptionDataSet": []}
    found = decode_json(json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode(), HeartbeatData)
    assert found.consumer_data_set == [
        ConsumerData("G", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET")
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
    found = decode_json(json.dumps(data).encode(), HeartbeatData)
    assert found.producer_data_set == []
    assert [consumer.group_name for consumer in found.consumer_data_set] == ["G", "H"]
    (kept,) = found.consumer_data_set[0].subscription_data_set
    assert (kept.code_set, kept.tags_set, kept.expression_type) == ([2598919], ["TagA"], "TAG")


@pytest.mark.untraced  # at the end of the stack a tracer fails itself
@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":' * 100_000, b'{"clientID":' + b"[" * 400 + b"]" * 400 + b"}"])
def test_deep_bodies_are_refused(data: bytes) -> None:
    with pytest.raises(BadCommand):
        decode_json(data, HeartbeatData)
