"""Where copies of popped messages were sent to: recorded ones of a broker 5.5.0, and what older ones leave open."""

import json
from pathlib import Path
from typing import Any

import pytest

from golden_store import CASES, unpack
from protocol.message import decode_message, decode_messages
from protocol.question import KeyKind, Question
from protocol.system_topics import Origin, stage_of
from storage.life.message_copies import copy_topics, query_with_copies
from storage.life.origins import Origins
from storage.store.message_store import MessageStore
from store_writer import StoreWriter


def truth(case: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CASES / case / "truth.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("case", ["A1-A2-B1-pop", "A3-A4-transactions"])
def test_every_recorded_copy_is_found_with_its_message_and_knows_its_origin(case: str, tmp_path: Path) -> None:
    store = MessageStore.open(unpack("store", tmp_path, archives=CASES / case))
    origins = Origins(store)
    rows = truth(case)
    assert rows
    for row in rows:
        for record in row["records"]:
            message = decode_message(store.record_at(record["physicalOffset"]) or b"")
            assert origins.of(message).topic == record["origin"]
            assert stage_of(message.topic).value == record["stage"]
        query = Question(topic=row["records"][0]["origin"], text=row["key"], kind=KeyKind.KEY)
        found = query_with_copies(store.query, query, copy_topics(store), origins)
        wanted = [record["physicalOffset"] for record in row["records"]]
        assert list(found.physical_offsets) == wanted


def popped(writer: StoreWriter, group: str, topic: str, key: str, *, sent: bool = True) -> None:
    """A message and its copy as a broker before 5.4 stores them."""
    if sent:
        writer.append(topic, keys="k", unique_key=key)
    writer.append(f"%RETRY%{group}_{topic}", keys="k", unique_key=key)


def offsets_file(store: Path, *committed: tuple[str, str]) -> None:
    table = {f"{topic}@{group}": {"0": 1} for topic, group in committed}
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))


def origins_in(root: Path, retry_topic: str) -> list[Origin]:
    store = MessageStore.open(root)
    origins = Origins(store)
    queue = store.queues.queue(retry_topic, 0)
    assert queue is not None
    messages = [decode_message(store.record_at(entry.physical_offset) or b"") for entry in queue.entries(0, 10)]
    return [origins.found(message, store.query) for message in messages]


def test_the_group_that_committed_in_the_retry_topic_splits_its_name(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    popped(writer, "a_b", "c", "u1", sent=False)
    writer.close()
    offsets_file(tmp_path / "store", ("%RETRY%a_b_c", "a_b"))
    assert origins_in(tmp_path / "store", "%RETRY%a_b_c") == [Origin("c", "a_b")]


def test_where_a_broker_mixes_groups_each_message_is_told_by_its_first_record(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    popped(writer, "a", "b_c", "u1")
    popped(writer, "a_b", "c", "u2")
    popped(writer, "a_b", "c", "u3", sent=False)
    writer.close()
    offsets_file(tmp_path / "store", ("%RETRY%a_b_c", "a_b"), ("%RETRY%a_b_c", "a"), ("b_c", "a"), ("c", "a_b"))
    both = (("a", "b_c"), ("a_b", "c"))
    assert origins_in(tmp_path / "store", "%RETRY%a_b_c") == [
        Origin("b_c", "a"),
        Origin("c", "a_b"),
        Origin(None, None, both),
    ]
    store = MessageStore.open(tmp_path / "store")
    for topic, keys in (("b_c", ["u1", "u1", "u3"]), ("c", ["u2", "u2", "u3"])):
        query = Question(topic=topic, text="k", kind=KeyKind.KEY)
        found = query_with_copies(store.query, query, copy_topics(store), Origins(store))
        assert [message.unique_key for message in decode_messages(found.records)] == keys
