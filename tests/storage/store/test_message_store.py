"""The store's answers against the oracle that scans everything, page by page, on random and recorded stores."""

import itertools
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from oracles import END_OF_TIME
from protocol.message import Message, decode_messages
from protocol.question import KeyKind, Question
from storage.files.waiting import Unfinished, Wait, WaitKind, begin
from storage.kernels.lookups import STOPPED_LONG, Found, KeyQuery
from storage.kernels.store_view import StoreView
from storage.query import lookup_call
from storage.query.lookup_call import run_lookup
from storage.store.message_store import MessageStore, StoreOptions
from store_files import write_file
from store_queries import KINDS, found, open_written
from store_writer import StoreWriter
from strategies import KEYS, TAGS, TOPICS, BatchPlan, StorePlan, batch_plans, store_plans


@pytest.mark.untraced
class TestExactAnswers:
    """ "A record is returned only if it is a valid record at that offset …, its topic matches and its key …" """

    @settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(plan=store_plans(all_indexed=True), data=st.data())
    def test_random_stores_answer_like_the_oracle_that_scans_everything(
        self, plan: StorePlan, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        root = tmp_path_factory.mktemp("random")
        if plan.options["profile"] == "5.3":
            # Tags are then found through queues, which never hold what was only prepared.
            plan.messages = [{**m, "sys_flag": 8 if m["sys_flag"] == 4 else m["sys_flag"]} for m in plan.messages]
        records = plan.write(root).records
        store = MessageStore.open(root) if plan.messages else None
        if store is None:
            return
        stamps = [record.store_timestamp for record in records]
        offsets = [record.physical_offset for record in records]
        for _ in range(12):
            topic = data.draw(st.sampled_from(TOPICS))
            kind = data.draw(st.sampled_from(list(KINDS)))
            key = data.draw(st.sampled_from([*KEYS, *(tag for tag in TAGS if tag), "uniq-1", "Aa", "BB", "k1", "a"]))
            begin = data.draw(st.one_of(st.just(0), st.sampled_from(stamps).map(lambda stamp: stamp - 1)))
            end = data.draw(st.one_of(st.just(END_OF_TIME), st.sampled_from(stamps)))
            maximum = data.draw(st.integers(0, 5) | st.just(64))
            before = data.draw(st.one_of(st.just(END_OF_TIME), st.sampled_from(offsets)))
            answer = store.query(Question(topic, key, kind, maximum, begin, end, before))
            expected = oracles.query(
                records, topic, key, kind=KINDS[kind], maximum=maximum, begin=begin, end=end, before_offset=before
            )
            assert list(answer.physical_offsets) == expected
            everything = oracles.query(
                records, topic, key, kind=KINDS[kind], maximum=10_000, begin=begin, end=end, before_offset=before
            )
            assert answer.truncated == (maximum > 0 and len(everything) > maximum)
            assert [m.physical_offset for m in decode_messages(answer.records)] == expected

    @settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(plan=store_plans(), data=st.data())
    def test_messages_that_no_broker_indexed_are_found_all_the_same(
        self, plan: StorePlan, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        if not plan.messages:
            return
        root = tmp_path_factory.mktemp("holes")
        records = plan.write(root).records
        store = MessageStore.open(root)
        for _ in range(12):
            topic = data.draw(st.sampled_from(TOPICS))
            kind = data.draw(st.sampled_from([KeyKind.ANY, KeyKind.KEY, KeyKind.UNIQUE]))
            key = data.draw(st.sampled_from([*KEYS, "uniq-1", "a"]))
            expected = oracles.query(records, topic, key, kind=KINDS[kind])
            assert found(store, topic, key, kind) == expected

    def test_every_key_of_the_recorded_store_is_answered_like_the_oracle(self, g1_store: Path) -> None:
        store = MessageStore.open(g1_store)
        records = oracles.read_log(g1_store / "commitlog")
        asked = 0
        for record in records:
            properties = record.properties
            for kind, keys in (
                (KeyKind.KEY, oracles.split_keys(properties.get("KEYS", ""))),
                (KeyKind.UNIQUE, [properties.get("UNIQ_KEY", "")]),
                (KeyKind.TAG, [properties.get("TAGS", "")]),
            ):
                for key in filter(None, keys):
                    asked += 1
                    assert found(store, record.topic, key, kind) == oracles.query(
                        records, record.topic, key, kind=KINDS[kind]
                    )
        assert asked > 1000


class TestBatches:
    @settings(max_examples=examples(12))
    @given(plan=batch_plans, lost=st.booleans())
    def test_a_batch_is_found_by_what_its_messages_carry(self, plan: BatchPlan, lost: bool) -> None:
        """Whether index files cover it or not: brokers index the record alone."""
        with tempfile.TemporaryDirectory() as directory:
            writer = plan.write(Path(directory))
            if lost:
                shutil.rmtree(writer.root / "index", ignore_errors=True)
            store = MessageStore.open(writer.root)
            unique = ("uniq-1", "Aa", "k1", "batch-0", "batch-1")
            texts = {KeyKind.KEY: (*KEYS, "batch-0"), KeyKind.UNIQUE: unique, KeyKind.TAG: ("TagA", "Aa")}
            for kind, topic in itertools.product(texts, ("B", "T")):
                for text in texts[kind]:
                    question = Question(topic, text, kind)
                    answer = store.query(question)
                    found = [
                        each for record in decode_messages(answer.records) for each in question.messages_in(record)
                    ]
                    # A message before the place where a batch breaks off is found with all that there is of it.
                    named = {(each.physical_offset, each.queue_offset) for each in found if not breaks_off(each)}
                    assert named == {
                        (each.physical_offset, each.queue_offset)
                        for record in writer.records
                        for each in oracles.messages_of(record)
                        if each.topic == topic and (has(each, text, kind) or has(record, text, kind))
                        if not breaks_off(each)
                    }


def has(record: oracles.Record, text: str, kind: KeyKind) -> bool:
    return oracles.has_key(record, text, KINDS[kind])


def breaks_off(message: Message | oracles.Record) -> bool:
    """Whether it is a batch that could not be taken apart, of which the first messages can be read in place."""
    return message.sys_flag & 0xC1 == 0xC0


class TestPaging:
    """ "A page is the newest maxNum matches strictly below it, so that all hits can be paged." """

    def test_a_page_cut_by_size_drops_its_oldest_messages(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path)
        written = [writer.append("T", bytes(1000), keys="x") for _ in range(10)]
        store = open_written(writer, tmp_path)
        answer = store.query(Question("T", "x", maximum_bytes=written[0].size * 3 + 1))
        assert answer.physical_offsets == tuple(message.physical_offset for message in written[-3:])
        assert answer.truncated


class TestTags:
    """ "A tag query on a range whose index has no tag entries scans the topic's queue units of that range …" """

    def test_files_of_older_brokers_are_told_apart(self, tmp_path: Path) -> None:
        for profile, kept in (("5.5", True), ("5.3", False)):
            root = tmp_path / profile
            writer = StoreWriter(root, profile=profile, index_entries=30)
            for number in range(50):
                writer.append("T", keys=f"k{number}", tags=f"t{number % 3}")
            store = open_written(writer, root)
            assert {file.has_tags for file in store.snapshot.index.files[:-1]} == {kept}
            records = writer.records
            assert found(store, "T", "t1", KeyKind.TAG) == oracles.query(records, "T", "t1", kind="T")


class TestWaiting:
    """A look-up says what it waits for instead of waiting."""

    def test_a_long_chain_is_left_to_another_thread(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        writer = StoreWriter(tmp_path, index_slots=1, index_entries=200)
        first = writer.append("T", keys="first")
        for _ in range(100):
            writer.append("T", keys="x")
        store = open_written(writer, tmp_path)
        monkeypatch.setattr(lookup_call, "STEPS_AT_ONCE", 50)
        assert ask_until_warm(store, Question("T", "x", maximum=10)) is None
        wait = ask_until_warm(store, Question("T", "first"))
        assert wait is not None
        assert (wait.kind, str(wait)) == (WaitKind.CHAIN, "a long chain of index entries")
        assert found(store, "T", "first") == [first.physical_offset]

    def test_the_same_look_up_goes_on_to_the_answer(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        writer = StoreWriter(tmp_path)
        written = writer.append("T", keys="x")
        store = open_written(writer, tmp_path)
        query = Question("T", "x")

        def cold_at_first(view: StoreView, query: KeyQuery, tick: int) -> Found:
            stopped = cast(Found, SimpleNamespace(status=STOPPED_LONG))
            return stopped if tick else run_lookup(view, query, tick)

        monkeypatch.setattr("storage.store.message_store.run_lookup", cold_at_first)
        step = begin(store.query_lookup(query))
        assert isinstance(step, Unfinished)
        assert step.wait.kind is WaitKind.CHAIN
        assert step.finish().physical_offsets == (written.physical_offset,)


def ask_until_warm(store: MessageStore, query: Question) -> Wait | None:
    """What a query waits for besides pages, which are brought in; None where it is answered."""
    for _ in range(200):
        step = begin(store.query_lookup(query))
        if not isinstance(step, Unfinished):
            return None
        if step.wait.kind is not WaitKind.PAGE:
            return step.wait
        step.wait.warm()
    raise AssertionError("still cold")


class TestStateCache:
    """What a start finds out is kept, keyed by the files' identity; what does not fit is thrown away."""

    @pytest.mark.parametrize("content", [b"", b"\x81\xa7version\x01", b"garbage" * 100])
    def test_a_damaged_cache_is_thrown_away(self, g1_store: Path, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "store-cache.msgpack").write_bytes(content)
        store = MessageStore.open(g1_store, StoreOptions(state_directory=tmp_path))
        assert store.query(Question("TopicTest", "hotkey")).count == 40

    def test_a_changed_index_file_is_examined_again(self, tmp_path: Path) -> None:
        root, state = tmp_path / "store", StoreOptions(state_directory=tmp_path / "state")
        writer = StoreWriter(root, index_slots=1)
        written = [writer.append("T", keys="x") for _ in range(5)]
        writer.close()
        assert MessageStore.open(root, state).query(Question("T", "x")).count == 5
        path = writer.index_paths()[0]
        write_file(path, path.stat().st_size, {40: (2).to_bytes(4, "big")})
        assert found(MessageStore.open(root, state), "T", "x") == [m.physical_offset for m in written]


class TestRefresh:
    """The facade serves from an immutable snapshot; nothing is closed under a reader."""

    def test_a_refresh_sees_new_messages_and_keeps_what_readers_hold(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path)
        writer.append("T", b"one", keys="x")
        writer.flush()
        store = MessageStore.open(tmp_path)
        held = store.record_at(0)
        second = writer.append("T", b"two", keys="x")
        writer.flush()
        assert store.query(Question("T", "x")).count == 1
        store.refresh()
        assert store.query(Question("T", "x")).physical_offsets == (0, second.physical_offset)
        shutil.rmtree(tmp_path / "commitlog")
        assert held is not None
        assert next(decode_messages(held)).body == b"one"


class TestHoles:
    """A missing piece is served without it, said once at start and in the answers it affects."""

    def test_a_hole_in_the_log_is_named(self, tmp_path: Path) -> None:
        writer = StoreWriter(tmp_path, segment_size=1024)
        writer.append("T", bytes(200), keys="x")
        writer.skip_segments(1)
        after = writer.append("T", bytes(200), keys="x")
        store = open_written(writer, tmp_path)
        answer = store.query(Question("T", "x"))
        assert answer.physical_offsets == (0, after.physical_offset)
        assert answer.incomplete == "no segment holds physical offsets 1024 to 2048"
        assert any("1024 to 2048" in problem for problem in store.problems)
        assert "hole" in store.explain_absence(1500)
