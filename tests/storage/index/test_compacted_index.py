"""A server reads compacted index files as it reads a broker's, and takes from none what it does not have."""

import random
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from job_runs import compact_in_place, compact_store, small_steps
from kept_store import append_some, assert_all_found, written
from protocol.question import KeyKind, Question
from storage.store.message_store import MessageStore, StoreOptions
from store_queries import KINDS
from strategies import store_plans

pytestmark = pytest.mark.untraced


def keys_of(record):
    properties = record.properties
    for key in oracles.split_keys(properties.get("KEYS", "")):
        yield key, KeyKind.KEY
        yield key, KeyKind.ANY
    if "UNIQ_KEY" in properties:
        yield properties["UNIQ_KEY"], KeyKind.UNIQUE
    if properties.get("TAGS"):
        yield properties["TAGS"], KeyKind.TAG


def scanned(store: MessageStore) -> list[int]:
    """Physical offsets of the records whose keys were scanned from the log."""
    starts = [record.physical_offset for record in oracles.read_log(store.layout.commit_log_directories)]
    scope = store.snapshot.tail.scope
    return [start for start in starts if any(first <= start < stop for first, stop in scope)]


@settings(max_examples=examples(3), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(store_plans(maximum_messages=30), st.booleans(), st.booleans(), st.data())
def test_any_store_answers_every_key_after_any_compaction(tmp_path_factory, plan, drop_tags, from_log, data) -> None:
    directory = tmp_path_factory.mktemp("any")
    root = directory / "store"
    writer = plan.write(root)
    if not writer.written or not (from_log or any((root / "index").glob("*"))):
        return
    topics = data.draw(st.sets(st.sampled_from(["TopicTest", "主题", "AaTopic"]), max_size=2))
    slots, entries = plan.options["index_slots"], plan.options["index_entries"]
    with small_steps(data.draw(st.sampled_from([64, 1000, 1 << 25])), 1000):
        outcome = compact_store(
            root, directory / "work", drop_tags=drop_tags, topics=tuple(topics), from_log=from_log,
            slots=slots, entries=entries,
        )  # fmt: skip
    shutil.rmtree(root / "index", ignore_errors=True)
    shutil.copytree(outcome.directory, root / "index")
    if data.draw(st.booleans(), "a file is lost"):
        data.draw(st.sampled_from(sorted((root / "index").iterdir())), "lost").unlink()
    records = [record for record in writer.records if oracles.is_queued(record)]
    store = MessageStore.open(root, StoreOptions(index_slots=slots, index_entries=entries))
    for topic, key, kind in sorted({(r.topic, key, kind) for r in records for key, kind in keys_of(r)}, key=repr):
        right = oracles.query(writer.records, topic, key, kind=KINDS[kind], maximum=500)
        answer = store.query(Question(topic, key, kind, maximum=500))
        # Without entries of tags queues tell them, and these stores' queues lack some messages.
        assert list(answer.physical_offsets) == right or (kind is KeyKind.TAG and store.snapshot.index.untagged)


def test_where_topics_were_left_out_the_log_is_scanned_and_it_is_said(tmp_path) -> None:
    writer = written(tmp_path, 30)
    for number in range(5):
        writer.append("Other", keys=f"o{number} all", tags="t1")
    append_some(writer, 30)
    writer.close()
    compact_in_place(writer, tmp_path / "work", topics=("Other",))
    store = MessageStore.open(writer.root)
    (problem,) = store.problems
    assert "was compacted with keys left out" in problem
    others = {written.physical_offset for written in writer.written if written.topic == "Other"}
    assert others < set(scanned(store))
    assert len(scanned(store)) < 40
    assert_all_found(store, writer.records)


def test_a_damaged_byte_anywhere_hides_nothing(tmp_path) -> None:
    """In entries and mark even a flipped bit is noticed: the mark's checksum is for both."""
    writer, generator = written(tmp_path, 15), random.Random(5)
    compact_in_place(writer, tmp_path / "work")
    for _ in range(examples(5)):
        path = generator.choice(sorted((writer.root / "index").iterdir()))
        whole = path.read_bytes()
        content = bytearray(whole)
        content[generator.randrange(32, len(content))] ^= 1 << generator.randrange(8)
        path.write_bytes(content)
        assert_all_found(MessageStore.open(writer.root), writer.records)
        path.write_bytes(whole)
