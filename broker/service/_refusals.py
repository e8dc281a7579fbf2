"""Requests that this server refuses, because they write or ask for something that no store holds, and the remarks.

A writing request gets NO_PERMISSION. A request that has no meaning here gets REQUEST_CODE_NOT_SUPPORTED in a Java
broker's words and, where there is one, the reason after them; mqadmin shows both to the user of the command.
docs/mqadmin.md lists them by command. Source: remoting-protocol §1.7, §2.2, appendix B.
"""

from collections.abc import Mapping
from typing import Final

from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response

READ_ONLY: Final = "this broker is read-only"

WRITING_CODES = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.RECALL_MESSAGE,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.TRIGGER_DELETE_FILES,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.RESET_MASTER_FLUSH_OFFSET,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.SET_COMMITLOG_READ_MODE,
        RequestCode.ADD_BROKER,
        RequestCode.REMOVE_BROKER,
        RequestCode.CONTROLLER_ELECT_MASTER,
        RequestCode.UPDATE_CONTROLLER_CONFIG,
        RequestCode.CLEAN_BROKER_DATA,
        RequestCode.POP_ROLLBACK,
        RequestCode.TRIGGER_LITE_DISPATCH,
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
        RequestCode.SWITCH_TIMER_ENGINE,
        RequestCode.DELETE_TOPIC_IN_BROKER_LIST,
        RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST,
    }
)
"""Codes that change something on a real broker or name server; some of them have a handler nevertheless."""

POP_CODES = frozenset(
    {
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.PEEK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.NOTIFICATION,
        RequestCode.POLLING_INFO,
        RequestCode.POP_LITE_MESSAGE,
    }
)
"""Codes by which a broker delivers messages and keeps account of each; clients may pull these messages instead."""

POP_REFUSED = f"{READ_ONLY} and keeps no account of popped messages: consume by pulling"

NO_CONTROLLER: Final = "this server is no controller, and no controller runs it"
NO_ACL_2: Final = (
    "users and policies of ACL 2.0, where the store has any, are not read: accounts are in the plain_acl.yml of --acl"
)
NO_ROCKSDB: Final = "this server only reads what is in RocksDB: it neither compares queues there nor exports them"
NO_LITE: Final = f"{READ_ONLY} and keeps no account of lite topics and who subscribes to them"

REASONS: Final[Mapping[int, str]] = {
    **dict.fromkeys(POP_CODES, POP_REFUSED),
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: NO_CONTROLLER,
    RequestCode.CONTROLLER_REGISTER_BROKER: NO_CONTROLLER,
    RequestCode.CONTROLLER_GET_REPLICA_INFO: NO_CONTROLLER,
    RequestCode.CONTROLLER_GET_METADATA_INFO: NO_CONTROLLER,
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: NO_CONTROLLER,
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: NO_CONTROLLER,
    RequestCode.CONTROLLER_APPLY_BROKER_ID: NO_CONTROLLER,
    RequestCode.GET_CONTROLLER_CONFIG: NO_CONTROLLER,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: "the accounts are in the plain_acl.yml of --acl, which is told to nobody",
    RequestCode.AUTH_GET_USER: NO_ACL_2,
    RequestCode.AUTH_LIST_USER: NO_ACL_2,
    RequestCode.AUTH_GET_ACL: NO_ACL_2,
    RequestCode.AUTH_LIST_ACL: NO_ACL_2,
    RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: NO_ROCKSDB,
    RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: NO_ROCKSDB,
    RequestCode.LITE_SUBSCRIPTION_CTL: NO_LITE,
    RequestCode.ACK_LITE_MESSAGE: NO_LITE,
    RequestCode.NOTIFY_UNSUBSCRIBE_LITE: NO_LITE,
    RequestCode.GET_BROKER_LITE_INFO: NO_LITE,
    RequestCode.GET_PARENT_TOPIC_INFO: NO_LITE,
    RequestCode.GET_LITE_TOPIC_INFO: NO_LITE,
    RequestCode.GET_LITE_CLIENT_INFO: NO_LITE,
    RequestCode.GET_LITE_GROUP_INFO: NO_LITE,
}
"""The reason, by code, why a reading request has no meaning here."""


def refusal(code: int) -> Response:
    """Make the answer to a code that has no handler."""
    if code in WRITING_CODES:
        return Response(ResponseCode.NO_PERMISSION, remark=READ_ONLY)
    remark = f" request type {code} not supported"
    reason = REASONS.get(code)
    if reason is not None:
        remark = f"{remark}; {reason}"
    return Response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
