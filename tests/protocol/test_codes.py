"""Codes against what the real broker and clients said on the wire, and against RocketMQ's own constants."""

from enum import IntEnum

import pytest

from protocol.codes import VERSION_5_3_3, LanguageCode, RequestCode, ResponseCode, SerializeType
from recorded_headers import recorded_frames

RESPONSE_FLAG = 1

# Some of each family, as the Java classes of the same names in 5.5.1 have them.
CONSTANTS = [
    (RequestCode, "SEND_MESSAGE", 10),
    (RequestCode, "PULL_MESSAGE", 11),
    (RequestCode, "QUERY_MESSAGE", 12),
    (RequestCode, "UPDATE_CONSUMER_OFFSET", 15),
    (RequestCode, "GET_BROKER_RUNTIME_INFO", 28),
    (RequestCode, "VIEW_MESSAGE_BY_ID", 33),
    (RequestCode, "HEART_BEAT", 34),
    (RequestCode, "CHECK_CLIENT_CONFIG", 46),
    (RequestCode, "GET_BROKER_CLUSTER_ACL_INFO", 52),
    (RequestCode, "GET_ROUTEINFO_BY_TOPIC", 105),
    (RequestCode, "GET_BROKER_CLUSTER_INFO", 106),
    (RequestCode, "GET_ALL_SUBSCRIPTIONGROUP_CONFIG", 201),
    (RequestCode, "GET_CONSUME_STATS", 208),
    (RequestCode, "GET_TOPICS_BY_CLUSTER", 224),
    (RequestCode, "QUERY_TOPIC_CONSUME_BY_WHO", 300),
    (RequestCode, "SEND_MESSAGE_V2", 310),
    (RequestCode, "GET_BROKER_CONSUME_STATS", 317),
    (RequestCode, "QUERY_CONSUME_QUEUE", 321),
    (RequestCode, "GET_TOPIC_CONFIG", 351),
    (RequestCode, "LITE_PULL_MESSAGE", 361),
    (RequestCode, "GET_BROKER_HA_STATUS", 907),
    (RequestCode, "CONTROLLER_APPLY_BROKER_ID", 1013),
    (RequestCode, "AUTH_LIST_ACL", 3010),
    (RequestCode, "DELETE_TOPIC_IN_BROKER_LIST", 5002),
    (RequestCode, "DELETE_SUBSCRIPTION_GROUP_LIST", 5003),
    (RequestCode, "POP_MESSAGE", 200050),
    (RequestCode, "BATCH_ACK_MESSAGE", 200151),
    (ResponseCode, "SUCCESS", 0),
    (ResponseCode, "SYSTEM_ERROR", 1),
    (ResponseCode, "REQUEST_CODE_NOT_SUPPORTED", 3),
    (ResponseCode, "NO_PERMISSION", 16),
    (ResponseCode, "TOPIC_NOT_EXIST", 17),
    (ResponseCode, "PULL_NOT_FOUND", 19),
    (ResponseCode, "PULL_RETRY_IMMEDIATELY", 20),
    (ResponseCode, "PULL_OFFSET_MOVED", 21),
    (ResponseCode, "QUERY_NOT_FOUND", 22),
    (ResponseCode, "CONSUMER_NOT_ONLINE", 206),
    (ResponseCode, "NO_MESSAGE", 208),
    (ResponseCode, "GO_AWAY", 1500),
    (ResponseCode, "LITE_SUBSCRIPTION_QUOTA_EXCEEDED", 2018),
    (ResponseCode, "POLICY_NOT_EXIST", 3002),
    (ResponseCode, "RPC_TIME_OUT", -1006),
    (LanguageCode, "JAVA", 0),
    (LanguageCode, "GO", 9),
    (LanguageCode, "NODE_JS", 13),
    (SerializeType, "JSON", 0),
    (SerializeType, "ROCKETMQ", 1),
]


@pytest.mark.parametrize(("kind", "name", "value"), CONSTANTS)
def test_a_code_has_the_value_of_its_java_constant(kind: type[IntEnum], name: str, value: int) -> None:
    assert kind[name] == value


@pytest.mark.parametrize(
    ("kind", "count"), [(RequestCode, 166 + 4), (ResponseCode, 68), (LanguageCode, 14), (SerializeType, 2)]
)
def test_all_java_constants_are_there_and_no_two_share_a_value(kind: type[IntEnum], count: int) -> None:
    assert len(kind.__members__) == len(list(kind)) == count


def test_every_recorded_code_and_language_is_known() -> None:
    headers = [frame.header for frame in recorded_frames() if frame.header]
    assert {bool(header["flag"] & RESPONSE_FLAG) for header in headers} == {True, False}
    for header in headers:
        kind = ResponseCode if header["flag"] & RESPONSE_FLAG else RequestCode
        assert header["code"] in list(kind)
        assert header["language"] in LanguageCode.__members__


def test_our_version_lets_sql_subscribers_in_and_fits_an_i16() -> None:
    assert 232 <= VERSION_5_3_3 < 2**15
