"""What is not answered, and with which words (remoting-protocol §1.7, §2.2)."""

import pytest

from broker.service._refusals import POP_CODES, REASONS, WRITING_CODES, refusal
from broker.service.dispatcher import handled_methods
from broker.service.request_families import PROCESSORS
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response

WRITES = [
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
    RequestCode.RECALL_MESSAGE,
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.PUT_KV_CONFIG,
    RequestCode.DELETE_KV_CONFIG,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.DELETE_TOPIC_IN_NAMESRV,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.UPDATE_NAMESRV_CONFIG,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER,
    RequestCode.ADD_WRITE_PERM_OF_BROKER,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    RequestCode.ADD_BROKER,
    RequestCode.REMOVE_BROKER,
    RequestCode.CONTROLLER_ELECT_MASTER,
    RequestCode.UPDATE_CONTROLLER_CONFIG,
    RequestCode.CLEAN_BROKER_DATA,
    RequestCode.SWITCH_TIMER_ENGINE,
    RequestCode.DELETE_TOPIC_IN_BROKER_LIST,
    RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST,
    RequestCode.POP_ROLLBACK,
    RequestCode.TRIGGER_LITE_DISPATCH,
]


@pytest.mark.parametrize("code", WRITES)
def test_a_code_that_writes_is_refused_because_this_broker_is_read_only(code: int) -> None:
    assert refusal(code) == Response(ResponseCode.NO_PERMISSION, remark="this broker is read-only")


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.PEEK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.NOTIFICATION,
        RequestCode.POLLING_INFO,
        RequestCode.POP_LITE_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
    ],
)
def test_a_code_that_pops_is_refused_saying_what_works_instead(code: int) -> None:
    """A Java client raises an exception with this code and remark from its call to pop."""
    remark = f" request type {code} not supported; this broker is read-only and keeps no account of popped messages: "
    assert refusal(code) == Response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f"{remark}consume by pulling")


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
        RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON,
        RequestCode.CONTROLLER_GET_METADATA_INFO,
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
        RequestCode.GET_CONTROLLER_CONFIG,
        RequestCode.AUTH_GET_USER,
        RequestCode.AUTH_LIST_USER,
        RequestCode.AUTH_GET_ACL,
        RequestCode.AUTH_LIST_ACL,
        RequestCode.GET_BROKER_LITE_INFO,
        RequestCode.GET_PARENT_TOPIC_INFO,
        RequestCode.GET_LITE_TOPIC_INFO,
        RequestCode.GET_LITE_CLIENT_INFO,
        RequestCode.GET_LITE_GROUP_INFO,
    ],
)
def test_a_code_without_a_meaning_for_a_store_is_refused_saying_why(code: int) -> None:
    answer = refusal(code)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert (answer.remark or "").startswith(f" request type {code} not supported; ")
    assert len(answer.remark or "") > 60


def test_an_unknown_code_is_refused_in_a_brokers_words() -> None:
    assert refusal(4711) == Response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 4711 not supported")


def test_no_code_of_the_read_side_counts_as_writing() -> None:
    reading = {
        RequestCode.PULL_MESSAGE,
        RequestCode.QUERY_MESSAGE,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.VIEW_BROKER_STATS_DATA,
        RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.QUERY_CONSUME_QUEUE,
        RequestCode.GET_ALL_PRODUCER_INFO,
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.GET_BROKER_HA_STATUS,
    }
    assert not reading & WRITING_CODES


def test_a_code_is_refused_in_one_way_or_answered() -> None:
    answered = {code for family in PROCESSORS for code, _, _ in handled_methods(family)}
    assert not WRITING_CODES & REASONS.keys()
    assert not answered & (WRITING_CODES | REASONS.keys())
    assert REASONS.keys() >= POP_CODES
    assert all(code in set(RequestCode) for code in REASONS)
