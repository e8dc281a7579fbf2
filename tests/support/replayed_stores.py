"""A store with every kind of message that a replay may meet, and what consumers must get of each."""

import itertools
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import lz4.frame
import zstandard

from oracles import V2_MAGIC
from store_writer import StoreWriter

COMPRESSED, LZ4, ZSTD, ZLIB = 0x1, 0x100, 0x200, 0x300
LONG_TOPIC = "Long" + "x" * 120


@dataclass(frozen=True)
class Expected:
    key: str
    topic: str
    queue_id: int
    flag: int
    body: bytes
    properties: Mapping[str, str]
    left_behind: frozenset[str]
    offset_message_id: str
    is_in_order: bool


class _Kinds:
    def __init__(self, root) -> None:
        self.writer = StoreWriter(root)
        self.expected: list[Expected] = []
        self._keys = (f"AC11{number:028X}" for number in itertools.count())

    def add(
        self, stored_under, body, *, topic=None, kept=None, left=None, stored=None, key=None, is_expected=True, **more
    ):
        key = next(self._keys) if key is None else key
        kept, left = dict(kept or {}), dict(left or {})
        content, properties = body if stored is None else stored, {**left, **kept}
        written = self.writer.append(stored_under, content, unique_key=key, properties=properties, **more)
        if is_expected:
            topic, place = topic or stored_under, (more.get("queue_id", 0), more.get("flag", 0))
            known = (body, kept, frozenset(left), written.offset_message_id, topic == stored_under)
            self.expected.append(Expected(key, topic, *place, *known))
        return key


def write_every_kind(root):
    """Write the store; what is expected is so where copies are sent, and what groups failed to consume to its topic."""
    kinds = _Kinds(root)
    add = kinds.add
    for number in range(12):
        kept = {"KEYS": f"k{number} all", "TAGS": f"T{number % 3}", "price": str(number), "名": "值"}
        left = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "old", "MIN_OFFSET": "0"}
        add("Plain", b"plain %d" % number, kept=kept, left=left, queue_id=number % 3, flag=number)
    text = b"compressed " * 40
    for flags, stored in (
        (COMPRESSED | ZLIB, zlib.compress(text)),
        (COMPRESSED, zlib.compress(text)),
        (COMPRESSED | LZ4, lz4.frame.compress(text)),
        (COMPRESSED | ZSTD, zstandard.ZstdCompressor().compress(text)),
    ):
        add("Packed", text, stored=stored, sys_flag=flags)
    for number in range(4):
        add("Fifo", b"fifo %d" % number, kept={"__SHARDINGKEY": "one", "KEYS": "fifo"}, queue_id=1)
    # A delayed message as it waits, and as it was delivered: one message.
    waited = add("SCHEDULE_TOPIC_XXXX", b"delayed", left={"DELAY": "3", "REAL_TOPIC": "Delayed", "REAL_QID": "2"},
                 queue_id=2, is_expected=False)  # fmt: skip
    add("Delayed", b"delayed", key=waited, queue_id=2)
    add("SCHEDULE_TOPIC_XXXX", b"waits", topic="Delayed", left={"DELAY": "9", "REAL_TOPIC": "Delayed", "REAL_QID": "0"},
        queue_id=8)  # fmt: skip
    timer = {
        "TIMER_OUT_MS": "1900000000000",
        "TIMER_DELIVER_MS": "1900000000000",
        "REAL_TOPIC": "Timed",
        "REAL_QID": "1",
    }
    add("rmq_sys_wheel_timer", b"timer", topic="Timed", left=timer)
    half = {"TRAN_MSG": "true", "PGROUP": "p", "REAL_TOPIC": "Transacted", "REAL_QID": "1", "__transactionId__": "X"}
    add("RMQ_SYS_TRANS_HALF_TOPIC", b"half", topic="Transacted", left=half)
    add("Transacted", b"committed", left={"TRAN_MSG": "true", "PGROUP": "p"}, sys_flag=0x8, queue_id=1)
    failed = {"RETRY_TOPIC": "Failed", "ORIGIN_MESSAGE_ID": "0" * 32, "RECONSUME_TIME": "3", "DELAY": "4"}
    add("%RETRY%some", b"retried", topic="Failed", left=failed, reconsume_times=3)
    dead = {"DLQ_ORIGIN_TOPIC": "Failed", "RETRY_TOPIC": "Failed", "DLQ_ORIGIN_MESSAGE_ID": "0" * 32}
    add("%DLQ%some", b"dead", topic="Failed", left=dead, reconsume_times=16)
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "4,5"}
    add("Light", b"light", left=light, kept={"KEYS": "light"})
    add("INSTANCE%Spaced", b"namespaced", kept={"INSTANCE_ID": "INSTANCE"})
    add(LONG_TOPIC, b"version 2", kept={"TAGS": "V2"}, magic=V2_MAGIC)
    add("Sixth", b"of IPv6", born_host=("::1", 5), store_host=("fe80::1", 10911), left={"__BORNHOST": "10.9.9.9"})
    add("Popped", b"popped", left={"POP_CK": "a b", "1ST_POP_TIME": "5"})
    keys = [next(kinds._keys) for _ in range(3)]
    inner = [(b"inner %d" % number, {"UNIQ_KEY": key, "TAGS": "I"}) for number, key in enumerate(keys)]
    batch = kinds.writer.append_inner_batch("Batched", inner)
    for key, (body, properties) in zip(keys, inner, strict=True):
        kept = {"TAGS": properties["TAGS"]}
        left_behind = frozenset({"INNER_NUM", "INNER_BASE"})
        kinds.expected.append(Expected(key, "Batched", 0, 0, body, kept, left_behind, batch.offset_message_id, True))
    add("RMQ_SYS_TRACE_TOPIC", b"trace", is_expected=False)
    add("OFFSET_MOVED_EVENT", b"event", is_expected=False)
    kinds.writer.close()
    return kinds.expected
