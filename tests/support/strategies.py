"""What hypothesis makes up: texts that Java hashes oddly, property blocks, messages, damage, and whole stores."""

import zlib
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from hypothesis import strategies as st

from store_files import pack_batch, property_bytes
from store_writer import START_TIMESTAMP, StoreWriter

I16, I32, I64 = ((-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))

i32 = st.integers(*I32)
i64 = st.integers(*I64)

# "Aa" and "BB", "TAa" and "TBB" have equal hashes; "polygenelubricants" has the smallest int.
COLLIDING = ("Aa", "BB", "AaAa", "BBBB", "AaBB", "TAa", "TBB")
KEYS = (*COLLIDING, "k", "k1", "OrderID188", "订单-42", "ключ", "🔑", "polygenelubricants", "a\tb", "a,b")
TOPICS = ("TopicTest", "AaTopic", "BBTopic", "%RETRY%GID", "主题")
TAGS = (None, "TagA", "TagB", "Aa", "BB", "标签")

texts = st.one_of(st.sampled_from(KEYS), st.text(max_size=20), st.text("ab\x00 #😀\ud800", max_size=6))

# Pieces of well-formed, overlong, truncated and surrogate sequences, and of the separators.
utf8_like = st.lists(
    st.sampled_from(
        [bytes([byte]) for byte in b"\x01\x02 aK\x7f\x80\x9f\xa0\xbf\xc0\xc2\xe0\xed\xef\xf0\xf4\xf8\xff"]
        + [b"\xed\xa0\x80", b"\xed\xbf", b"\xf0\x9f\x98\x80", "标".encode(), b"KEYS\x01", b"TAGS\x01v\x02"]
    ),
    max_size=30,
).map(b"".join)

property_names = st.one_of(
    st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "WAIT", "a", "价格"]), st.text("ab", max_size=3)
)
property_blocks = st.one_of(
    utf8_like,
    st.binary(max_size=60),
    st.dictionaries(property_names, texts, max_size=6).map(property_bytes),
    st.dictionaries(property_names, texts, max_size=6).map(lambda named: property_bytes(named)[:-1]),
)

hosts = st.one_of(
    st.tuples(st.integers(0, 2**32 - 1).map(IPv4Address).map(str), i32),
    st.tuples(st.integers(0, 2**128 - 1).map(IPv6Address).map(str), i32),
)

plain_bodies = st.one_of(st.just(b""), st.binary(max_size=80), st.text(max_size=30).map(str.encode))

records = st.fixed_dictionaries(
    {
        "topic_bytes": st.one_of(st.sampled_from(TOPICS).map(str.encode), st.binary(max_size=127)),
        "body": plain_bodies,
        "properties_bytes": property_blocks,
        "queue_id": i32,
        "flag": i32,
        "queue_offset": i64,
        "physical_offset": i64,
        "sys_flag": st.one_of(st.sampled_from([0, 1, 4, 8, 12, 0xC0, 0x101, 0x301]), i32),
        "born_timestamp": i64,
        "born_host": hosts,
        "store_timestamp": i64,
        "store_host": hosts,
        "reconsume_times": i32,
        "prepared_transaction_offset": i64,
        "magic": st.sampled_from([0xDAA320A7, 0xDAA320AB]),
        "property_crc": st.booleans(),
    }
)
"""The parameters of `store_files.pack_record`; host bits of `sys_flag` still have to follow the hosts."""


@st.composite
def damaged(draw: st.DrawFn, source: bytes) -> bytes:
    """`source` with a few bytes changed, inserted, removed, or cut off."""
    data = bytearray(source)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        change = draw(st.sampled_from(["set", "insert", "remove", "cut", "lengthen"]))
        if change == "set" and data:
            data[place] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
        elif change == "insert":
            data[place:place] = draw(st.binary(min_size=1, max_size=4))
        elif change == "remove":
            del data[place : place + draw(st.integers(1, 4))]
        elif change == "cut":
            del data[place:]
        else:
            data += draw(st.binary(max_size=8))
    return bytes(data)


@dataclass
class StorePlan:
    """A store to be written: the writer's options and the parameters of each `append`; prints as it can be repeated."""

    options: dict[str, Any]
    messages: list[dict[str, Any]] = field(default_factory=list)

    def write(self, root, after_each=lambda *_: None):
        """Write it under `root` as a broker that stopped cleanly; `after_each` is called behind every message."""
        with StoreWriter(root, **self.options) as writer:
            for number, message in enumerate(self.messages):
                writer.append(**message)
                after_each(writer, number)
        return writer


unique_keys = st.one_of(
    st.none(),
    st.sampled_from(["7F0000016C8830946E0968720E650000", "uniq-1", "Aa", "BB", "k1"]),
    st.text("ab", max_size=2),
)
key_lists = st.one_of(st.none(), st.lists(st.sampled_from(KEYS), max_size=4).map(" ".join), st.just("a a  b "), texts)


@st.composite
def store_plans(draw: st.DrawFn, *, maximum_messages: int = 40, all_indexed: bool = False) -> StorePlan:
    """A small store with everything that makes look-ups hard.

    Few slots, so that chains mix keys; few entries, so that keys of one message straddle files; colliding keys and
    topics; clocks that step back; repeated keys; rolled-back and prepared messages; both index profiles. Unless
    `all_indexed`, index or queue lack some messages.
    """
    options = {
        "segment_size": draw(st.sampled_from([1024, 2048, 131072])),
        "index_slots": draw(st.sampled_from([1, 2, 7, 97])),
        "index_entries": draw(st.sampled_from([2, 3, 10, 150])),
        "queue_file_size": draw(st.sampled_from([20, 100, 2000])),
        "profile": draw(st.sampled_from(["5.5", "5.3"])),
        "start": draw(st.sampled_from([0, 131072])),
    }
    gaps = st.just(True) if all_indexed else st.sampled_from([True, True, True, True, False])
    plan = StorePlan(options)
    clock = START_TIMESTAMP
    for _ in range(draw(st.integers(0, maximum_messages))):
        clock += draw(st.one_of(st.integers(0, 1500), st.integers(-100_000, 100_000)))
        message = {
            "topic": draw(st.sampled_from(TOPICS)),
            "body": draw(st.binary(max_size=20)),
            "keys": draw(key_lists),
            "unique_key": draw(unique_keys),
            "tags": draw(st.sampled_from(TAGS)),
            "queue_id": draw(st.integers(0, 1)),
            "store_timestamp": clock,
            "sys_flag": draw(st.sampled_from([0, 0, 0, 0, 4, 8, 12])),
            "index": draw(gaps),
            "queue": draw(gaps),
        }
        plan.messages.append(message)
    return plan


@dataclass
class BatchPlan:
    """A store with batches in one record each: bodies and properties of their messages, and how each is packed."""

    batches: list[tuple[list[tuple[bytes, dict[str, str]]], str]]

    def write(self, root):
        with StoreWriter(root, segment_size=1 << 16) as writer:
            for number, (messages, packing) in enumerate(self.batches):
                body = pack_batch(messages, flag=number)
                inner = {"INNER_NUM": str(len(messages)), "INNER_BASE": str(writer.next_queue_offset["B", 0])}
                if packing.startswith("zlib"):
                    body = zlib.compress(body)
                writer.append_inner_batch(
                    "B",
                    messages,
                    packed=body[:-1] if packing.endswith("cut") else body,
                    sys_flag=0xC1 if packing.startswith("zlib") else 0xC0,
                    properties=inner | {"UNIQ_KEY": f"batch-{number}"},
                )
                writer.append("T", b"plain", keys="k1", unique_key=f"plain-{number}")
        return writer


properties_in_batches = st.fixed_dictionaries(
    {"WAIT": st.just("true")},
    optional={
        "KEYS": st.lists(st.sampled_from(KEYS), min_size=1, max_size=3).map(" ".join),
        "UNIQ_KEY": st.sampled_from(["uniq-1", "Aa", "BB", "k1"]),
        "TAGS": st.sampled_from(["TagA", "Aa", "标签"]),
    },
)
batch_plans = st.builds(
    BatchPlan,
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.binary(max_size=12), properties_in_batches), min_size=1, max_size=6),
            st.sampled_from(["", "", "zlib", "cut", "zlib, cut"]),
        ),
        min_size=1,
        max_size=6,
    ),
)
