"""Heartbeats, clients that unregister, and what is answered about clients."""

import json

import pytest

from asking import Asker
from heartbeats import consumer, heartbeat, subscription
from protocol.codes import RequestCode, ResponseCode


def test_a_client_that_takes_leave_of_a_group_is_gone_from_that_group_alone(g1: Asker) -> None:
    g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G"), consumer("H"), producers=("P",)))
    assert g1.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c1", "consumerGroup": "G"}).code == 0
    assert g1.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"}).code == ResponseCode.SYSTEM_ERROR
    assert g1.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "H"}).code == 0
    assert g1.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c1", "producerGroup": "P"}).code == 0
    assert g1.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "P"}).code == ResponseCode.SYSTEM_ERROR


def test_producers_are_told_with_their_addresses_and_languages(g1: Asker) -> None:
    g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", producers=("P",)))
    assert g1.value(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "P"}) == {
        "connectionSet": [{"clientAddr": "127.0.0.1:40001", "clientId": "c1", "language": "JAVA", "version": 479}]
    }
    (info,) = g1.value(RequestCode.GET_ALL_PRODUCER_INFO)["data"]["P"]
    assert (info["remoteIP"], info["clientId"], info["version"]) == ("/127.0.0.1:40001", "c1", 479)
    assert info["lastUpdateTimestamp"] > 1_700_000_000_000


@pytest.mark.parametrize(
    ("expression", "kind", "code"),
    [
        ("TagA || TagB", "TAG", 0),
        ("||", "TAG", 0),
        ("a > 1", "SQL92", 0),
        ("a >", "SQL92", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("", "SQL92", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("x", "tag", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
)
def test_a_subscription_is_checked_by_compiling_it_unless_it_is_by_tags(
    expression: str, kind: str, code: int, g1: Asker
) -> None:
    data = {"clientId": "c1", "group": "G", "subscriptionData": subscription("TopicTest", expression, kind=kind)}
    answer = g1.ask(RequestCode.CHECK_CLIENT_CONFIG, body=json.dumps(data).encode())
    assert answer.code == code
    assert (answer.remark is None) is (code == 0)
