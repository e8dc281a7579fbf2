"""An index file held against the log, keys scanned from the log, and compacted files."""

import random
import shutil
from array import array
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kept_store
import oracles
from examples import examples
from job_runs import compact_in_place, compact_store, small_steps
from kept_store import append_some, assert_all_found, written
from protocol.question import KeyKind, Question
from storage.files.mapped_file import MappedFile
from storage.index._index_coverage import find_gaps
from storage.index._index_shape import MAXIMUM_GAPS
from storage.index.index_file import IndexFile, determine_shape
from storage.index.index_glance import glance
from storage.index.index_probe import SAMPLE, probe_index_file
from storage.index.tail_index import EntryRun, TailIndex, empty_tail, extend_tail
from storage.log.commit_log import CommitLog
from storage.store.message_store import MessageStore, StoreOptions
from store_queries import KINDS
from store_writer import StoreWriter
from strategies import store_plans


def written_with_holes(root, indexed, **options):
    writer = StoreWriter(root, index_slots=7, index_entries=10_000, segment_size=4096, **options)
    for number, index in enumerate(indexed):
        writer.append("T", b"x" * 30, keys=f"k{number}", unique_key=f"u{number}", tags="t", index=index)
    return writer


def gaps_of(writer: StoreWriter, number: int = 0, *, has_tags: bool = True) -> tuple[tuple[int, int], ...]:
    writer.close()
    file = MappedFile.open(writer.index_paths()[number])
    shape = determine_shape(file, [writer.index.slot_count])
    return find_gaps(IndexFile(file, shape), CommitLog.open(writer.log.directories), has_tags)


def lacking(writer: StoreWriter, number: int = 0) -> set[int]:
    """Offsets of records inside the span of one index file that lack an entry, by the oracle; both ends left out."""
    image = writer.index.files[number]
    entries = [(hashed, offset) for hashed, offset, _, _ in image.entries]
    offsets = [offset for _, offset in entries]
    has_tags = writer.index.profile == "5.5"
    lacking = [each.physical_offset for each in writer.records if oracles.lacks_entry(each, entries, has_tags)]
    return {offset for offset in lacking if min(offsets) < offset < max(offsets)}


@pytest.mark.parametrize("profile", ["5.5", "5.3"])
@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(indexed=st.lists(st.booleans(), min_size=2, max_size=40))
def test_exactly_what_lacks_entries_lies_in_gaps(tmp_path_factory, profile, indexed) -> None:
    writer = written_with_holes(tmp_path_factory.mktemp("holes"), [True, *indexed, True], profile=profile)
    gaps = gaps_of(writer, has_tags=profile == "5.5")
    offsets = [written.physical_offset for written in writer.written]
    inside = {offset for offset in offsets if any(start <= offset < stop for start, stop in gaps)}
    assert inside == lacking(writer)
    assert list(gaps) == sorted(gaps)


def test_more_gaps_than_are_kept_make_one_of_the_rest(tmp_path) -> None:
    writer = written_with_holes(tmp_path, [number % 2 == 0 for number in range(401)])
    at = [written.physical_offset for written in writer.written]
    gaps = gaps_of(writer)
    assert gaps[:MAXIMUM_GAPS] == tuple((at[n], at[n + 1]) for n in range(1, 2 * MAXIMUM_GAPS, 2))
    assert gaps[MAXIMUM_GAPS:] == ((at[2 * MAXIMUM_GAPS], at[400]),)


def probe(writer, number=0):
    writer.close()
    return probe_path(writer.index_paths()[number], CommitLog.open(writer.log.directories))


def probe_path(path, log):
    file = MappedFile.open(path)
    shape = determine_shape(file, [97])
    return probe_index_file(IndexFile(file, shape), log)


def store_of(root, count, profile="5.5", **message):
    writer = StoreWriter(root, index_entries=2000, profile=profile)
    for number in range(count):
        fields = {"keys": "k{}", "tags": "TagA", "unique_key": "u{}", **message}
        writer.append("T", **{name: text and text.format(number) for name, text in fields.items()})
    return writer


class TestFitting:
    def test_a_file_of_a_log_with_records_at_the_same_places_does_not_fit(self, tmp_path) -> None:
        mine, other = store_of(tmp_path / "mine", 60), store_of(tmp_path / "other", 60, keys="j{}")
        mine.close()
        other.close()
        assert [w.physical_offset for w in mine.written] == [w.physical_offset for w in other.written]
        assert not probe_path(other.index_paths()[0], CommitLog.open(mine.log.directories)).fits

    def test_keys_of_another_dialect_do_not_fit(self, tmp_path) -> None:
        """rocketmq-rust writes ``topic#U#id`` for a unique key: its files cover nothing, the log is scanned."""
        writer = store_of(tmp_path, 40)
        image = oracles.IndexImage(97, 2000)
        for record in writer.records:
            image.put(f"T#U#{record.properties['UNIQ_KEY']}", record.physical_offset, record.store_timestamp)
        writer.index.files = [image]
        assert not probe(writer).fits

    @pytest.mark.parametrize("place", [0, -SAMPLE])
    def test_one_foreign_entry_among_the_first_or_last_is_noticed(self, tmp_path, place) -> None:
        writer = store_of(tmp_path, 400)
        image = writer.index.files[0]
        hashed, _, seconds, previous = image.entries[place]
        image.entries[place] = (hashed, writer.written[200].physical_offset, seconds, previous)
        assert not probe(writer).fits


def test_damage_at_the_front_and_at_the_end_leaves_a_doubt(tmp_path) -> None:
    writer = kept_store.written(tmp_path, 350, index_slots=97, index_entries=1401, segment_size=131072)
    store = MessageStore.open(writer.root)
    whole = writer.index_paths()[0].read_bytes()
    for entry, place in product((1, 2, 50, 1390, 1399), (0, 3, 16, 19)):
        content = bytearray(whole)
        content[40 + 4 * 97 + 20 * entry + place] ^= 0x81
        (tmp_path / "file").write_bytes(content)
        assert glance(MappedFile.open(tmp_path / "file"), store.commit_log, [97], None) is None, (entry, place)


EVERYTHING = 2**62


def filled(root, count=40, segment_size=1024):
    with StoreWriter(root, segment_size=segment_size) as writer:
        for number in range(count):
            writer.append("T", b"x" * 20, keys=f"k{number} a a", unique_key=f"u{number}", tags="t")
    return writer


def log_of(writer: StoreWriter) -> CommitLog:
    return CommitLog.open(writer.log.directories)


def listed(tail: TailIndex) -> list[list[tuple[int, int]]]:
    return [list(zip(run.hashes.tolist(), run.offsets.tolist(), strict=True)) for run in tail.runs]


def pairs(tail: TailIndex) -> set[tuple[int, int]]:
    return {pair for run in listed(tail) for pair in run}


def expected_pairs(writer: StoreWriter, start: int = 0, stop: int = EVERYTHING) -> set[tuple[int, int]]:
    records = [record for record in writer.records if start <= record.physical_offset < stop]
    return {(oracles.index_hash(text), each.physical_offset) for each in records for text in oracles.index_keys(each)}


@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=store_plans(maximum_messages=15))
def test_a_whole_log_is_found_under_what_a_broker_indexes(plan, tmp_path_factory) -> None:
    writer = plan.write(tmp_path_factory.mktemp("scan"))
    if not writer.written:
        return
    log = log_of(writer)
    tail = extend_tail(empty_tail([(log.minimum, log.end)]), log, EVERYTHING)
    assert pairs(tail) == expected_pairs(writer)
    assert (tail.remaining, tail.skipped) == ((), ())
    assert all(run == sorted(run) for run in listed(tail))


@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_hides_only_what_it_hit(data, tmp_path_factory) -> None:
    writer = filled(tmp_path_factory.mktemp("damage"), 12, 4096)
    writer.roll()
    writer.append("T", keys="in the last segment")
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, writer.written[11].physical_offset + 50))
        writer.overwrite(place, data.draw(st.binary(min_size=1, max_size=12)))
    log = log_of(writer)
    tail = extend_tail(empty_tail([(0, log.end)]), log, EVERYTHING)
    assert pairs(tail) >= expected_pairs(writer)


def test_hashes_at_both_ends_are_found_too() -> None:
    run = EntryRun.of([array("i", [5, 0, 5, 2**31 - 1])], [array("q", [7, 1, 2, 3])])
    assert [TailIndex((run,)).offsets_of(key_hash) for key_hash in (0, 5, 2**31 - 1, 6)] == [[1], [2, 7], [3], []]
    assert (run.first, run.last) == (1, 7)


@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_sequence_of_ranges_is_known_as_a_new_scan_would_know_it(data, tmp_path_factory) -> None:
    writer = filled(tmp_path_factory.mktemp("ranges"), 12)
    log = log_of(writer)
    bounds = [*(written.physical_offset for written in writer.written), log.end]
    bounds += [written.physical_offset + 1 for written in writer.written]
    tail = empty_tail()
    for _ in range(data.draw(st.integers(1, 6))):
        chosen = sorted(data.draw(st.sets(st.sampled_from(bounds), max_size=6)))
        ranges = list(zip(chosen[::2], chosen[1::2], strict=False))
        tail = tail.covering(ranges)
        if data.draw(st.booleans()):
            tail = extend_tail(tail, log, data.draw(st.sampled_from([200, EVERYTHING])))
    while tail.remaining:
        tail = extend_tail(tail, log, EVERYTHING)
    assert pairs(tail) == {pair for start, stop in tail.scope for pair in expected_pairs(writer, start, stop)}
    assert tail.skipped == ()


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


@pytest.mark.untraced
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
        outcome = compact_store(root, directory / "work", drop_tags=drop_tags, topics=tuple(topics), from_log=from_log,
                                slots=slots, entries=entries)  # fmt: skip
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


@pytest.mark.untraced
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


@pytest.mark.untraced
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
