"""Slot and entry counts found out from a file's bytes, by majority where some of them lie; header, slots, chains."""

import os
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from golden_store import GOLDEN, unpack
from oracles import IndexImage
from protocol.errors import StoreError
from storage.files.mapped_file import MappedFile
from storage.index import index_copy as module
from storage.index._index_shape import MAXIMUM_GAPS
from storage.index.index_copy import IndexCopy, IndexCounts, count_entries, count_slots, data_extents
from storage.index.index_file import HEADER, IndexFile, determine_shape, read_header
from storage.index.index_mark import IndexMark, write_mark
from storage.kernels.indexes import GAP_BYTES
from store_files import write_file, write_index_file
from strategies import KEYS

T0 = 1_700_000_000_000
G2_INDEX = {"g2-hosts": (50, 60), "g2-queues": (97, 150), "g2-queues-5.5.1": (97, 150), "g2-ext": (31, 400)}


def file_of(path, image, size=None, changes=None):
    path.unlink(missing_ok=True)  # of another example
    write_index_file(path, image)
    write_file(path, image.size if size is None else size, changes or {})
    return MappedFile.open(path)


@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    slots=st.integers(1, 200),
    keys=st.lists(st.sampled_from([*KEYS, *[f"k{number}" for number in range(40)]]), min_size=1, max_size=60),
    spare=st.integers(1, 30),
    hints=st.lists(st.integers(1, 200), max_size=3),
)
@example(slots=41, keys=["k36"], spare=1, hints=[1])
def test_counts_of_any_size_are_found_whatever_the_neighbours_have(tmp_path, slots, keys, spare, hints) -> None:
    image = oracles.index_image(keys, slots, len(keys) + spare)
    file = file_of(tmp_path / "file", image)
    shape = determine_shape(file, hints)
    assert (shape.slots, shape.entries) == (slots, len(keys))
    assert (shape.minimum, shape.maximum, shape.ascending) == (100, 100 * len(keys), True)
    assert shape.gaps == ()
    for hashed in (oracles.index_hash(f"T#{key}") for key in keys):
        chain = IndexFile(file, shape).chain(hashed)
        found = [entry.physical_offset for _, entry in chain if entry.key_hash == hashed]
        assert found == oracles.walk_chain(bytes(file.view), slots, hashed)


def test_more_gaps_than_are_kept_make_one_of_the_rest(tmp_path) -> None:
    image = IndexImage(7, 200)
    for number in range(100):
        image.put(f"T#{number}", 2 * GAP_BYTES * number, T0)
    shape = determine_shape(file_of(tmp_path / "file", image))
    assert len(shape.gaps) == MAXIMUM_GAPS + 1
    assert shape.gaps[-1] == (2 * GAP_BYTES * MAXIMUM_GAPS, 2 * GAP_BYTES * 99)


def test_a_sparse_file_that_would_have_more_slots_than_a_java_int_has_no_shape(tmp_path) -> None:
    path = tmp_path / "index"
    size = 40 + 4 * (2**31 + 8) + 20 * 3
    with path.open("wb") as file:
        file.write(HEADER.pack(1, 2, 3, 4, 1, 2))
        file.truncate(size)
        file.seek(size - 21)
        file.write(b"\1")
    assert determine_shape(MappedFile.open(path), [2**31 + 8]) is None


@pytest.mark.parametrize("name", ["store", *G2_INDEX])
def test_counts_of_the_recorded_files_are_found_without_a_hint(tmp_path, name) -> None:
    root = unpack(name, tmp_path) if name == "store" else unpack("store", tmp_path, archives=GOLDEN / "g2" / name)
    check(sorted((root / "index").iterdir()), *G2_INDEX.get(name, (97, 150)))


def check(paths, slots, entries) -> None:
    for number, path in enumerate(paths):
        file = MappedFile.open(path)
        shape = determine_shape(file)
        assert shape.slots == slots
        assert shape.entries == entries - 1 or number == len(paths) - 1
        assert shape.entries == read_header(file).index_count - 1
        assert file.size == 40 + 4 * slots + 20 * entries
        content = np.frombuffer(file.view, dtype=np.uint8).tobytes()
        assert oracles.first_bad_entry(content, slots, shape.entries) == 0


SLOTS, ENTRIES = 13, 40
T0 = 1_700_000_000_000


def image_of(count: int, slots: int = SLOTS, entries: int = ENTRIES) -> oracles.IndexImage:
    image = oracles.IndexImage(slots, entries)
    for number in range(count):
        image.put(f"T#k{number % 17}{number}", 100 * (number + 1), T0 + 1000 * number)
    return image


def copy_of(path, content):
    path.write_bytes(content)
    return IndexCopy(path)


def changed(content: bytes, *changes: tuple[int, bytes]) -> bytes:
    data = bytearray(content)
    for position, new in changes:
        data[position : position + len(new)] = new
    return bytes(data)


def entry_place(number: int, field: int = 0, slots: int = SLOTS) -> int:
    return 40 + 4 * slots + 20 * number + field


class TestBytes:
    def test_header_slots_and_entries_are_those_of_the_file(self, tmp_path) -> None:
        image = image_of(20)
        copy = copy_of(tmp_path / "file", image.to_bytes())
        assert (copy.size, copy.header.index_count, copy.header.end_physical_offset) == (image.size, 21, 2000)
        assert copy.slots(SLOTS).tolist() == [image.slots.get(slot, 0) for slot in range(SLOTS)]
        entries = copy.entries(SLOTS, 20)
        assert [tuple(entry) for entry in entries.tolist()] == [(0, 0, 0, 0), *image.entries]

    def test_the_first_and_the_last_byte_are_found_wherever_they_are(self, tmp_path) -> None:
        write_file(tmp_path / "file", 1 << 18, dict.fromkeys((5, 70_000, 200_001), b"x"))
        copy = IndexCopy(tmp_path / "file")
        starts = (0, 6, 4096, 70_001, 131_072, 200_002)
        assert copy.last_data == 200_001
        assert [copy.first_data(start, 1 << 18) for start in starts] == [5, 70_000, 70_000, 200_001, 200_001, -1]

    def test_a_file_longer_than_any_broker_maps_is_refused_unread(self, tmp_path) -> None:
        write_file(tmp_path / "file", 1 << 31, {})
        with pytest.raises(StoreError, match="at most 2147483647"):
            IndexCopy(tmp_path / "file")

    def test_a_file_that_is_cut_while_it_is_read_is_told(self, tmp_path, monkeypatch) -> None:
        path = tmp_path / "file"
        path.write_bytes(b"x" * 10_000)
        extents = module.data_extents

        def cut(descriptor, size):
            found = list(extents(descriptor, size))
            os.truncate(path, 5_000)
            return found

        monkeypatch.setattr(module, "data_extents", cut)
        with pytest.raises(StoreError, match=r"10000.*5000"):
            IndexCopy(path)

    def test_a_file_system_that_knows_no_holes_has_one_extent(self, tmp_path, monkeypatch) -> None:
        (tmp_path / "file").write_bytes(b"x" * 100)
        with (tmp_path / "file").open("rb") as file:
            monkeypatch.setattr(os, "lseek", Mock(side_effect=OSError(22, "not here")))
            assert list(data_extents(file.fileno(), 100)) == [(0, 100)]


class TestCountSlots:
    @settings(max_examples=examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=30), slots=st.integers(1, 40), told=st.booleans())
    def test_a_sound_file_has_the_count_that_is_told_or_one_that_explains_it(self, tmp_path, keys, slots, told) -> None:
        image = oracles.IndexImage(slots, len(keys) + 1)
        for number, key in enumerate(keys):
            image.put(f"T#{key}", 100 * number, T0)
        copy = copy_of(tmp_path / "file", image.to_bytes())
        found = count_slots(copy, [slots] if told else [])
        assert found == slots or not told
        assert oracles.first_bad_entry(image.to_bytes(), found, (copy.last_data - 40 - 4 * found) // 20) == 0

    def test_a_damaged_file_has_the_count_that_most_of_it_agrees_with(self, tmp_path) -> None:
        damages = {
            "a pointer": [(entry_place(9, 16), b"\x00\x00\x00\x26")],
            "a hash": [(entry_place(3), b"\x12\x34\x56\x78")],
            "slots": [(40 + 4 * n, bytes(4)) for n in range(6)],
            "count and pointer": [(36, b"\x7f\xff\xff\xff"), (entry_place(20, 16), bytes(4))],
            "five entries": [(entry_place(5), bytes(100))],
        }
        for kind, changes in damages.items():
            copy = copy_of(tmp_path / "file", changed(image_of(39).to_bytes(), *changes))
            assert [count_slots(copy, told) for told in ([], [97, SLOTS])] == [SLOTS, SLOTS], kind

    def test_bytes_that_no_count_explains_have_none(self, tmp_path) -> None:
        noise = np.random.default_rng(3).integers(1, 255, 900, dtype=np.uint8).tobytes()
        assert count_slots(copy_of(tmp_path / "file", noise), [SLOTS]) == 0


@pytest.mark.parametrize(("said", "grows", "entries"), [
    (0, False, 20), (25, False, 20), (-1, False, 20), (2**31 - 1, False, 20), (21, True, 20), (1, True, 0),
    (30, True, 20),
])  # fmt: skip
def test_a_header_that_lies_is_outvoted_and_one_of_a_file_that_grows_is_not(tmp_path, said, grows, entries) -> None:
    """One that grows has the entries that its header counted first, unless there are fewer bytes."""
    content = changed(image_of(20).to_bytes(), (36, oracles.packed(said, 4)))
    counts = count_entries(copy_of(tmp_path / "file", content), SLOTS, grows=grows)
    assert counts == IndexCounts(SLOTS, ENTRIES, entries)


def test_the_mark_of_a_compacted_file_is_read_with_it(tmp_path) -> None:
    content = bytearray(image_of(20).to_bytes())
    assert copy_of(tmp_path / "file", bytes(content)).mark(SLOTS) is None
    write_mark(content, SLOTS, 15, complete=True, tags=False)
    copy = copy_of(tmp_path / "file", bytes(content))
    assert copy.mark(SLOTS) == IndexMark(15, True, False)
    assert copy.is_marked_truly(SLOTS)
    content[entry_place(15, 11)] ^= 1
    copy = copy_of(tmp_path / "file", bytes(content))
    assert copy.mark(SLOTS) is not None
    assert not copy.is_marked_truly(SLOTS)
