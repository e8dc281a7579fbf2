"""Look-ups that leave out what was walked before, against the oracle and against look-ups that remember nothing."""

import random
import struct
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from kernel_memory import IndexBytes, KernelStore, segment_at
from protocol.question import KeyKind, Question
from storage.kernels import lookups as kernel
from storage.kernels.store_view import Shortcuts

TOPIC = "TopicTest"
KEYS = ("hot", "warm", "a", "b", "Aa", "BB")
"""The last two have the same hash."""
COPIES = 3
UNBOUNDED = 2**62
TICK = 1000
BEFORE_SHORTCUTS, LONG_ROW = 64, 256
ROOM = 256

LOG, _PLACES = segment_at(0, *[{"keys": key} for key in KEYS * COPIES])
RECORDS = [record for place in _PLACES if (record := oracles.read_record(LOG, place)) is not None]
OFFSETS = {key: [record.physical_offset for record in RECORDS if oracles.has_key(record, key, "K")] for key in KEYS}


@dataclass
class Chain:
    """Entries of an index file with one slot; what they point to may be damaged, and stays so."""

    rows: Sequence[tuple[str, int]]
    damage: Iterable[tuple[int, int]] = ()
    shortcuts: Shortcuts = field(default_factory=Shortcuts)

    def __post_init__(self) -> None:
        keys = [key for key, length in self.rows for _ in range(length)]
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


def ask(store: KernelStore, key: str, *, steps: int = UNBOUNDED, tick: int = 0) -> kernel.Found:
    query = kernel.KeyQuery(Question(TOPIC, key, KeyKind.KEY, maximum_bytes=1 << 40))
    return kernel.look_up(store.view, query, tick, steps)


def told(found: kernel.Found) -> tuple[object, ...]:
    """All that an answer says but for what it cost."""
    return (
        found.status, found.physical_offsets, found.records, found.truncated, found.files, found.refused,
        found.bad_pointers, found.strays,
    )  # fmt: skip


rows = st.lists(
    st.tuples(
        st.sampled_from(KEYS), st.sampled_from([1, 1, 2, 63, 64, 65]) | st.sampled_from([255, 256, 257, 319, 320, 700])
    ),
    min_size=1,
    max_size=12,
)
pointers = st.integers(-2, 5000) | st.sampled_from([-(2**31), 0, 2**31 - 1])


class TestAnswers:
    @settings(max_examples=examples(12), deadline=None)
    @given(rows, st.lists(st.tuples(st.integers(0, 5000), pointers), max_size=3), st.data())
    def test_a_growing_file_is_answered_like_the_oracle_whatever_is_remembered(
        self, rows: list[tuple[str, int]], damage: list[tuple[int, int]], data: st.DataObject
    ) -> None:
        chain = Chain(rows, damage)
        counts = sorted(data.draw(st.lists(st.integers(1, chain.count), max_size=2)))
        for count in (*counts, chain.count):
            store, content = chain.store(count), chain.bytes_of(count)
            for key in data.draw(st.lists(st.sampled_from(KEYS), min_size=2, max_size=5)):
                ask(store, key, steps=data.draw(st.integers(1, 1500)))
                answer, plain = ask(store, key), ask(chain.store(count, remembers=False), key)
                assert list(answer.physical_offsets) == oracles.lookup(
                    [(content, 1)], [], RECORDS, TOPIC, key, kind="K"
                )
                assert told(answer) == told(plain)
                assert answer.walked <= plain.walked

    @settings(max_examples=examples(12), deadline=None)
    @given(rows, st.integers(0, 2**32))
    def test_look_ups_end_and_read_nothing_else_whatever_changes_in_the_file(
        self, rows: list[tuple[str, int]], seed: int
    ) -> None:
        chain, generator = Chain(rows), random.Random(seed)
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
                key = generator.choice(KEYS)
                answer = ask(KernelStore([(0, LOG)], [file]), key)
                assert answer.status == kernel.FOUND
                assert answer.walked <= count
                assert set(answer.physical_offsets) <= set(OFFSETS[key])


class TestWhatIsLeftOut:
    def test_a_long_row_of_another_hash_is_walked_once(self) -> None:
        store = Chain([("a", 1), ("b", 1), ("hot", 5000)]).store()
        assert ask(store, "a").walked == 5002
        short = BEFORE_SHORTCUTS + 2  # the row's part before it, where it leads from and to
        assert [ask(store, key).walked for key in ("a", "b", "Aa")] == [short + 2] * 3
        assert told(ask(store, "a"))[1] == (OFFSETS["a"][0],)

    def test_a_walk_that_stopped_at_a_cold_page_is_gone_on_with(self) -> None:
        chain = Chain([("a", 1), ("hot", 10_000)])
        with tempfile.TemporaryFile() as short:  # every probe comes back short, as over cold pages
            store = chain.store(descriptor=short.fileno())
            heat = store.index_files[0].heat
            heat[:] = TICK
            store.segments[0].heat[:] = TICK
            heat[1] = 0
            answer = ask(store, "a", tick=TICK)
            assert (answer.status, answer.cold_file) == (kernel.STOPPED_COLD, store.index_files[0])
            assert len(chain.shortcuts) == 1
            heat[1] = TICK
            assert ask(store, "a", tick=TICK).physical_offsets == (OFFSETS["a"][0],)
            heat[1] = 0  # nothing of what is left out is looked at
            assert ask(store, "a", tick=TICK).physical_offsets == (OFFSETS["a"][0],)

    def test_however_many_rows_there_are_a_bounded_number_is_remembered(self) -> None:
        chain = Chain([("a" if number % 2 else "b", LONG_ROW) for number in range(2 * ROOM)])
        store = chain.store()
        walked = [ask(store, "hot").walked for _ in range(3)]
        assert ROOM // 2 < len(chain.shortcuts) <= ROOM
        assert walked[0] == 2 * ROOM * LONG_ROW
        assert max(walked[1:]) < walked[0]
