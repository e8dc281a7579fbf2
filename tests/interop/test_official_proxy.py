"""The official proxy in front of our server: groups of which nobody has heard consume through it."""

import json

import pytest

from blocking_client import eventually
from grpc_cases import asked_of, recorded
from interop.flows import FLOWS, as_stored, ends, expected, shown
from interop.jars import SERVER_VERSION
from interop.java_client import JavaError, Subscription
from interop.other_clients import official_proxy, receive_by_grpc
from interop.stages import our_stage
from interop.wire import ask
from protocol.codes import RequestCode

pytestmark = [pytest.mark.interop, pytest.mark.soak]
"""In each run: what it asks was recorded and is replayed, tests/broker/test_golden_replay.py and broker/grpc."""

TOPIC = "TopicTest"


@pytest.fixture(scope="module")
def stage(store, tmp_path_factory):
    with our_stage(store.root, tmp_path_factory.mktemp("behind")) as stage:
        yield stage


@pytest.fixture(scope="module")
def proxy(stage, tmp_path_factory):
    with official_proxy(tmp_path_factory.mktemp("proxy"), stage.name_server) as proxy:
        yield proxy


def test_a_new_group_gets_every_message_through_the_proxy_and_goes_on_behind_them_afterwards(
    java, proxy, stage, store
) -> None:
    client, group, last = java(SERVER_VERSION, "JSON"), "NobodyKnowsMe", ends(store, TOPIC)
    client.consume(proxy.remoting, {"first": Subscription("push", group, TOPIC)})
    wanted = as_stored(expected(store, FLOWS["orderly"]), is_old_client=False)
    eventually(lambda: len(client.look("first").messages) >= len(wanted), "the messages of the store")
    # What a client says as it ends a proxy may drop with its connection: so it lives until its offsets are known.
    eventually(lambda: {each: stage.committed(group, TOPIC, each) for each in last} == last, "the offsets")
    assert shown(client.end("first")["first"]) == wanted
    stage.proxy.forget()
    client.consume(proxy.remoting, {"second": Subscription("push", group, TOPIC)})
    eventually(lambda: stage.has_asked_for_more(group, TOPIC, last), "pulls of the second consumer")
    assert client.end("second")["second"].messages == []
    table = ask(stage.proxy.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}).body
    assert group not in json.loads(table)["subscriptionGroupTable"], "its offsets are kept, and nothing else"


def test_a_new_group_of_a_client_of_grpc_is_told_that_messages_are_not_popped_here(proxy, tmp_path) -> None:
    """Its calls are answered, so the group is known to the proxy."""
    told = receive_by_grpc(proxy, "NobodyKnowsMeByGrpc", TOPIC, tmp_path)
    assert "UnsupportedException" in told
    assert "this broker is read-only and keeps no account of popped messages: consume by pulling" in told


def test_a_producer_finds_no_queue_through_the_proxy(java, proxy) -> None:
    with pytest.raises(JavaError, match="No route info of this topic"):
        java(SERVER_VERSION, "JSON").send(proxy.remoting, TOPIC)


def test_calls_are_answered_as_they_were_recorded(proxy) -> None:
    answers, before = asked_of(proxy.grpc), recorded()
    assert [answer for answer in answers if answer != before[answer["name"]]] == []
