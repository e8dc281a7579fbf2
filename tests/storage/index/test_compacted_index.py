"""A server reads compacted index files as it reads a broker's, and takes from none what it does not have."""

import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracles
from compact_oracle import put_behind
from examples import examples
from job_runs import compact_in_place, compact_store, small_steps
from kept_store import SLOTS, append_some, assert_all_found, written
from protocol.question import KeyKind, Question
from storage.files.mapped_file import MappedFile
from storage.index import _index_coverage
from storage.index._index_coverage import find_gaps
from storage.index.index_file import IndexFile, determine_shape
from storage.log.commit_log import CommitLog
from storage.store.message_store import MessageStore, StoreOptions
from store_queries import KINDS
from store_writer import StoreWriter
from strategies import StorePlan, store_plans

pytestmark = pytest.mark.untraced


def keys_of(record: oracles.Record) -> Iterable[tuple[str, KeyKind]]:
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


def last_file(writer: StoreWriter) -> Path:
    return max((writer.root / "index").iterdir())


@settings(max_examples=examples(3), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(store_plans(maximum_messages=30), st.booleans(), st.booleans(), st.data())
def test_any_store_answers_every_key_after_any_compaction(
    tmp_path_factory: pytest.TempPathFactory, plan: StorePlan, drop_tags: bool, from_log: bool, data: st.DataObject
) -> None:
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


def test_where_topics_were_left_out_the_log_is_scanned_and_it_is_said(tmp_path: Path) -> None:
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


def test_a_damaged_byte_anywhere_hides_nothing(tmp_path: Path) -> None:
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


@pytest.fixture
def filled(tmp_path: Path) -> StoreWriter:
    """A store with one compacted file, in which there is room."""
    writer = written(tmp_path, 60, index_entries=1000)
    compact_in_place(writer, tmp_path / "work")
    return writer


def let_broker_put(writer: StoreWriter, count: int, **more: Any) -> None:
    """Append messages, and their entries to the last file."""
    append_some(writer, count, **more)
    path = last_file(writer)
    path.write_bytes(put_behind(path.read_bytes(), SLOTS, writer.records[-count:]))


def test_what_a_broker_put_behind_is_read_too(filled: StoreWriter) -> None:
    let_broker_put(filled, 10)
    store = MessageStore.open(filled.root)
    at = [written.physical_offset for written in filled.written]
    assert scanned(store) == [at[0], at[59], at[60], at[69]]
    (file,) = store.snapshot.index.files
    assert (file.index.shape.compacted, file.index.shape.entries) == (240, 280)
    assert_all_found(store, filled.records)


def gaps_of(path: Path, log: CommitLog, slots: int = SLOTS) -> tuple[tuple[int, int], ...]:
    file = MappedFile.open(path)
    shape = determine_shape(file, [slots])
    assert shape is not None
    return find_gaps(IndexFile(file, shape), log, has_tags=True)


@settings(max_examples=examples(5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(indexed=st.lists(st.booleans(), min_size=2, max_size=40), compared=st.sampled_from([1000, 1 << 27]))
def test_gaps_in_the_newest_part_are_those_of_the_index_it_was_made_from(
    tmp_path_factory: pytest.TempPathFactory, indexed: list[bool], compared: int
) -> None:
    directory = tmp_path_factory.mktemp("gaps")
    writer = StoreWriter(directory / "store", index_slots=SLOTS, index_entries=1000, segment_size=4096)
    for number, index in enumerate([True, *indexed, True]):
        writer.append("T", b"x" * 30, keys=f"k{number}", unique_key=f"u{number}", tags="t", index=index)
    writer.close()
    log = CommitLog.open(writer.log.directories)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_index_coverage, "COMPARED_BYTES", compared)
        patch.setattr(_index_coverage, "ENTRIES_AT_ONCE", 13)
        before = gaps_of(writer.index_paths()[0], log)
        compact_in_place(writer, directory / "work")
        assert gaps_of(last_file(writer), log) == before
