"""A store with marked secrets wherever a broker puts a message: under every topic of its own, in copies, in traces."""

import base64
import gzip
import json
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from protocol.system_topics import (
    DISCARDED_TOPIC,
    HALF_TOPIC,
    OP_TOPICS,
    PROXY_TOPIC,
    REVIVE_TOPIC_PREFIX,
    ROCKSDB_HALF_TOPIC,
    SCHEDULE_TOPIC,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    TRACE_TOPIC,
    TRACE_TOPIC_PREFIX,
    TopicContent,
)
from store_writer import StoreWriter

TOPIC, OPEN, OWN_TRACES = "SecretTopic", "OpenTopic", "MyTraceTopic"
"""The topic of the secret messages, another one, and one that producers send their traces to."""
GROUP = "g"

KEY, TAG, UNIQUE = "key-secret-1", "TagSecret", "AC1100027B3C18B4AAC2C3F5D6E70000"
HOST, SENDER, STORE_HOST = "10.9.8.7", "app-host-secret", "10.6.5.4"
CARD, BODY = "card-secret-4111", "body-secret-words"
SECRETS = (KEY, TAG, UNIQUE, HOST, SENDER, STORE_HOST, CARD, BODY)

HIDDEN_BY = {
    ("keys",): (KEY,),
    ("tags",): (TAG,),
    ("unique_key",): (UNIQUE,),
    ("born_host",): (HOST, SENDER),
    ("store_host",): (STORE_HOST,),
    ("hosts",): (HOST, SENDER, STORE_HOST),
    ("properties.card",): (CARD,),
    ("properties",): (KEY, TAG, UNIQUE, SENDER, CARD),
    ("body",): (BODY,),
    (f"/{KEY}/",): (KEY,),
    (f"body:/{BODY}/",): (BODY,),
    ("$.words", "keys"): (KEY, BODY),
}
"""What is nowhere in what is shown, by the rules of a mask."""

TRACES = (TRACE_TOPIC, f"{TRACE_TOPIC_PREFIX}cn-1", OWN_TRACES)
NOTES = (*OP_TOPICS.values(), f"{REVIVE_TOPIC_PREFIX}cluster", PROXY_TOPIC, "OFFSET_MOVED_EVENT")


def trace_of(topic: str) -> str:
    """What producer and consumer report of the secret message, as TraceDataEncoder of rocketmq-client 5.5.0 writes."""
    sent = ("Pub", "1700000000000", "r", GROUP, topic, UNIQUE, TAG, KEY, f"{STORE_HOST}:10911", "9", "7", "0")
    sent += ("0A0605040000", "true", HOST)
    before = ("SubBefore", "1700000000001", "r", GROUP, "request-1", UNIQUE, "0", KEY)
    return "".join("\x01".join(record) + "\x02" for record in (sent, before))


NOTE = json.dumps({"topic": TOPIC, "key": KEY, "tag": TAG, "id": UNIQUE, "client": HOST, "broker": STORE_HOST,
                          "card": CARD, "words": BODY, "from": SENDER})  # fmt: skip


@dataclass(frozen=True)
class Way:
    """How a body is stored: compressed by the client, packed by the application, or as it is."""

    is_compressed: bool = False
    is_packed: bool = False

    def stored(self, body: str) -> tuple[bytes, int]:
        data = gzip.compress(body.encode(), mtime=0) if self.is_packed else body.encode()
        return (zlib.compress(data), 1) if self.is_compressed else (data, 0)


@dataclass
class SecretStore:
    """The store, with the physical offsets of the records that hold secrets, by their stored topic."""

    root: Path
    secret: dict[int, str] = field(default_factory=dict)
    open: dict[int, str] = field(default_factory=dict)

    @property
    def topics(self) -> list[str]:
        return sorted({*self.secret.values(), *self.open.values()})


def copies_of(topic, *, is_named=True):
    """Where a message of a topic is stored, and what names its origin there; without `is_named` also with nothing."""
    retry = f"%RETRY%{GROUP}"
    yield topic, {}
    for waiting in (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, ROCKSDB_HALF_TOPIC, DISCARDED_TOPIC):
        due = {"TIMER_OUT_MS": "9" * 13} if waiting == TIMER_TOPIC else {}
        yield waiting, {"REAL_TOPIC": topic, "REAL_QID": "0"} | due
    yield SCHEDULE_TOPIC, {"REAL_TOPIC": retry, "RETRY_TOPIC": topic}
    yield retry, {"RETRY_TOPIC": topic}
    yield f"{retry}_{topic}", {"ORIGIN_GROUP": GROUP}
    yield f"{retry}+{topic}", {}
    yield f"%DLQ%{GROUP}", {"RETRY_TOPIC": topic, "DLQ_ORIGIN_TOPIC": topic, "DLQ_ORIGIN_MESSAGE_ID": UNIQUE}
    yield f"%DLQ%{GROUP}", {"RETRY_TOPIC": f"{retry}_{topic}"}
    if not is_named:
        yield f"{retry}_{topic}", {}
        yield f"%RETRY%gone_{topic}", {}
        yield f"%DLQ%{GROUP}", {}
        yield SCHEDULE_TOPIC, {}


def secret_store(root: Path, way: Way = Way(), *, knows_group: bool = True) -> SecretStore:
    """Write the store; its file of groups has the group or not."""
    writer = StoreWriter(root)
    made = SecretStore(writer.root)
    hosts = {"born_host": (HOST, 54321), "store_host": (STORE_HOST, 10911)}
    named = {"UNIQ_KEY": UNIQUE, "TAGS": TAG, "__BORNHOST": SENDER, "card": CARD, "ORIGIN_MESSAGE_ID": UNIQUE}

    def append(topic: str, body: str, properties: dict[str, str]) -> None:
        stored, flags = way.stored(body)
        written = writer.append(topic, stored, sys_flag=flags, properties=properties, **hosts)
        made.secret[written.physical_offset] = topic

    message = json.dumps({"n": 1, "words": BODY})
    for topic, origin in copies_of(TOPIC, is_named=False):
        append(topic, message, {"KEYS": f"order-1 {KEY}"} | named | origin)
    for reported in TRACES:
        for topic, origin in copies_of(reported, is_named=False):
            append(topic, trace_of(TOPIC), {"KEYS": f"order-1 {UNIQUE} {KEY}"} | {"UNIQ_KEY": "T0"} | origin)
    for noted in NOTES:
        for topic, origin in copies_of(noted):
            append(topic, NOTE, {"UNIQ_KEY": "N0"} | origin)
    writer.last_store_timestamp += 1
    batch = [(message.encode(), {"KEYS": f"order-1 {KEY}"} | named), (trace_of(TOPIC).encode(), {"UNIQ_KEY": "T1"})]
    written = writer.append_inner_batch("%DLQ%batches", batch, **hosts)
    made.secret[written.physical_offset] = "%DLQ%batches"
    for topic, origin in copies_of(OPEN):
        origin.pop("DLQ_ORIGIN_MESSAGE_ID", None)
        written = writer.append(topic, b"open words", keys="order-1", unique_key="U0", tags="A", properties=origin)
        made.open[written.physical_offset] = topic
    writer.close()
    config = writer.root / "config"
    config.mkdir(exist_ok=True)
    groups = {GROUP: {"groupName": GROUP}} if knows_group else {}
    (config / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": groups}))
    offsets = {f"{TOPIC}@{GROUP}": {"0": 1}, f"{TOPIC}@{GROUP}@broadcast": {"0": 1}, f"{OPEN}@{GROUP}": {"0": 1}}
    offsets[f"%RETRY%{GROUP}_{TOPIC}@{GROUP}"] = {"0": 1}
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return made


def is_whole() -> bool:
    """Whether each topic of the table that holds messages, reports or notes is in the store."""
    rows = (row for row in SYSTEM_TOPICS if row.origin is not None or row.content is not TopicContent.MESSAGES)
    of_records = {row.name for row in rows}
    told = {TRACE_TOPIC_PREFIX, REVIVE_TOPIC_PREFIX, *NOTES, *TRACES, SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC}
    # Never stored under, or the rest of the names with this prefix, which are notes as the others.
    others = {"rmq_sys_", "RMQ_SYS_", "rmq_sys_SYNC_BROKER_MEMBER_", "CHECKPOINT_TOPIC"}
    return of_records <= told | others | {ROCKSDB_HALF_TOPIC, DISCARDED_TOPIC}


def forms_of(secret):
    """A secret as it may be written down: as text, in hexadecimal, in Base64 behind any other bytes."""
    data = secret.encode()
    yield data
    yield data.hex().encode()
    parts = secret.split(".")
    if len(parts) == 4 and all(part.isdecimal() for part in parts):  # as message ids have addresses
        yield bytes(map(int, parts)).hex().encode()
    for shift in range(3):
        written = base64.b64encode(b"\0" * shift + data)
        yield written[4 if shift else 0 : len(written) - 4]


def leaked(shown, secrets):
    """The secrets that are in what was shown, whatever their form."""
    lower = shown.lower()
    return [
        secret
        for secret in secrets
        if any(form in shown or (form.lower() in lower and b"=" not in form) for form in forms_of(secret))
    ]
