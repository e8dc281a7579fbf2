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

_OTHERS: Final = (
    *(names.PGROUP, names.MIN_OFFSET, names.MAX_OFFSET, names.RECONSUME_TIME, names.MSG_REGION),
    *(names.TRACE_ON, names.TRANS_OFFSET, names.INNER_BASE, names.DUP_INFO, names.TRAN_PREPARED_QUEUE_OFFSET),
    *(names.CLUSTER, names.INNER_MULTI_DISPATCH, names.INNER_MULTI_QUEUE_OFFSET),
    *(names.TIMER_ROLL_TIMES, names.PROPERTY_CRC, names.BORN_TIMESTAMP, names.FIRST_POP_TIME),
    *("TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME"),
    *("CHECK_IMMUNITY_TIME_IN_SECONDS", names.TRANSACTION_CHECK_TIMES, "TTL"),
    *("ARRIVE_TIME", "PUSH_REPLY_TIME", "MSG_TYPE", "POP_CK", "POP_CK_OFFSET", "__LITE_TOPIC", "REDIRECT", "E_T"),
    *("PROPERTY_FORWARD_QUEUE_ID", "TRACE_CONTEXT", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_LABEL"),
    *("TIMER_DELAY_LEVEL", "__RMQ.TRANSIENT.TOPIC_SYS_FLAG", "__RMQ.TRANSIENT.GROUP_SYS_FLAG"),
)

SYSTEM_PROPERTIES: Final = {
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
        *(SystemProperty(name) for name in _OTHERS),
    )
}
"""Every property of a broker's or a client's own, by name."""

LEFT_BEHIND: Final = frozenset(row.name for row in SYSTEM_PROPERTIES.values() if not row.is_resent)
"""Properties that a message which is sent again does not take along."""

PLACES: Final = frozenset(_PLACES)
"""Properties that say where a message waits, failed or was sent to."""


def repeating(field: str) -> tuple[str, ...]:
    """The properties whose values hold or show a field, as masks name it."""
    return tuple(row.name for row in SYSTEM_PROPERTIES.values() if field in row.repeats)
