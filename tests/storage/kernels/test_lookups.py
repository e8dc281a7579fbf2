"""The lookup kernel against the oracle that walks chains over bytes, with and without what it remembers."""

import random
import struct
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from kernel_memory import IndexBytes, KernelStore, record_at, segment_at
from oracles import END_OF_TIME
from protocol.question import KeyKind
from protocol.question import Question as Asked
from storage.kernels import lookups as kernel
from storage.kernels.store_view import Shortcuts
from strategies import KEYS, TAGS, TOPICS

KINDS = {"ANY": kernel.KIND_ANY, "K": kernel.KIND_KEY, "U": kernel.KIND_UNIQUE, "T": kernel.KIND_TAG}
TICK = 1000
T0 = 1_700_000_000_000


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
    steps: int = 10_000


def ask(store: KernelStore, asked: Question) -> kernel.Found:
    kind, times = KeyKind(KINDS[asked.kind]), (asked.begin, asked.end)
    query = kernel.KeyQuery(Asked(asked.topic, asked.key, kind, asked.maximum, *times, asked.before, asked.limit))
    return kernel.look_up(store.view, query, asked.tick, asked.steps)


@dataclass
class Plan:
    slots: int = 7
    entries: int = 12
    messages: list[dict[str, Any]] = field(default_factory=list)
    scanned: list[int] = field(default_factory=list)
    runs: int = 1
    damage: list[tuple[int, int, int]] = field(default_factory=list)

    def build(self) -> tuple[KernelStore, list[oracles.Record], list[tuple[bytes, int]], list[tuple[int, int]]]:
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
    place = position % (image.slot_count + len(image.entries))
    start = 40 + 4 * place
    if place >= image.slot_count:
        start = 40 + 4 * image.slot_count + 20 * (place - image.slot_count + 1) + 16
    content[start : start + 4] = oracles.packed(value, 4)


messages = st.fixed_dictionaries({
    "topic_bytes": st.sampled_from([topic.encode() for topic in TOPICS[:3]]),
    "keys": st.none() | st.lists(st.sampled_from(KEYS[:6]), max_size=3).map(" ".join),
    "unique_key": st.sampled_from([None, "Aa", "BB", "u1"]),
    "tags": st.sampled_from(TAGS),
    "store_timestamp": st.integers(T0 - 3, T0 + 3),
    "crc": st.sampled_from([None, None, None, None, 1]),
    "sys_flag": st.sampled_from([0, 4, 8, 0x30]),
})  # fmt: skip
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


@settings(max_examples=examples(12))
@given(plans, st.data())
def test_what_index_and_scan_propose_is_answered_like_the_oracle(plan: Plan, data: st.DataObject) -> None:
    store, records, files, scanned = plan.build()
    stamps = st.integers(T0 - 4, T0 + 4)
    for _ in range(6):
        kind = data.draw(st.sampled_from(list(KINDS)))
        question = Question(
            topic=data.draw(st.sampled_from(TOPICS[:3])),
            key=data.draw(st.sampled_from([*KEYS[:6], "u1", "TagA", "标签"])), kind=kind,
            maximum=data.draw(st.integers(1, 4)), begin=-END_OF_TIME if kind == "U" else data.draw(st.just(0) | stamps),
            end=END_OF_TIME if kind == "U" else data.draw(st.just(END_OF_TIME) | stamps),
            before=data.draw(st.just(END_OF_TIME) | st.sampled_from([0, *(r.physical_offset for r in records)])),
        )  # fmt: skip
        expected = oracles.lookup(files, scanned, records, question.topic, question.key, kind=kind,
                                  begin=question.begin, end=question.end, before_offset=question.before)  # fmt: skip
        answer = ask(store, question)
        assert (answer.status, list(answer.physical_offsets)) == (kernel.FOUND, expected[-question.maximum :])
        assert answer.truncated == (len(expected) > question.maximum)
        log = bytes(store.segments[0])
        sizes = {record.physical_offset: record.total_size for record in records}
        assert answer.records == b"".join(log[each : each + sizes[each]] for each in list(answer.physical_offsets))


@settings(max_examples=examples(40))
@given(st.lists(st.integers(0, 300), min_size=1, max_size=8), st.integers(0, 3000), st.integers(1, 9))
def test_an_answer_is_cut_at_whole_messages_and_drops_the_oldest(sizes, limit, maximum) -> None:
    store, records, _, _ = Plan(messages=[{"keys": "a", "body": bytes(size)} for size in sizes]).build()
    answer = ask(store, Question("TopicTest", "a", limit=limit, maximum=maximum))
    kept: list[oracles.Record] = []
    for record in records[::-1][:maximum]:
        if sum(r.total_size for r in kept) + record.total_size > limit:
            break
        kept.insert(0, record)
    assert list(answer.physical_offsets) == [record.physical_offset for record in kept]
    assert answer.truncated == (len(kept) < len(records))


def test_what_was_cold_is_named_until_nothing_is() -> None:
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
            assert answer.cold_file is store.files[number]
            assert (answer.cold_position, answer.cold_length) == (position, length)
            store.files[number].heat[position >> 16 : ((position + length - 1) >> 16) + 1] = TICK
        assert ask(store, question).physical_offsets == (0,)
        assert ask(store, replace(question, tick=TICK + 2)).status == kernel.STOPPED_COLD
        assert ask(store, replace(question, tick=0)).physical_offsets == (0,)


TOPIC = "TopicTest"
CHAIN_KEYS = ("hot", "warm", "a", "b", "Aa", "BB")
"""The last two have the same hash."""
COPIES = 3
BEFORE_SHORTCUTS, LONG_ROW = 64, 256

LOG, _PLACES = segment_at(0, *[{"keys": key} for key in CHAIN_KEYS * COPIES])
RECORDS = [record for place in _PLACES if (record := oracles.read_record(LOG, place)) is not None]
OFFSETS = {key: [each.physical_offset for each in RECORDS if oracles.has_key(each, key, "K")] for key in CHAIN_KEYS}


@dataclass
class Chain:
    """Entries of an index file with one slot; what they point to may be damaged, and stays so."""

    chain_rows: Sequence[tuple[str, int]]
    damage: Iterable[tuple[int, int]] = ()
    shortcuts: Shortcuts = field(default_factory=Shortcuts)

    def __post_init__(self) -> None:
        keys = [key for key, length in self.chain_rows for _ in range(length)]
        previous = list(range(len(keys)))
        for number, value in self.damage:
            previous[number % len(keys)] = value
        packed = [
            struct.pack(">iqii", oracles.index_hash(f"{TOPIC}#{key}"), OFFSETS[key][number % COPIES], 0, before)
            for number, (key, before) in enumerate(zip(keys, previous, strict=True))
        ]
        self.count = len(keys)
        self._entries = b"".join(packed)

    def bytes_of(self, count: int) -> bytes:
        """The file with so many entries, and room for all."""
        header = bytes(36) + oracles.packed(count + 1, 4)
        return header + oracles.packed(count, 4) + bytes(20) + self._entries[: 20 * count].ljust(20 * self.count, b"\0")

    def store(self, count: int | None = None, *, descriptor: int = -1, remembers: bool = True) -> KernelStore:
        """A view of the first entries, all unless told, as a server that follows the file has."""
        data = self.bytes_of(self.count if count is None else count)
        shortcuts = self.shortcuts if remembers else Shortcuts()
        file = IndexBytes(data, 1, self.count, len(LOG), ascending=False, shortcuts=shortcuts)
        return KernelStore([(0, LOG)], [file], descriptor=descriptor)


def ask_chain(store: KernelStore, key: str, *, steps: int = 2**62, tick: int = 0) -> kernel.Found:
    query = kernel.KeyQuery(Asked(TOPIC, key, KeyKind.KEY, maximum_bytes=1 << 40))
    return kernel.look_up(store.view, query, tick, steps)


def told(found: kernel.Found) -> tuple[object, ...]:
    """All that an answer says but for what it cost."""
    return (
        found.status, found.physical_offsets, found.records, found.truncated, found.files, found.refused,
        found.bad_pointers, found.strays,
    )  # fmt: skip


chain_rows = st.lists(
    st.tuples(
        st.sampled_from(CHAIN_KEYS),
        st.sampled_from([1, 1, 2, 63, 64, 65]) | st.sampled_from([255, 256, 257, 319, 320, 700]),
    ),
    min_size=1,
    max_size=12,
)
pointers = st.integers(-2, 5000) | st.sampled_from([-(2**31), 0, 2**31 - 1])


@settings(max_examples=examples(12), deadline=None)
@given(chain_rows, st.lists(st.tuples(st.integers(0, 5000), pointers), max_size=3), st.data())
def test_a_growing_file_is_answered_like_the_oracle_whatever_is_remembered(chain_rows, damage, data) -> None:
    chain = Chain(chain_rows, damage)
    counts = sorted(data.draw(st.lists(st.integers(1, chain.count), max_size=2)))
    for count in (*counts, chain.count):
        store, content = chain.store(count), chain.bytes_of(count)
        for key in data.draw(st.lists(st.sampled_from(CHAIN_KEYS), min_size=2, max_size=5)):
            ask_chain(store, key, steps=data.draw(st.integers(1, 1500)))
            answer, plain = ask_chain(store, key), ask_chain(chain.store(count, remembers=False), key)
            assert list(answer.physical_offsets) == oracles.lookup([(content, 1)], [], RECORDS, TOPIC, key, kind="K")
            assert told(answer) == told(plain)
            assert answer.walked <= plain.walked


@settings(max_examples=examples(12), deadline=None)
@given(chain_rows, st.integers(0, 2**32))
def test_look_ups_end_and_read_nothing_else_whatever_changes_in_the_file(chain_rows, seed) -> None:
    chain, generator = Chain(chain_rows), random.Random(seed)
    for _ in range(6):
        store = chain.store()
        content = bytearray(bytes(store.index_files[0]))
        for _ in range(generator.choice([0, 1, 5])):
            place = generator.randrange(len(content) // 4) * 4
            content[place : place + 4] = oracles.packed(
                generator.choice([0, 1, generator.randrange(chain.count), generator.randrange(-(2**31), 2**31)]), 4
            )
        for count in {chain.count, generator.randint(1, chain.count)}:
            file = IndexBytes(bytes(content), 1, count, len(LOG), ascending=False, shortcuts=chain.shortcuts)
            key = generator.choice(CHAIN_KEYS)
            answer = ask_chain(KernelStore([(0, LOG)], [file]), key)
            assert answer.status == kernel.FOUND
            assert answer.walked <= count
            assert set(answer.physical_offsets) <= set(OFFSETS[key])


def test_a_long_row_of_another_hash_is_walked_once() -> None:
    store = Chain([("a", 1), ("b", 1), ("hot", 5000)]).store()
    assert ask_chain(store, "a").walked == 5002
    short = BEFORE_SHORTCUTS + 2  # the row's part before it, where it leads from and to
    assert [ask_chain(store, key).walked for key in ("a", "b", "Aa")] == [short + 2] * 3
    assert told(ask_chain(store, "a"))[1] == (OFFSETS["a"][0],)


ROOM = 256


@pytest.mark.parametrize(
    ("topic", "key", "kind"), [(-1, 1, 0), (2, 1, 0), (1, 4, 0), (1, 2, -1), (1, 2, 4), (2**62, 2**62, 0)]
)
def test_a_needle_has_a_topic_before_its_key(topic: int, key: int, kind: int) -> None:
    question: Any = SimpleNamespace(needle=lambda: (b"T#k", topic, key), kind=kind)
    with pytest.raises(ValueError, match="a topic of"):
        kernel.KeyQuery(question)


@pytest.mark.parametrize(("wrong", "strays"),
    [(lambda end: 1, 1), (lambda end: end - 1, 1), (lambda end: end, 0), (lambda end: 2**40, 0)],
    ids=["inside a record", "in the last byte", "behind the log", "far behind"])  # fmt: skip
def test_an_entry_that_points_into_the_log_where_no_record_starts_is_told(wrong, strays) -> None:
    store, records, files, _ = Plan(slots=1, messages=[{"keys": "a"}] * 3).build()
    log = bytes(store.segments[0])
    data, entry = bytearray(files[0][0]), 40 + 4 + 20 * 2
    data[entry + 4 : entry + 12] = oracles.packed(wrong(len(log)), 8)
    store = KernelStore([(0, log)], [IndexBytes(bytes(data), 1, 3, 10**6)])
    answer = ask(store, Question("TopicTest", "a", "K"))
    assert list(answer.physical_offsets) == [records[0].physical_offset, records[2].physical_offset]
    assert (answer.strays, answer.refused) == (strays, 1)
    if strays:
        assert answer.stray_file is store.index_files[0]
        assert answer.stray_offset == wrong(len(log))


@pytest.mark.parametrize("ascending", [False, True])
def test_files_wholly_older_than_a_full_answer_are_not_opened(ascending: bool) -> None:
    plan = Plan(entries=3, messages=[{"keys": "a"}] * 8)
    store, _, files, _ = plan.build()
    log = bytes(store.segments[0])
    maxima = [max(oracles.walk_chain(*file, oracles.index_hash("TopicTest#a"))) for file in files]
    rows = [
        IndexBytes(data, slots, 2, maximum, ascending, has_tags=False)
        for (data, slots), maximum in zip(files, maxima, strict=True)
    ]
    answer = ask(KernelStore([(0, log)], rows), Question("TopicTest", "a", maximum=2))
    assert len(rows) == 4
    assert (len(list(answer.physical_offsets)), answer.files) == (2, 2)
    assert answer.truncated


@pytest.mark.parametrize(("steps", "status"), [(4, kernel.STOPPED_LONG), (5, kernel.FOUND)])
def test_a_walk_longer_than_allowed_stops(steps: int, status: int) -> None:
    store, records, _, _ = Plan(slots=1, messages=[{"keys": "a"}] * 5).build()
    answer = ask(store, Question("TopicTest", "a", steps=steps))
    assert answer.status == status
    assert status == kernel.STOPPED_LONG or answer.records == bytes(store.segments[0])
    assert len(records) == 5


def test_a_walk_that_stopped_at_a_cold_page_is_gone_on_with() -> None:
    chain = Chain([("a", 1), ("hot", 10_000)])
    with tempfile.TemporaryFile() as short:  # every probe comes back short, as over cold pages
        store = chain.store(descriptor=short.fileno())
        heat = store.index_files[0].heat
        heat[:] = TICK
        store.segments[0].heat[:] = TICK
        heat[1] = 0
        answer = ask_chain(store, "a", tick=TICK)
        assert (answer.status, answer.cold_file) == (kernel.STOPPED_COLD, store.index_files[0])
        assert len(chain.shortcuts) == 1
        heat[1] = TICK
        assert ask_chain(store, "a", tick=TICK).physical_offsets == (OFFSETS["a"][0],)
        heat[1] = 0  # nothing of what is left out is looked at
        assert ask_chain(store, "a", tick=TICK).physical_offsets == (OFFSETS["a"][0],)


def test_however_many_rows_there_are_a_bounded_number_is_remembered() -> None:
    chain = Chain([("a" if number % 2 else "b", LONG_ROW) for number in range(2 * ROOM)])
    store = chain.store()
    walked = [ask_chain(store, "hot").walked for _ in range(3)]
    assert ROOM // 2 < len(chain.shortcuts) <= ROOM
    assert walked[0] == 2 * ROOM * LONG_ROW
    assert max(walked[1:]) < walked[0]
