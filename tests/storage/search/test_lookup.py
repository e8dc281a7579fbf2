"""Very many keys at once against a loop over the log's records; whatever part of the index is there."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import examples
from oracles import Record, index_hash, read_log, split_keys
from protocol.message_id import decode_message_id
from protocol.question import OFFSET_ID, PHYSICAL_OFFSET, KeyKind
from storage.search.lookup import KeyHashes, LookupHere, look_up
from storage.search.wanted_entries import WantedHashes
from storage.store.message_store import MessageStore, StoreOptions
from store_writer import StoreWriter
from strategies import KEYS, TOPICS, StorePlan, store_plans

ROLLBACK = 0xC


def named(store: MessageStore, queries: list[str], **options: object) -> set[tuple[str, int]]:
    steps = list(look_up(LookupHere(store), queries, **options))  # type: ignore[arg-type]
    found = [(match.text, match.message.physical_offset) for step in steps for match in step.matches]
    assert [offset for _, offset in found] == sorted(offset for _, offset in found)
    assert len(set(found)) == len(found)
    return set(found)


def by_loop(records: list[Record], queries: list[str], topic: str | None, kind: str | None) -> set[tuple[str, int]]:
    return {
        (query, record.physical_offset)
        for record in records
        if (topic is None or record.topic == topic) and record.sys_flag & ROLLBACK != ROLLBACK
        for query in queries
        if query
        and (
            (kind != "unique key" and query in split_keys(record.properties.get("KEYS", "")))
            or (kind != "key" and query == record.properties.get("UNIQ_KEY"))
        )
    }


class TestAnyStore:
    @settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        store_plans().filter(lambda plan: plan.messages),
        st.lists(st.sampled_from([*KEYS, "uniq-1", "a", "b", "nowhere"]), min_size=1, max_size=8),
        st.sampled_from([None, *TOPICS]),
        st.sampled_from([None, "unique key or key", "unique key", "key"]),
    )
    def test_all_keys_find_what_a_loop_finds_whatever_the_index_lacks(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        plan: StorePlan,
        queries: list[str],
        topic: str | None,
        kind: str | None,
    ) -> None:
        root = tmp_path_factory.mktemp("store")
        plan.write(root)
        found = named(MessageStore.open(root), queries, topic=topic, kind=kind)
        assert found == by_loop(read_log(root / "commitlog"), queries, topic, kind)


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    writer = StoreWriter(tmp_path / "store", segment_size=4096)
    for number in range(50):
        writer.append("T", keys=f"k{number % 7} Aa", unique_key=f"U{number}")
    writer.close()
    return writer


class TestKinds:
    def test_an_offset_message_id_names_its_message_and_a_key_that_looks_like_one_is_a_key(
        self, tmp_path: Path
    ) -> None:
        unique_key = "7F000001" + "00002A9F" + "00000000000F0000"
        writer = StoreWriter(tmp_path)
        first = writer.append("T", unique_key=unique_key)
        second = writer.append("T")
        writer.close()
        store = MessageStore.open(tmp_path)
        queries = [second.offset_message_id, unique_key]
        assert named(store, queries) == {(queries[0], second.physical_offset), (unique_key, first.physical_offset)}
        assert named(store, queries, kind=KeyKind.ANY.words) == {(unique_key, first.physical_offset)}
        assert named(store, queries, kind=OFFSET_ID) == {(queries[0], second.physical_offset)}

    def test_a_foreign_hosts_id_names_the_place_if_it_is_said_to_be_one(self, writer: StoreWriter) -> None:
        message = writer.written[3]
        foreign = "0A000001" + message.offset_message_id[8:]
        assert decode_message_id(foreign).physical_offset == message.physical_offset
        store = MessageStore.open(writer.root)
        assert named(store, [foreign]) == set()
        assert named(store, [foreign], kind=OFFSET_ID) == {(foreign, message.physical_offset)}

    def test_physical_offsets_are_read_as_such_only_when_told(self, writer: StoreWriter) -> None:
        text = str(writer.written[3].physical_offset)
        store = MessageStore.open(writer.root)
        assert named(store, [text]) == set()
        assert named(store, [text, "x", "9" * 30], kind=PHYSICAL_OFFSET) == {(text, int(text))}


class TestDamage:
    def test_without_an_index_the_log_is_scanned(self, writer: StoreWriter) -> None:
        expected = named(MessageStore.open(writer.root), ["k3", "U7", "Aa"])
        shutil.rmtree(writer.root / "index")
        assert named(MessageStore.open(writer.root), ["k3", "U7", "Aa"]) == expected
        assert named(MessageStore.open(writer.root, StoreOptions(scan_budget=0)), ["k3", "U7", "Aa"]) == expected


class TestHashes:
    @given(st.lists(st.text(max_size=40), max_size=8), st.text(max_size=8))
    def test_the_hashes_of_many_are_those_of_each(self, keys: list[str], topic: str) -> None:
        assert KeyHashes(keys).within(topic).tolist() == [index_hash(f"{topic}#{key}") for key in keys]

    def test_the_smallest_int_is_hashed_to_zero(self) -> None:
        assert index_hash("polygenelubricants") == 0
        hashes = KeyHashes(["genelubricants"])
        assert hashes.within("").tolist() == [index_hash("#genelubricants")]

    @given(st.lists(st.integers(0, 40)), st.lists(st.integers(0, 40)))
    def test_wanted_hashes_are_recognised_among_others(self, wanted: list[int], others: list[int]) -> None:
        hashes = WantedHashes(np.unique(np.array(wanted, np.int32)))
        found = hashes.numbers_in(np.array(others, np.int32))
        assert found.tolist() == [number for number, each in enumerate(others) if each in wanted]


def test_a_batch_is_stopped(writer: StoreWriter) -> None:
    steps = list(look_up(LookupHere(MessageStore.open(writer.root)), ["U1"], should_stop=lambda: True))
    assert steps == []
