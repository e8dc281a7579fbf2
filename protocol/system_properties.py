"""Properties that clients, proxies and brokers give to messages by themselves, and what each of them says.

`repeats` names the fields of a message that a property's value holds or shows, as masks name them: who hides such a
field has to hide the property too. A property that is a `place` says where a message waits, was sent to or failed, as
its topic does.

The names are those of MessageConst of RocketMQ 5.5.1; a test compares them with the official jar. Source: store-format
§2.5.
"""

from dataclasses import dataclass
from typing import Final

from protocol import properties as names


@dataclass(frozen=True, slots=True)
class SystemProperty:
    """One property, by its name."""

    name: str
    repeats: tuple[str, ...] = ()
    is_place: bool = False
    is_resent: bool = False


_PLACES: Final = (
    *(names.REAL_TOPIC, names.REAL_QID, names.RETRY_TOPIC, names.ORIGIN_GROUP, names.DLQ_ORIGIN_TOPIC, names.TRAN_MSG),
    *(names.INNER_NUM, names.DELAY, names.TIMER_OUT_MS, names.TIMER_DELAY_MS, names.TIMER_DELAY_SEC),
    names.TIMER_DELIVER_MS,
)

_RESENT: Final = (names.WAIT, names.SHARDING_KEY, names.INSTANCE_ID, "BUYER_ID", "_SYS_MSG_PRIORITY_", "CORRELATION_ID")

LEFT_BEHIND_BECAUSE: Final = {
    "it would wait once more": (
        names.DELAY,
        "TIMER_DELAY_LEVEL",
        names.TIMER_DELAY_MS,
        names.TIMER_DELAY_SEC,
        names.TIMER_DELIVER_MS,
        names.TIMER_DEL_UNIQKEY,
        "TIMER_DEQUEUE_MS",
        "TIMER_ENQUEUE_MS",
        names.TIMER_OUT_MS,
        "TIMER_ROLL_LABEL",
        names.TIMER_ROLL_TIMES,
    ),
    "it would be half of a transaction": (
        names.TRAN_MSG,
        names.PGROUP,
        names.TRANS_OFFSET,
        names.TRANSACTION_CHECK_TIMES,
        names.TRAN_PREPARED_QUEUE_OFFSET,
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
        names.TRANSACTION_ID,
    ),
    "retries of before; `--to-retry` sets RETRY_TOPIC and ORIGIN_MESSAGE_ID": (
        names.RETRY_TOPIC,
        names.ORIGIN_MESSAGE_ID,
        names.ORIGIN_GROUP,
        names.RECONSUME_TIME,
        "MAX_RECONSUME_TIMES",
        names.DLQ_ORIGIN_TOPIC,
        names.DLQ_ORIGIN_MESSAGE_ID,
        "CONSUME_START_TIME",
    ),
    "places and marks of the source's broker": (
        names.REAL_TOPIC,
        names.REAL_QID,
        names.MIN_OFFSET,
        names.MAX_OFFSET,
        names.CLUSTER,
        names.MSG_REGION,
        names.DUP_INFO,
        "REDIRECT",
        "PROPERTY_FORWARD_QUEUE_ID",
        "EXTEND_UNIQ_INFO",
        names.PROPERTY_CRC,
        "CORRECTION_FLAG",
        "MQ2_FLAG",
        "TRANSFER_FLAG",
    ),
    "the trace of the first sending": (names.TRACE_ON, "TRACE_CONTEXT"),
    "light topics of the source": (names.INNER_MULTI_DISPATCH, names.INNER_MULTI_QUEUE_OFFSET, "__LITE_TOPIC"),
    "a batch is sent as its messages": (names.INNER_NUM, names.INNER_BASE, "E_T"),
    "the client behind a proxy": (names.BORN_HOST, names.BORN_TIMESTAMP),
    "of one delivery": ("POP_CK", "POP_CK_OFFSET", names.FIRST_POP_TIME),
    "nobody waits for the reply": ("MSG_TYPE", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME"),
    "of one request": ("__RMQ.TRANSIENT.TOPIC_SYS_FLAG", "__RMQ.TRANSIENT.GROUP_SYS_FLAG"),
}
"""Properties that a message which is sent again does not take along, by the reason."""

LEFT_BEHIND: Final = frozenset(name for left in LEFT_BEHIND_BECAUSE.values() for name in left)

_SPECIAL: Final = {
    row.name: row
    for row in (
        SystemProperty(names.KEYS, ("keys",), is_resent=True),
        SystemProperty(names.TAGS, ("tags",), is_resent=True),
        SystemProperty(names.UNIQ_KEY, ("unique_key",), is_resent=True),
        SystemProperty(names.TRANSACTION_ID, ("unique_key",)),
        SystemProperty("EXTEND_UNIQ_INFO", ("unique_key",)),
        SystemProperty(names.TIMER_DEL_UNIQKEY, ("unique_key",)),
        SystemProperty(names.ORIGIN_MESSAGE_ID, ("unique_key", "store_host")),
        SystemProperty(names.DLQ_ORIGIN_MESSAGE_ID, ("unique_key", "store_host")),
        SystemProperty(names.BORN_HOST, ("born_host",)),
        SystemProperty("REPLY_TO_CLIENT", ("born_host",)),
        *(SystemProperty(name, is_place=True) for name in _PLACES),
        *(SystemProperty(name, is_resent=True) for name in _RESENT),
    )
}
SYSTEM_PROPERTIES: Final = _SPECIAL | {
    name: SystemProperty(name) for left in LEFT_BEHIND_BECAUSE.values() for name in left if name not in _SPECIAL
}
"""Every property of a broker's or a client's own, by name."""

PLACES: Final = frozenset(_PLACES)
"""Properties that say where a message waits, failed or was sent to."""


def repeating(field: str) -> tuple[str, ...]:
    """The properties whose values hold or show a field, as masks name it."""
    return tuple(row.name for row in SYSTEM_PROPERTIES.values() if field in row.repeats)
