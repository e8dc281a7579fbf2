"""Searches by what names a message, and what is looked at for them: no more than needed, and nothing less."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import oracles
import search_oracle
from acl_file import DEFAULTS, DEFAULTS_SECRET, write_accounts
from broker_harness import service_of, serving_in_a_thread
from command_line import rocketlens
from damaged_units import QueueImage, damage_queues
from doctoring import make_store
from examples import examples
from golden_store import CASES, unpack
from oracles import index_hash, read_log, split_keys
from protocol.properties import DLQ_ORIGIN_MESSAGE_ID, ORIGIN_MESSAGE_ID
from protocol.question import OFFSET_ID, KeyKind, Question
from queue_stores import unit_bytes
from rocketlens import connect
from storage.search import _by_queue, _by_time, origin_copies
from storage.search import plan as planning
from storage.search._by_queue import offsets_by_queue, required_tags
from storage.search.criteria import Criteria
from storage.search.engine import search
from storage.search.find import Finder, message_at
from storage.search.lookup import KeyHashes, LookupHere, look_up
from storage.search.origin_copies import copies_of
from storage.search.plan import make_plan
from storage.store.message_store import MessageStore, StoreOptions
from storage.store.topic_catalog import topic_names
from store_writer import StoreWriter
from strategies import KEYS, TAGS, TOPICS, store_plans
from web_questions import ApiOf


@pytest.fixture(scope="module")
def store(g1_store: Path) -> MessageStore:
    return MessageStore.open(g1_store)


def find(store, text, place=None, **limits):
    asked = {name: limits.pop(name) for name in ("topic", "maximum") if name in limits}
    finder = Finder(store, Question(**{"topic": "", "text": text, **asked}), topic_names(store), **limits)  # type: ignore[arg-type]
    finder.go_on(place)
    return finder


def test_every_record_is_found_by_what_names_it(store: MessageStore, g1_store: Path) -> None:
    records = oracles.read_log(g1_store / "commitlog")
    assert len(records) > 300
    for record in records[::40]:
        message, damage = message_at(store, record.physical_offset)
        assert message is not None
        assert damage is None
        for text in (str(record.physical_offset), message.offset_message_id, message.offset_message_id.lower()):
            assert find(store, text).found[0].message == message
        if message.unique_key is not None:
            by_key = find(store, message.unique_key, maximum=1000).found
            assert message.physical_offset in {each.message.physical_offset for each in by_key}
            assert {each.kind for each in by_key} == {"unique key"}


def test_keys_and_tags_are_those_that_records_have(store: MessageStore, g1_store: Path) -> None:
    records = oracles.read_log(g1_store / "commitlog")
    for text in ("hotkey", "TagA", "BB", "dup", "标签"):
        found = {(each.message.physical_offset, each.kind) for each in find(store, text, maximum=1000).found}
        expected = {(one.physical_offset, "key") for one in records if text in one.properties.get("KEYS", "").split()}
        expected |= {(each.physical_offset, "tag") for each in records if each.properties.get("TAGS") == text}
        assert found == expected != set()


def test_what_may_not_be_shown_is_not(store: MessageStore) -> None:
    for text in ("hotkey", "6581"):
        finder = find(store, text, refusal=lambda message: f"not {message.topic}")
        assert finder.found == []
    assert next(each.note for each in finder.readings if each.kind == "physical offset") == "not TopicTest"


ROLLBACK = 0xC


def named(store: MessageStore, queries: list[str], **options: object) -> set[tuple[str, int]]:
    steps = list(look_up(LookupHere(store), queries, **options))  # type: ignore[arg-type]
    found = [(match.text, match.message.physical_offset) for step in steps for match in step.matches]
    assert [offset for _, offset in found] == sorted(offset for _, offset in found)
    assert len(set(found)) == len(found)
    return set(found)


def by_loop(records, queries, topic, kind):
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


@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(store_plans().filter(lambda plan: plan.messages),
       st.lists(st.sampled_from([*KEYS, "uniq-1", "a", "b", "nowhere"]), min_size=1, max_size=8),
       st.sampled_from([None, *TOPICS]), st.sampled_from([None, "unique key or key", "unique key", "key"]))  # fmt: skip
def test_all_keys_find_what_a_loop_finds_whatever_the_index_lacks(tmp_path_factory, plan, queries, topic, kind) -> None:
    root = tmp_path_factory.mktemp("store")
    plan.write(root)
    found = named(MessageStore.open(root), queries, topic=topic, kind=kind)
    assert found == by_loop(read_log(root / "commitlog"), queries, topic, kind)


def test_an_offset_message_id_names_its_message_and_a_key_that_looks_like_one_is_a_key(tmp_path) -> None:
    unique_key = "7F000001" + "00002A9F" + "00000000000F0000"
    with StoreWriter(tmp_path) as writer:
        first = writer.append("T", unique_key=unique_key)
        second = writer.append("T")
    store = MessageStore.open(tmp_path)
    queries = [second.offset_message_id, unique_key]
    assert named(store, queries) == {(queries[0], second.physical_offset), (unique_key, first.physical_offset)}
    assert named(store, queries, kind=KeyKind.ANY.words) == {(unique_key, first.physical_offset)}
    assert named(store, queries, kind=OFFSET_ID) == {(queries[0], second.physical_offset)}


@given(st.lists(st.text(max_size=40), max_size=8), st.text(max_size=8))
def test_the_hashes_of_many_are_those_of_each(keys: list[str], topic: str) -> None:
    assert KeyHashes(keys).within(topic).tolist() == [index_hash(f"{topic}#{key}") for key in keys]


def test_without_an_index_the_log_is_scanned_and_a_batch_can_be_stopped(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, segment_size=4096) as writer:
        for number in range(50):
            writer.append("T", keys=f"k{number % 7} Aa", unique_key=f"U{number}")
    expected = named(MessageStore.open(tmp_path), ["k3", "U7", "Aa"])
    shutil.rmtree(tmp_path / "index")
    store = MessageStore.open(tmp_path, StoreOptions(scan_budget=0))
    assert named(store, ["k3", "U7", "Aa"]) == expected
    assert list(look_up(LookupHere(store), ["U1"], should_stop=lambda: True)) == []


GONE = "7F00000100002A9F0000000000000000"
OTHER = "7F00000100002A9F00000000000000FF"
DEAD_LETTER, RETRY = 4967, 4734


@pytest.fixture
def case(tmp_path: Path) -> Path:
    return unpack("store", tmp_path, archives=CASES / "B5-expired-origin")


def test_an_expired_message_is_found_by_its_copies(case: Path) -> None:
    text = GONE.lower()
    outcome = rocketlens("find", case, text, "--json")
    assert outcome.code == 0
    assert [each["physicalOffset"] for each in outcome.messages] == [DEAD_LETTER, RETRY]
    assert f"copies of it: the dead letter at {DEAD_LETTER}, the retry at {RETRY}" in outcome.errors
    assert "no message there: physical offset 0 lies before the log's start" in outcome.errors
    assert "g gave up" in rocketlens("life", case, text).text
    answer = ApiOf(case).ask("/find", text=text).json
    assert [each["physicalOffset"] for each in answer["messages"]] == [DEAD_LETTER, RETRY]


def test_a_server_is_asked_for_the_copies_of_an_expired_message_by_our_own_client(case: Path, tmp_path: Path) -> None:
    here = rocketlens("find", case, GONE, "--json")
    with serving_in_a_thread(service_of(MessageStore.open(case))) as address:
        outcome = rocketlens("find", address, GONE, "--json")
        assert (outcome.code, outcome.messages) == (0, here.messages)
        assert f"copies of it: the dead letter at {DEAD_LETTER}, the retry at {RETRY}" in outcome.errors
        one = rocketlens("find", address, GONE, "--topic", "%DLQ%g", "--json")
        assert [each["physicalOffset"] for each in one.messages] == [DEAD_LETTER]
        assert rocketlens("find", address, OTHER).code == 1
        assert "g gave up" in rocketlens("life", address, GONE).text
    service = service_of(MessageStore.open(case), acl=write_accounts(tmp_path / "plain_acl.yml"))
    keys = {"access_key": DEFAULTS, "secret_key": DEFAULTS_SECRET}  # which is no administrator
    with serving_in_a_thread(service) as address, connect(str(address), **keys) as remote:
        note = remote.find(GONE, kind="offset message id").readings[0].note
        assert "copies of it are listed to administrators" in note


@pytest.mark.parametrize("mask", ["unique_key", "store_host", "properties"])
def test_nothing_is_found_by_an_id_that_is_hidden(mask: str, case: Path) -> None:
    outcome = rocketlens("find", case, GONE, "--mask", mask)
    assert outcome.code == 1
    assert "copies of it" not in outcome.errors


@settings(max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    copies=st.lists(
        st.tuples(
            st.sampled_from(["%DLQ%g", "%RETRY%g", "%RETRY%h_T", "T", "SCHEDULE_TOPIC_XXXX"]),
            st.sampled_from([ORIGIN_MESSAGE_ID, DLQ_ORIGIN_MESSAGE_ID, "KEYS"]),
            st.sampled_from([GONE, OTHER]),
        ),
        max_size=30,
    ),
    at_once=st.integers(1, 9),
    broken=st.sets(st.integers(0, 9)),
    lost=st.none() | st.integers(0, 4),
)
@example(copies=[("%RETRY%g", ORIGIN_MESSAGE_ID, GONE)] * 20, at_once=4, broken={1, 8}, lost=1)
def test_copies_in_retry_and_dead_letter_topics_alone_are_found(copies, at_once, broken, lost, monkeypatch) -> None:
    """Also where units of their queues are broken, or a file is lost."""
    monkeypatch.setattr(origin_copies, "AT_ONCE", at_once)
    with tempfile.TemporaryDirectory() as directory:
        with StoreWriter(Path(directory), queue_file_size=60) as writer:
            places = [
                writer.append(topic, b"x", properties={name: text}, queue_id=number % 2).physical_offset
                for number, (topic, name, text) in enumerate(copies)
            ]
            writer.append("T", b"x")
        damage_queues(Path(directory), broken, lost)
        expected = [
            (not topic.startswith("%DLQ%"), topic, place)
            for (topic, name, text), place in zip(copies, places, strict=True)
            if topic.startswith("%") and name != "KEYS" and text == GONE
        ]
        store = MessageStore.open(directory)
        found = [(not one.topic.startswith("%DLQ%"), one.topic, one.physical_offset) for one in copies_of(store, GONE)]
        assert sorted(found) == sorted(expected)
        assert [each[:2] for each in found] == sorted(each[:2] for each in found)
        assert list(copies_of(store, GONE, lambda: True)) == []


LAZY = StoreOptions(scan_budget=0, check_budget=0)


@pytest.fixture
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


@pytest.mark.usefixtures("small_costs")
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


@pytest.mark.usefixtures("small_costs")
def test_a_key_of_a_message_in_a_batch_is_in_no_index_and_is_found(tmp_path) -> None:
    with StoreWriter(tmp_path) as writer:
        batch = writer.append_inner_batch("B", [(b"one", {"KEYS": "a"}), (b"two", {"KEYS": "b"})])
    for lost in (None, "batchconsumequeue"):
        if lost:
            shutil.rmtree(tmp_path / lost)
        assert searched(MessageStore.open(tmp_path), Criteria(topic="B", key="b"))[0] == [(batch.physical_offset, 1)]


@pytest.mark.usefixtures("small_costs")
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
@given(store_plans().filter(lambda plan: plan.messages), st.sampled_from(TOPICS),
       st.sampled_from([None, *TAGS]).filter(lambda tag: tag != ""),
       st.sampled_from([None, *KEYS]).filter(lambda key: key != ""))  # fmt: skip
@pytest.mark.usefixtures("small_costs")
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


@pytest.mark.usefixtures("small_costs")
@pytest.mark.parametrize("tags", [None, ("t",)])
def test_a_damaged_unit_leaves_the_search_to_a_scan(tmp_path, tags) -> None:
    writer, written = make_store(tmp_path, 200)
    written += [writer.append("T", b"", tags="t", queue_id=queue_id) for queue_id in (2, 3)]
    writer.close()
    everything = [each.physical_offset for each in written]
    found = offsets_by_queue(MessageStore.open(tmp_path).snapshot, "T", tags, 0, END)
    assert found.tolist() == everything
    other, image = written[4], QueueImage(tmp_path / "consumequeue" / "T" / "1")
    for number in (30, 50):  # in the middle of a file, and at the beginning of one
        unit, beside = image.unit(number), image.unit(number - 1)
        too_long = unit[:8] + b"\0\1" + unit[10:]
        for damage in (bytes(20), unit_bytes(other.physical_offset, other.size, 0), beside, too_long):
            image.put(number, damage)
            assert offsets_by_queue(MessageStore.open(tmp_path).snapshot, "T", tags, 0, END) is None
        image.put(number, unit)
