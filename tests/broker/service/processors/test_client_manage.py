"""Heartbeats, clients that unregister, and what is answered about clients."""

import json
from pathlib import Path

import pytest

from asking import Asker, FakeConnection
from broker.endpoint import Endpoint
from heartbeats import consumer, heartbeat, subscription
from protocol.codes import RequestCode, ResponseCode


@pytest.fixture
def g1(g1_store: Path) -> Asker:
    return Asker(g1_store)


def test_a_heartbeat_is_taken_in_and_its_answer_names_no_features(g1: Asker) -> None:
    answer = g1.ask(
        RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G", subscription("TopicTest")), producers=("P",))
    )
    assert (answer.code, answer.remark, answer.ext_fields, bytes(answer.body)) == (0, None, None, b"")
    assert g1.value(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"}) == {"consumerIdList": ["c1"]}
    assert (
        g1.value(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "P"})["connectionSet"][0]["clientId"]
        == "c1"
    )


def test_a_heartbeat_without_groups_is_a_sign_of_life_and_no_more(g1: Asker) -> None:
    assert g1.ask(RequestCode.HEART_BEAT, body=b'{"clientID":"c1"}').code == 0
    assert g1.value(RequestCode.GET_ALL_PRODUCER_INFO) == {"data": {}}


@pytest.mark.parametrize(
    "body", [b"", b"no JSON", b"[]", b'{"consumerDataSet":[]}', b'{"clientID":1,"consumerDataSet":7}']
)
def test_a_heartbeat_that_is_none_is_answered_saying_what_is_wrong(body: bytes, g1: Asker) -> None:
    answer = g1.ask(RequestCode.HEART_BEAT, body=body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "HeartbeatData" in (answer.remark or "")


def test_a_client_that_takes_leave_of_a_group_is_gone_from_that_group_alone(g1: Asker) -> None:
    g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G"), consumer("H"), producers=("P",)))
    assert g1.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c1", "consumerGroup": "G"}).code == 0
    assert g1.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"}).code == ResponseCode.SYSTEM_ERROR
    assert g1.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "H"}).code == 0
    assert g1.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c1", "producerGroup": "P"}).code == 0
    assert g1.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "P"}).code == ResponseCode.SYSTEM_ERROR


def test_leaving_a_group_one_never_joined_is_no_error(g1: Asker) -> None:
    assert (
        g1.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c9", "consumerGroup": "No", "producerGroup": "No"}).code
        == 0
    )


def test_a_client_whose_connection_is_gone_is_gone_without_a_word(g1: Asker) -> None:
    other = FakeConnection(peer_address=Endpoint("127.0.0.1", 40002))
    g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G")))
    g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c2", consumer("G")), connection=other)
    assert g1.value(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"})["consumerIdList"] == ["c1", "c2"]
    other.is_open = False
    assert g1.value(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"})["consumerIdList"] == ["c1"]


def test_producers_are_told_with_their_addresses_and_languages(g1: Asker) -> None:
    g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", producers=("P",)))
    assert g1.value(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "P"}) == {
        "connectionSet": [{"clientAddr": "127.0.0.1:40001", "clientId": "c1", "language": "JAVA", "version": 479}]
    }
    (info,) = g1.value(RequestCode.GET_ALL_PRODUCER_INFO)["data"]["P"]
    assert (info["remoteIP"], info["clientId"], info["version"]) == ("/127.0.0.1:40001", "c1", 479)
    assert info["lastUpdateTimestamp"] > 1_700_000_000_000


def test_an_unknown_producer_group_is_refused_in_a_brokers_words(g1: Asker) -> None:
    answer = g1.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "PG"})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "the producer group[PG] not exist")


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


@pytest.mark.parametrize("body", [b"", b'{"clientId":"c","group":"G"}', b'{"subscriptionData":null}'])
def test_there_is_nothing_wrong_with_no_subscription(body: bytes, g1: Asker) -> None:
    assert g1.ask(RequestCode.CHECK_CLIENT_CONFIG, body=body).code == 0


def test_a_check_that_cannot_be_read_is_answered_saying_so(g1: Asker) -> None:
    answer = g1.ask(RequestCode.CHECK_CLIENT_CONFIG, body=b'{"subscriptionData":[]}')
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "CheckClientRequestBody" in (answer.remark or "")
