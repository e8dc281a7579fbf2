"""What is looked at for a search: no more than needed, and nothing less."""

import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import search_oracle
from doctoring import make_store, put
from examples import examples
from oracles import read_log
from queue_stores import unit_bytes
from storage.search import _by_queue, _by_time
from storage.search import plan as planning
from storage.search._by_queue import offsets_by_queue, required_tags
from storage.search.criteria import Criteria
from storage.search.engine import search
from storage.search.plan import make_plan
from storage.store.message_store import MessageStore, StoreOptions
from store_writer import StoreWriter
from strategies import KEYS, TAGS, TOPICS, store_plans

LAZY = StoreOptions(scan_budget=0, check_budget=0)


@pytest.fixture(autouse=True)
def small_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "CHUNK_BYTES", 700)
    monkeypatch.setattr(planning, "LISTED_AT_ONCE", 3)
    monkeypatch.setattr(planning, "COST_OF_RECORD", 1)
    monkeypatch.setattr(_by_time, "RESOLUTION", 300)
    monkeypatch.setattr(_by_queue, "STEPS_BACK", (150, 600, 1200, 100_000))


def searched(store, criteria):
    steps = list(search(store, criteria))
    hits = [(message.physical_offset, message.queue_offset) for step in steps for message in step.messages]
    return hits, "; ".join(steps[-1].notes)


class TestByQueue:
    @pytest.fixture
    def writer(self, tmp_path):
        writer = StoreWriter(tmp_path / "store", segment_size=4096, queue_file_size=100)
        for number in range(60):
            topic = "T" if number % 5 == 0 else "U"
            writer.append(topic, b"%d" % number, tags="AB"[number % 2], queue_id=number // 5 % 4)
        return writer

    def open(self, writer: StoreWriter) -> MessageStore:
        writer.close()
        return MessageStore.open(writer.root, LAZY)

    def loop(self, writer, criteria):
        return search_oracle.hits(read_log(writer.root / "commitlog"), criteria)

    def test_only_what_an_expression_requires_of_tags_narrows(self) -> None:
        for where in ("TAGS <> 'A'", "TAGS = 'A' OR b = 'x'", "NOT TAGS = 'A'", "TAGS NOT IN ('A')", "b = 'A'"):
            assert required_tags(Criteria(where=where)) is None, where
        assert required_tags(Criteria(where="TAGS = 'A'", tag="B")) == ("B",)
        # What is masked is compared as it is shown, so that the bytes to search say nothing of it.
        assert required_tags(Criteria(where="TAGS = 'A'", masked=("/x/",))) is None
        assert required_tags(Criteria(where=f"{'(' * 40}TAGS = 'A'{' AND b = 1)' * 40}")) == ("A",)

    def test_a_segment_without_the_topic_is_spared_and_one_full_of_it_is_scanned(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr(planning, "COST_OF_RECORD", 300)
        writer = StoreWriter(tmp_path / "store", segment_size=4096)
        for topic in ("U", "T", "U"):
            for number in range(60):
                writer.append(topic if number % 20 > 3 else "V", b"%d" % number, queue_id=number % 4)
        store = self.open(writer)
        hits, notes = searched(store, Criteria(topic="T"))
        assert hits == self.loop(writer, Criteria(topic="T"))
        assert "segments that are full of them are scanned" in notes
        plan = make_plan(store, Criteria(topic="T"))
        read = sum(chunk.size for chunk in plan.chunks if chunk.listed is None)
        assert 48 * 80 < read < plan.total_bytes / 2

    def test_what_lies_behind_the_last_unit_is_scanned(self, writer: StoreWriter) -> None:
        for number in range(9):
            writer.append("T", b"late %d" % number, queue=False)
        hits, notes = searched(self.open(writer), Criteria(topic="T"))
        assert hits == self.loop(writer, Criteria(topic="T"))
        assert len(hits) == 21
        assert "12 records up to" in notes

    def test_the_log_is_scanned_where_a_queue_or_a_file_of_it_is_lost(self, writer: StoreWriter) -> None:
        assert searched(self.open(writer), Criteria(topic="T"))[1]
        expected = self.loop(writer, Criteria(topic="T"))
        for lost in (f"consumequeue/T/1/{0:020}", "consumequeue/T/0", "consumequeue"):
            path = writer.root / lost
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            assert searched(MessageStore.open(writer.root, LAZY), Criteria(topic="T")) == (expected, ""), lost

    @pytest.mark.parametrize("damage", [{4: bytes(4)}, {0: (91).to_bytes(4), 36: (0x30).to_bytes(4)}])
    def test_a_unit_that_leads_to_damage_is_told_of(self, writer: StoreWriter, damage: dict[int, bytes]) -> None:
        """Also to what only looks like a short record."""
        victim = next(written for written in writer.written if written.topic == "T" and written.physical_offset)
        for place, data in damage.items():
            writer.overwrite(victim.physical_offset + place, data)
        for criteria in (Criteria(topic="T"), Criteria(topic="T", regex=".")):
            hits, notes = searched(self.open(writer), criteria)
            assert victim.physical_offset not in {offset for offset, _ in hits}
            assert len(hits) == 11
            assert f"1 damaged record that may match is left out: {victim.physical_offset}" in notes


def test_a_key_of_a_message_in_a_batch_is_in_no_index_and_is_found(tmp_path) -> None:
    with StoreWriter(tmp_path) as writer:
        batch = writer.append_inner_batch("B", [(b"one", {"KEYS": "a"}), (b"two", {"KEYS": "b"})])
    for lost in (None, "batchconsumequeue"):
        if lost:
            shutil.rmtree(tmp_path / lost)
        assert searched(MessageStore.open(tmp_path), Criteria(topic="B", key="b"))[0] == [(batch.physical_offset, 1)]


def test_a_key_of_very_many_messages_is_scanned_for(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("storage.search._by_index.MAXIMUM_HITS", 3)
    monkeypatch.setattr("storage.search._by_index.MOST_PAGES", 2)
    with StoreWriter(tmp_path) as writer:
        for number in range(7):
            writer.append("T", keys="k" if number else "once")
    store = MessageStore.open(tmp_path)
    assert len(searched(store, Criteria(topic="T", key="k"))[0]) == 6
    assert "1 record was found by the index" in searched(store, Criteria(topic="T", key="once"))[1]


@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    store_plans().filter(lambda plan: plan.messages),
    st.sampled_from(TOPICS),
    st.sampled_from([None, *TAGS]).filter(lambda tag: tag != ""),
    st.sampled_from([None, *KEYS]).filter(lambda key: key != ""),
)
@pytest.mark.untraced
def test_a_key_finds_what_a_loop_finds_whatever_the_index_lacks(tmp_path_factory, plan, topic, tag, key) -> None:
    root = tmp_path_factory.mktemp("store")
    plan.write(root)
    criteria = Criteria(topic=topic, tag=tag, key=key)
    hits, notes = searched(MessageStore.open(root), criteria)
    records = read_log(root / "commitlog")
    if "by the index" in notes:  # which keeps no rolled-back messages
        records = [record for record in records if record.sys_flag & 0xC != 0xC]
    expected = search_oracle.hits(records, criteria)
    if "by the queues" in notes:  # of which some lack units
        assert set(hits) <= set(expected)
    else:
        assert hits == expected


END = 1 << 60


@pytest.mark.parametrize("tags", [None, ("t",)])
def test_a_damaged_unit_leaves_the_search_to_a_scan(tmp_path, tags) -> None:
    writer, written = make_store(tmp_path, 200)
    written += [writer.append("T", b"", tags="t", queue_id=queue_id) for queue_id in (2, 3)]
    writer.close()
    everything = [each.physical_offset for each in written]
    found = offsets_by_queue(MessageStore.open(tmp_path).snapshot, "T", tags, 0, END)
    assert found.tolist() == everything
    other = written[4]
    for damage in (bytes(20), unit_bytes(other.physical_offset, other.size, 0)):
        path = tmp_path / "consumequeue" / "T" / "1" / f"{0:020d}"
        whole = path.read_bytes()
        put(path, 20 * 30, damage)
        assert offsets_by_queue(MessageStore.open(tmp_path).snapshot, "T", tags, 0, END) is None
        put(path, 0, whole)
