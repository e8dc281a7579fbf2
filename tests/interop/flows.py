"""The recorded flows of consumers on g1: how each consumer is started, and what it must receive."""

from dataclasses import dataclass
from pathlib import Path

from golden_store import G1
from interop.java_client import Subscription
from interop.stored import as_java_shows, comparable

ADDED_BY_CLIENTS = {
    *("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "RECONSUME_TIME", "MAX_RECONSUME_TIMES"),
    *("RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DELAY"),
}
"""Properties that the client itself puts on what it received, or on what it would send back."""


@dataclass(frozen=True)
class Flow:
    """A consumer of g1; ``recorded`` is the file that lists what it received from the broker that wrote the store."""

    kind: str
    recorded: Path
    expression: str = "*"
    expression_type: str = "TAG"
    topic: str = "TopicTest"
    credentials: tuple[str, str] | None = None
    limit: int = 2**62

    @property
    def filter(self) -> tuple[str, str]:
        return self.expression_type, self.expression

    def subscription(self, group: str) -> Subscription:
        more = {"limit": self.limit, "credentials": self.credentials}
        return Subscription(self.kind, group, self.topic, self.expression, self.expression_type, **more)


FLOWS_FOLDER = G1 / "client-flows"
FLOWS = {
    "tag": Flow("push", FLOWS_FOLDER / "tag.txt", "TagB || 标签"),
    "sql": Flow("push", FLOWS_FOLDER / "sql.txt", "a BETWEEN 5 AND 9 OR region IN ('none')", "SQL92"),
    "lite": Flow("lite", FLOWS_FOLDER / "lite.txt", "TagD"),
    "orderly": Flow("orderly", FLOWS_FOLDER / "orderly.txt"),
    "signed": Flow("push", FLOWS_FOLDER / "acl.txt", credentials=("AKdemo", "SKdemo12345678")),
    # Each member of a broadcasting group receives everything.
    "broadcasting": Flow("broadcasting", FLOWS_FOLDER / "orderly.txt"),
    "broadcasting-too": Flow("broadcasting", FLOWS_FOLDER / "orderly.txt"),
    "colliding-tag": Flow("push", G1 / "consumed-tag.tsv", "TagA || Aa"),
    "long-sql": Flow("push", G1 / "consumed-sql.tsv", "a > 10 AND a <= 30 AND region = 'hz'", "SQL92"),
}
FAILING = Flow("push", G1 / "consumed-fail.tsv", topic="TopicBatch", limit=0)
"""A consumer that refuses every message."""


def expected(store, flow):
    listed = [line.split("\t") for line in flow.recorded.read_text().splitlines() if line.startswith("MSG\t")]
    start = 2 if flow.recorded.suffix == ".tsv" else 1
    wanted = {(int(columns[start]), int(columns[start + 1])): columns[start + 2] for columns in listed}
    found = [one for one in store.records.values() if one.topic == flow.topic and place(one) in wanted]
    assert {place(record): record.properties["UNIQ_KEY"] for record in found} == wanted
    return sorted(found, key=place)


def place(record) -> tuple[int, int]:
    return record.queue_id, record.queue_offset


def ends(store, topic) -> dict[int, int]:
    last: dict[int, int] = {}
    for record in store.records.values():
        if record.topic == topic:
            last[record.queue_id] = max(last.get(record.queue_id, 0), record.queue_offset + 1)
    return last


def shown(consumed):
    messages = [_without_client_properties(comparable(message)) for message in consumed.messages]
    return sorted(messages, key=lambda message: (message["queueId"], message["queueOffset"]))


def as_stored(records, *, is_old_client):
    return [_without_client_properties(as_java_shows(record, is_old_client=is_old_client)) for record in records]


def _without_client_properties(message):
    properties = {name: text for name, text in message["properties"].items() if name not in ADDED_BY_CLIENTS}
    return message | {"properties": properties}
