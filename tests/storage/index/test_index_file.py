"""Slot and entry counts, which stand nowhere in the file, found out from its bytes; header, slots, chains."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from golden_store import GOLDEN, unpack
from oracles import IndexImage
from storage.files.mapped_file import MappedFile
from storage.index._index_shape import MAXIMUM_GAPS, IndexShape
from storage.index.index_file import (
    DEFAULT_ENTRIES,
    DEFAULT_SLOTS,
    HEADER,
    IndexEntry,
    IndexFile,
    IndexHeader,
    determine_shape,
    last_data_position,
    read_header,
)
from storage.kernels.indexes import GAP_BYTES
from store_files import write_file, write_index_file
from strategies import KEYS

T0 = 1_700_000_000_000
G2_INDEX = {"g2-hosts": (50, 60), "g2-queues": (97, 150), "g2-queues-5.5.1": (97, 150), "g2-ext": (31, 400)}


def file_of(
    path: Path, image: IndexImage, size: int | None = None, changes: dict[int, bytes] | None = None
) -> MappedFile:
    path.unlink(missing_ok=True)  # of another example
    write_index_file(path, image)
    write_file(path, image.size if size is None else size, changes or {})
    return MappedFile.open(path)


def numbered(count: int) -> list[str]:
    return [f"k{number}" for number in range(count)]


class TestLastData:
    @pytest.mark.parametrize("place", [0, 4096, (8 << 20) - 1])
    def test_the_last_byte_that_is_not_zero_is_found_among_holes(self, tmp_path: Path, place: int) -> None:
        write_file(tmp_path / "file", 8 << 20, {0: b"\1", place: b"\7"})
        assert last_data_position(MappedFile.open(tmp_path / "file")) == place


class TestCounts:
    @settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        slots=st.integers(1, 200),
        keys=st.lists(st.sampled_from([*KEYS, *numbered(40)]), min_size=1, max_size=60),
        spare=st.integers(1, 30),
        hints=st.lists(st.integers(1, 200), max_size=3),
    )
    @example(slots=41, keys=["k36"], spare=1, hints=[1])
    def test_counts_of_any_size_are_found_whatever_the_neighbours_have(
        self, tmp_path: Path, slots: int, keys: list[str], spare: int, hints: list[int]
    ) -> None:
        image = oracles.index_image(keys, slots, len(keys) + spare)
        shape = determine_shape(file_of(tmp_path / "file", image), hints)
        assert shape is not None
        assert (shape.slots, shape.entries) == (slots, len(keys))
        assert (shape.minimum, shape.maximum, shape.ascending) == (100, 100 * len(keys), True)
        assert shape.gaps == ()

    def test_a_file_of_default_size_is_read_without_reading_its_holes(self, tmp_path: Path) -> None:
        image = oracles.index_image(numbered(1000), DEFAULT_SLOTS, DEFAULT_ENTRIES)
        path = tmp_path / "file"
        pieces = {40 + 4 * slot: oracles.packed(number, 4) for slot, number in image.slots.items()}
        first = 40 + 4 * DEFAULT_SLOTS + 20
        write_file(path, image.size, {0: image.header(), **pieces, first: image.entry_bytes()})
        assert path.stat().st_size == 420_000_040
        shape = determine_shape(MappedFile.open(path), [DEFAULT_SLOTS])
        assert shape is not None
        assert (shape.slots, shape.entries) == (DEFAULT_SLOTS, 1000)

    @pytest.mark.parametrize("index_count", [0, 41, 2**31 - 1, -1])
    def test_a_header_count_that_lies_is_no_match_for_a_neighbours_slots(
        self, tmp_path: Path, index_count: int
    ) -> None:
        image = oracles.index_image(numbered(40), 97, 150)
        file = file_of(tmp_path / "file", image, changes={36: oracles.packed(index_count, 4)})
        shape = determine_shape(file, [13, 97])
        assert shape is not None
        assert (shape.slots, shape.entries) == (97, 40)


class TestAmbiguity:
    """One entry of hash 0 looks alike under several slot counts: its file is all zeros but for a few bytes."""

    def image(self, slots: int, entries: int) -> IndexImage:
        image = IndexImage(slots, entries)
        image.entries.append((0, 1 << 40, 0, 0))
        image.slots[0] = 1
        image.begin_physical_offset = image.end_physical_offset = 1 << 40
        image.begin_timestamp = image.end_timestamp = T0
        return image

    def test_the_length_breaks_the_tie(self, tmp_path: Path) -> None:
        shape = determine_shape(file_of(tmp_path / "file", self.image(97, 150)))
        assert shape is not None
        assert (shape.slots, shape.entries, shape.minimum) == (97, 1, 1 << 40)

    def test_counts_that_somebody_knows_decide(self, tmp_path: Path) -> None:
        file = file_of(tmp_path / "file", self.image(97, 150), size=3500 + 3)
        shape = determine_shape(file, [], (97, 150))
        assert shape is not None
        assert (shape.slots, shape.entries) == (97, 1)


class TestEmpty:
    def test_a_file_of_zeros_takes_its_neighbours_slots(self, tmp_path: Path) -> None:
        write_file(tmp_path / "file", 5000, {})
        file = MappedFile.open(tmp_path / "file")
        assert determine_shape(file, [97, 5]) == IndexShape(97, 0, 0, 0, True, ())
        assert determine_shape(file) == IndexShape(DEFAULT_SLOTS, 0, 0, 0, True, ())
        assert determine_shape(file, [97], (7, 9)) == IndexShape(7, 0, 0, 0, True, ())

    @pytest.mark.parametrize("index_count", [0, 1])
    def test_a_seeded_file_without_entries_is_empty(self, tmp_path: Path, index_count: int) -> None:
        """Made by the first message behind a full file, which had no keys."""
        full = oracles.index_image(numbered(4), 7, 5)
        image = full.successor()
        file = file_of(tmp_path / "file", image, changes={36: oracles.packed(index_count, 4)})
        assert determine_shape(file, [7]) == IndexShape(7, 0, 0, 0, True, ())
        assert read_header(file).begin_physical_offset == full.end_physical_offset

    def test_a_header_that_counts_entries_where_there_are_none_is_undecided(self, tmp_path: Path) -> None:
        write_file(tmp_path / "file", 5000, {36: oracles.packed(5, 4)})
        assert determine_shape(MappedFile.open(tmp_path / "file"), [97]) is None

    def test_more_gaps_than_are_kept_make_one_of_the_rest(self, tmp_path: Path) -> None:
        image = IndexImage(7, 200)
        for number in range(100):
            image.put(f"T#{number}", 2 * GAP_BYTES * number, T0)
        shape = determine_shape(file_of(tmp_path / "file", image))
        assert shape is not None
        assert len(shape.gaps) == MAXIMUM_GAPS + 1
        assert shape.gaps[-1] == (2 * GAP_BYTES * MAXIMUM_GAPS, 2 * GAP_BYTES * 99)


class TestReading:
    @given(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=25), slots=st.integers(1, 9))
    @settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_header_entries_and_chains_are_those_that_were_put(
        self, tmp_path: Path, keys: list[str], slots: int
    ) -> None:
        image = oracles.index_image(keys, slots, 40)
        file = file_of(tmp_path / "file", image)
        shape = determine_shape(file, [slots])
        assert shape is not None
        index = IndexFile(file, shape)
        assert index.name == "file"
        assert index.header == IndexHeader(
            T0, T0 + 1000 * (len(keys) - 1), 100, 100 * len(keys), image.hash_slot_count, len(keys) + 1
        )
        for number, entry in enumerate(image.entries, start=1):
            assert index.entry(number) == IndexEntry(*entry)
        for key in keys:
            hashed = oracles.index_hash(f"T#{key}")
            chain = [entry.physical_offset for _, entry in index.chain(hashed) if entry.key_hash == hashed]
            assert chain == oracles.walk_chain(bytes(file.view), slots, hashed)
            assert index.slot(hashed) == image.slots[hashed % slots]


def test_a_sparse_file_that_would_have_more_slots_than_a_java_int_has_no_shape(tmp_path: Path) -> None:
    path = tmp_path / "index"
    size = 40 + 4 * (2**31 + 8) + 20 * 3
    with path.open("wb") as file:
        file.write(HEADER.pack(1, 2, 3, 4, 1, 2))
        file.truncate(size)
        file.seek(size - 21)
        file.write(b"\1")
    assert determine_shape(MappedFile.open(path), [2**31 + 8]) is None


class TestGolden:
    """Index files that real brokers wrote."""

    @pytest.mark.parametrize("name", ["store", *G2_INDEX])
    def test_counts_of_the_recorded_files_are_found_without_a_hint(self, tmp_path: Path, name: str) -> None:
        root = unpack(name, tmp_path) if name == "store" else unpack("store", tmp_path, archives=GOLDEN / "g2" / name)
        self.check(sorted((root / "index").iterdir()), *G2_INDEX.get(name, (97, 150)))

    def check(self, paths: list[Path], slots: int, entries: int) -> None:
        for number, path in enumerate(paths):
            file = MappedFile.open(path)
            shape = determine_shape(file)
            assert shape is not None
            assert shape.slots == slots
            assert shape.entries == entries - 1 or number == len(paths) - 1
            assert shape.entries == read_header(file).index_count - 1
            assert file.size == 40 + 4 * slots + 20 * entries
            content = np.frombuffer(file.view, dtype=np.uint8).tobytes()
            assert oracles.first_bad_entry(content, slots, shape.entries) == 0
