"""The lookup kernel against the oracle that walks chains over bytes and compares decoded strings."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from kernel_memory import Bytes, IndexBytes, KernelStore, record_at
from oracles import END_OF_TIME
from storage.kernels import catalog as table
from storage.kernels import lookup as kernel
from storage.kernels.lookup import keep_hit, matches_key
from store_files import property_bytes
from strategies import KEYS, TAGS, TOPICS, property_blocks

KINDS = {"ANY": kernel.KIND_ANY, "K": kernel.KIND_KEY, "U": kernel.KIND_UNIQUE, "T": kernel.KIND_TAG}
HIT = Struct("=qqq")
STEPS = 10_000
TICK = 1000
T0 = 1_700_000_000_000


@dataclass
class Answer:
    status: int
    offsets: list[int]
    body: bytes
    results: list[int]


@dataclass
class Question:
    topic: str
    key: str
    kind: str = "ANY"
    maximum: int = 64
    begin: int = 0
    end: int = END_OF_TIME
    before: int = END_OF_TIME
    limit: int = 1 << 40
    tick: int = 0
    steps: int = STEPS
    tags_only: bool = False


memory = np.zeros(kernel.NEEDLE_BYTES + kernel.RESULT_BYTES + kernel.BODY_BYTES, dtype=np.uint8)


def ask(store: KernelStore, question: Question) -> Answer:
    """Call the kernel once."""
    infix = "#T#" if question.kind == "T" else "#"
    topic, key = question.topic.encode(), question.key.encode()
    needle = topic + infix.encode() + key
    memory[: len(needle)] = np.frombuffer(needle, dtype=np.uint8)
    hits = kernel.NEEDLE_BYTES + 8 * kernel.RESULT_HITS
    body = kernel.NEEDLE_BYTES + kernel.RESULT_BYTES
    results = memory[kernel.NEEDLE_BYTES : hits].view(np.int64)
    status = kernel.lookup(
        store.catalog, np.zeros(16, dtype=np.int64), results, memory.ctypes.data, len(topic), len(needle) - len(key),
        len(needle), KINDS[question.kind], question.maximum, question.begin, question.end, question.before,
        question.limit, question.tick, question.steps, int(question.tags_only),
    )  # fmt: skip
    numbers = [int(number) for number in results]
    found = HIT.iter_unpack(memory[hits : hits + HIT.size * numbers[kernel.RESULT_COUNT]].tobytes())
    copied = memory[body : body + numbers[kernel.RESULT_TOTAL]].tobytes() if status == kernel.FOUND else b""
    return Answer(int(status), [hit[0] for hit in found], copied, numbers)


@dataclass
class Plan:
    """A log, its index files, and entries of a scan in so many runs."""

    slots: int = 7
    entries: int = 12
    messages: list[dict[str, Any]] = field(default_factory=list)
    scanned: list[int] = field(default_factory=list)
    runs: int = 1
    damage: list[tuple[int, int, int]] = field(default_factory=list)

    def build(self) -> tuple[KernelStore, list[oracles.Record], list[tuple[bytes, int]], list[tuple[int, int]]]:
        """The kernel's view, the records, index files with slot counts, and scanned entries."""
        data, builder = b"", oracles.IndexBuilder(self.slots, self.entries)
        records, scanned = [], []
        for number, message in enumerate(self.messages):
            packed = record_at(len(data), **message)
            record = oracles.read_record(packed, 0, check_crc=False)
            assert record is not None
            records.append(record)
            if number in self.scanned:
                texts = oracles.index_keys(record)
                scanned += [(oracles.index_hash(text), record.physical_offset) for text in texts]
            else:
                builder.dispatch(record)
            data += packed
        files = []
        for number, image in enumerate(builder.files):
            content = bytearray(image.to_bytes())
            for file, position, value in self.damage:
                if file % len(builder.files) == number:
                    _set_pointer(content, image, position, value)
            maximum = max((entry[1] for entry in image.entries), default=0)
            files.append(IndexBytes(bytes(content), self.slots, len(image.entries), maximum))
        valid = [record for record in records if oracles.read_record(data, record.physical_offset) is not None]
        store = KernelStore([(0, data)], files, scanned, runs=self.runs)
        return store, valid, [(file.data, file.slots) for file in files], scanned


def _set_pointer(content: bytearray, image: oracles.IndexImage, position: int, value: int) -> None:
    """Change a slot or the pointer of an entry, whichever comes at `position`."""
    place = position % (image.slot_count + len(image.entries))
    start = 40 + 4 * place
    if place >= image.slot_count:
        start = 40 + 4 * image.slot_count + 20 * (place - image.slot_count + 1) + 16
    content[start : start + 4] = oracles.packed(value, 4)


messages = st.fixed_dictionaries(
    {
        "topic_bytes": st.sampled_from([topic.encode() for topic in TOPICS[:3]]),
        "keys": st.none() | st.lists(st.sampled_from(KEYS[:6]), max_size=3).map(" ".join),
        "unique_key": st.sampled_from([None, "Aa", "BB", "u1"]),
        "tags": st.sampled_from(TAGS),
        "store_timestamp": st.integers(T0 - 3, T0 + 3),
        "crc": st.sampled_from([None, None, None, None, 1]),
        "sys_flag": st.sampled_from([0, 4, 8, 0x30]),
    }
)
plans = st.builds(
    Plan,
    slots=st.sampled_from([1, 2, 7]),
    entries=st.sampled_from([3, 12, 100]),
    messages=st.lists(messages, min_size=1, max_size=14),
    scanned=st.lists(st.integers(0, 13), max_size=6),
    runs=st.integers(1, 4),
    damage=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 99), st.integers(-2, 20) | st.sampled_from([-(2**31), 2**31 - 1])),
        max_size=2,
    ),
)


class TestLookup:
    @settings(max_examples=150)
    @given(plans, st.data())
    def test_what_index_and_scan_propose_is_answered_like_the_oracle(self, plan: Plan, data: st.DataObject) -> None:
        store, records, files, scanned = plan.build()
        stamps = st.integers(T0 - 4, T0 + 4)
        for _ in range(6):
            kind = data.draw(st.sampled_from(list(KINDS)))
            question = Question(
                topic=data.draw(st.sampled_from(TOPICS[:3])),
                key=data.draw(st.sampled_from([*KEYS[:6], "u1", "TagA", "标签"])),
                kind=kind,
                maximum=data.draw(st.integers(1, 4)),
                begin=-END_OF_TIME if kind == "U" else data.draw(st.just(0) | stamps),
                end=END_OF_TIME if kind == "U" else data.draw(st.just(END_OF_TIME) | stamps),
                before=data.draw(st.just(END_OF_TIME) | st.sampled_from([0, *(r.physical_offset for r in records)])),
            )
            expected = oracles.lookup(
                files, scanned, records, question.topic, question.key,
                kind=kind, begin=question.begin, end=question.end, before_offset=question.before,
            )  # fmt: skip
            answer = ask(store, question)
            assert answer.status == kernel.FOUND
            assert answer.offsets == expected[-question.maximum :]
            assert bool(answer.results[kernel.RESULT_MORE]) == (len(expected) > question.maximum)
            log = bytes(store.segments[0])
            sizes = {record.physical_offset: record.total_size for record in records}
            assert answer.body == b"".join(log[offset : offset + sizes[offset]] for offset in answer.offsets)

    def test_a_hit_of_several_files_and_of_the_scan_counts_once(self) -> None:
        plan = Plan(messages=[{"keys": "a a a", "unique_key": "a"}] * 3)
        store, _, files, _ = plan.build()
        file = store.index_files[0]
        twice = IndexBytes(bytes(file), plan.slots, 12 - 1, 10**6)
        scanned = [(oracles.index_hash("TopicTest#a"), offset) for offset in (0, 0, 0)]
        both = KernelStore([(0, bytes(store.segments[0]))], [twice, twice], scanned)
        answer = ask(both, Question("TopicTest", "a"))
        assert answer.offsets == sorted(set(oracles.walk_chain(files[0][0], 7, oracles.index_hash("TopicTest#a"))))

    def test_what_was_looked_at_is_counted(self) -> None:
        store, _, files, _ = Plan(slots=1, messages=[{"keys": "Aa"}, {"keys": "BB"}, {"keys": "c"}]).build()
        answer = ask(store, Question("TopicTest", "Aa", "K"))
        assert answer.offsets == [0]
        assert answer.results[kernel.RESULT_FILES] == 1
        assert answer.results[kernel.RESULT_WALKED] == 3
        assert answer.results[kernel.RESULT_REFUSED] == 1
        assert answer.results[kernel.RESULT_BAD_POINTERS] == 0
        assert len(files) == 1

    @pytest.mark.parametrize(
        ("wrong", "strays"),
        [(lambda end: 1, 1), (lambda end: end - 1, 1), (lambda end: end, 0), (lambda end: 2**40, 0)],
        ids=["inside a record", "in the last byte", "behind the log", "far behind"],
    )
    def test_an_entry_that_points_into_the_log_where_no_record_starts_is_told(
        self, wrong: Callable[[int], int], strays: int
    ) -> None:
        store, records, files, _ = Plan(slots=1, messages=[{"keys": "a"}] * 3).build()
        log = bytes(store.segments[0])
        data, entry = bytearray(files[0][0]), 40 + 4 + 20 * 2
        data[entry + 4 : entry + 12] = oracles.packed(wrong(len(log)), 8)
        store = KernelStore([(0, log)], [IndexBytes(bytes(data), 1, 3, 10**6)])
        answer = ask(store, Question("TopicTest", "a", "K"))
        assert answer.offsets == [records[0].physical_offset, records[2].physical_offset]
        assert (answer.results[kernel.RESULT_STRAYS], answer.results[kernel.RESULT_REFUSED]) == (strays, 1)
        if strays:
            assert answer.results[kernel.RESULT_STRAY_HEAT] == store.heat_address(len(store.segments))
            assert answer.results[kernel.RESULT_STRAY_OFFSET] == wrong(len(log))

    @pytest.mark.parametrize(("known", "strays"), [((), 1), ((50,), 1), ((1,), 0), ((0, 1, 7), 0), ((0, 2), 1)])
    def test_where_the_log_is_known_to_be_damaged_an_entry_is_no_stray(
        self, known: tuple[int, ...], strays: int
    ) -> None:
        store, _, files, _ = Plan(slots=1, messages=[{"keys": "a"}] * 3).build()
        log, data, entry = bytes(store.segments[0]), bytearray(files[0][0]), 40 + 4 + 20 * 2
        data[entry + 4 : entry + 12] = oracles.packed(1, 8)
        store = KernelStore([(0, log)], [IndexBytes(bytes(data), 1, 3, 10**6)])
        places = Bytes(np.array(known, dtype=np.int64).tobytes())
        store.catalog[[table.DAMAGE_COUNT, table.DAMAGE_OFFSETS]] = len(known), places.address
        assert ask(store, Question("TopicTest", "a", "K")).results[kernel.RESULT_STRAYS] == strays

    def test_a_record_of_another_key_is_no_stray(self) -> None:
        store, _, _, _ = Plan(slots=1, messages=[{"keys": "Aa"}, {"keys": "BB"}]).build()
        assert ask(store, Question("TopicTest", "Aa", "K")).results[kernel.RESULT_STRAYS] == 0

    @pytest.mark.parametrize(("entry", "value"), [(0, 9), (3, 3), (3, 9), (2, 5)])
    def test_a_pointer_that_does_not_go_down_ends_the_chain_and_is_counted(self, entry: int, value: int) -> None:
        plan = Plan(slots=1, messages=[{"keys": "a"}] * 3, damage=[(0, entry, value)])
        store, records, files, _ = plan.build()
        answer = ask(store, Question("TopicTest", "a", "K"))
        assert answer.results[kernel.RESULT_BAD_POINTERS] == 1
        assert answer.offsets == oracles.lookup(files, [], records, "TopicTest", "a", kind="K")

    def test_files_without_tag_entries_are_left_out_when_only_tags_count(self) -> None:
        store, _, _, _ = Plan(messages=[{"tags": "TagA"}] * 3).build()
        held = store.index_files[0]
        for flags, expected in ((table.ASCENDING, 0), (table.ASCENDING | table.HAS_TAGS, 3)):
            file = IndexBytes(bytes(held), 7, 3, 10**6, flags)
            changed = KernelStore([(0, bytes(store.segments[0]))], [file])
            answer = ask(changed, Question("TopicTest", "TagA", "T", tags_only=True))
            assert len(answer.offsets) == expected
            assert answer.results[kernel.RESULT_FILES] == (expected > 0)

    @pytest.mark.parametrize("flags", [0, table.ASCENDING])
    def test_files_wholly_older_than_a_full_answer_are_not_opened(self, flags: int) -> None:
        plan = Plan(entries=3, messages=[{"keys": "a"}] * 8)
        store, _, files, _ = plan.build()
        log = bytes(store.segments[0])
        maxima = [max(oracles.walk_chain(*file, oracles.index_hash("TopicTest#a"))) for file in files]
        rows = [
            IndexBytes(data, slots, 2, maximum, flags) for (data, slots), maximum in zip(files, maxima, strict=True)
        ]
        answer = ask(KernelStore([(0, log)], rows), Question("TopicTest", "a", maximum=2))
        assert len(rows) == 4
        assert len(answer.offsets) == 2
        assert answer.results[kernel.RESULT_FILES] == 2
        assert answer.results[kernel.RESULT_MORE] == 1

    def test_a_long_chain_is_walked_to_its_end(self) -> None:
        plan = Plan(slots=1, entries=2000, messages=[{"keys": "first"}, *[{"keys": "x"}] * 400])
        store, _, _, _ = plan.build()
        answer = ask(store, Question("TopicTest", "first"))
        assert answer.offsets == [0]
        assert answer.results[kernel.RESULT_WALKED] == 401


class TestSize:
    @settings(max_examples=40)
    @given(st.lists(st.integers(0, 300), min_size=1, max_size=8), st.integers(0, 3000), st.integers(1, 9))
    def test_an_answer_is_cut_at_whole_messages_and_drops_the_oldest(
        self, sizes: list[int], limit: int, maximum: int
    ) -> None:
        store, records, _, _ = Plan(messages=[{"keys": "a", "body": bytes(size)} for size in sizes]).build()
        answer = ask(store, Question("TopicTest", "a", limit=limit, maximum=maximum))
        kept: list[oracles.Record] = []
        for record in records[::-1][:maximum]:
            if sum(r.total_size for r in kept) + record.total_size > limit:
                break
            kept.insert(0, record)
        assert answer.offsets == [record.physical_offset for record in kept]
        assert bool(answer.results[kernel.RESULT_CUT]) == (len(kept) < min(maximum, len(records)))
        assert bool(answer.results[kernel.RESULT_MORE]) == (len(records) > maximum)

    @pytest.mark.parametrize(("spare", "kept"), [(-1, 2), (0, 3), (1, 3)])
    def test_an_answer_may_be_as_long_as_the_limit(self, spare: int, kept: int) -> None:
        store, records, _, _ = Plan(messages=[{"keys": "a"}] * 3).build()
        answer = ask(store, Question("TopicTest", "a", limit=3 * records[0].total_size + spare))
        assert len(answer.offsets) == kept
        assert answer.results[kernel.RESULT_CUT] == (kept < 3)

    @pytest.mark.parametrize(("spare", "status"), [(0, kernel.FOUND), (1, kernel.FOUND_UNCOPIED)])
    def test_an_answer_that_just_fits_is_copied(self, spare: int, status: int) -> None:
        body = kernel.BODY_BYTES - len(record_at(0, keys="a", body=b"")) + spare
        store, _, _, _ = Plan(messages=[{"keys": "a", "body": bytes(body)}]).build()
        answer = ask(store, Question("TopicTest", "a"))
        assert (answer.status, answer.results[kernel.RESULT_TOTAL]) == (status, kernel.BODY_BYTES + spare)
        assert status == kernel.FOUND_UNCOPIED or answer.body == bytes(store.segments[0])

    def test_an_answer_too_long_to_copy_is_listed(self) -> None:
        store, records, _, _ = Plan(messages=[{"keys": "a", "body": bytes(300_000)}] * 5).build()
        answer = ask(store, Question("TopicTest", "a", maximum=4))
        assert answer.status == kernel.FOUND_UNCOPIED
        assert answer.offsets == [record.physical_offset for record in records[1:]]
        assert answer.results[kernel.RESULT_TOTAL] == sum(record.total_size for record in records[1:])


class TestStopping:
    """A thread that may not wait walks a bounded number of entries and reads no page that is not in memory."""

    @pytest.mark.parametrize(("steps", "status"), [(4, kernel.STOPPED_LONG), (5, kernel.FOUND)])
    def test_a_walk_longer_than_allowed_stops(self, steps: int, status: int) -> None:
        store, records, _, _ = Plan(slots=1, messages=[{"keys": "a"}] * 5).build()
        answer = ask(store, Question("TopicTest", "a", steps=steps))
        assert answer.status == status
        assert status == kernel.STOPPED_LONG or answer.body == bytes(store.segments[0])
        assert len(records) == 5

    @pytest.mark.parametrize(("steps", "status"), [(4, kernel.STOPPED_LONG), (5, kernel.FOUND)])
    def test_steps_in_what_was_scanned_count_too(self, steps: int, status: int) -> None:
        store, _, _, _ = Plan(messages=[{"keys": "a"}] * 5, scanned=[0, 1, 2, 3, 4]).build()
        answer = ask(store, Question("TopicTest", "a", steps=steps))
        assert answer.status == status
        assert status == kernel.STOPPED_LONG or answer.body == bytes(store.segments[0])

    def test_what_was_cold_is_named_until_nothing_is(self) -> None:
        """Slot, entry, head of the record and its body, each in a 64 KiB unit of its own."""
        plan = Plan(slots=40_000, entries=9_000, messages=[{"keys": "a", "body": bytes(140_000)}])
        built, _, _, _ = plan.build()
        file = IndexBytes(bytes(built.index_files[0]), plan.slots, 1, 0)
        question = Question("TopicTest", "a", "K", tick=TICK)
        slot = 40 + 4 * (oracles.index_hash("TopicTest#a") % plan.slots)
        entry = 40 + 4 * plan.slots + 20
        size = len(bytes(built.segments[0]))
        log, index = 0, 1
        expected = [(index, slot, 4), (index, entry, 20), (log, 0, 64), (log, 0, size)]
        with tempfile.TemporaryFile() as short:  # every probe comes back short, as over cold pages
            store = KernelStore([(0, bytes(built.segments[0]))], [file], descriptor=short.fileno())
            for number, position, length in expected:
                answer = ask(store, question)
                assert answer.status == kernel.STOPPED_COLD
                assert answer.results[kernel.RESULT_COLD_HEAT] == store.heat_address(number)
                assert answer.results[kernel.RESULT_COLD_POSITION] == position
                assert answer.results[kernel.RESULT_COLD_LENGTH] == length
                store._heat[number][position >> 16 : ((position + length - 1) >> 16) + 1] = TICK
            assert ask(store, question).offsets == [0]
            assert ask(store, replace(question, tick=TICK + 2)).status == kernel.STOPPED_COLD
            assert ask(store, replace(question, tick=0)).offsets == [0]

    def test_a_cold_record_that_the_scan_proposes_stops_too(self) -> None:
        built, _, _, scanned = Plan(messages=[{"keys": "a"}], scanned=[0]).build()
        with tempfile.TemporaryFile() as short:
            store = KernelStore([(0, bytes(built.segments[0]))], [], scanned, descriptor=short.fileno())
            assert ask(store, Question("TopicTest", "a", tick=TICK)).status == kernel.STOPPED_COLD


class TestMatching:
    @given(property_blocks, st.sampled_from(["a", "Aa", "k1", "v", "KEYS", ""]), st.sampled_from(list(KINDS)))
    def test_a_key_matches_by_the_brokers_parsing_of_properties(self, block: bytes, key: str, kind: str) -> None:
        text = oracles.decode_java(block)
        record = oracles.Record(
            0, 0, 0, 0, 0, 0, 0, 0, 0, (b"", 0), 0, (b"", 0), 0, 0, b"", b"", text.encode("utf-8", "surrogatepass")
        )
        held, needle = Bytes(block), Bytes(key.encode())
        found = matches_key(held.address, held.length, needle.address, needle.length, KINDS[kind])
        assert found == (bool(key) and oracles.has_key(record, key, kind))

    @pytest.mark.parametrize(("kind", "expected"), [("ANY", True), ("K", False), ("U", True), ("T", False)])
    def test_each_kind_looks_at_its_own_property(self, kind: str, expected: bool) -> None:
        block = property_bytes({"UNIQ_KEY": "x", "KEYS": "xx y", "TAGS": "x y"})
        held, needle = Bytes(block), Bytes(b"x")
        assert matches_key(held.address, held.length, needle.address, 1, KINDS[kind]) == expected

    @settings(max_examples=60)
    @given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 8))
    def test_the_newest_hits_are_kept_once_each_in_order(self, offsets: list[int], capacity: int) -> None:
        results = np.zeros(kernel.RESULT_HITS, dtype=np.int64)
        hits = np.zeros(3 * (capacity + 2), dtype=np.int64)
        for offset in offsets:
            is_full = results[kernel.RESULT_COUNT] == capacity
            if not (is_full and offset <= hits[0]):  # as `is_wanted` has asked before
                keep_hit(hits.ctypes.data, results, capacity, offset, offset + 1000, 7)
        kept = hits[: 3 * int(results[kernel.RESULT_COUNT])].reshape(-1, 3).tolist()
        assert kept == [[offset, offset + 1000, 7] for offset in sorted(set(offsets))[-capacity:]]
        assert hits[3 * capacity :].tolist() == [0] * 6
