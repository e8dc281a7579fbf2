"""Index files read into memory, and their counts by majority: one that lies is outvoted by those that do not."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from protocol.errors import StoreError
from storage.index import index_copy as module
from storage.index.index_copy import IndexCopy, IndexCounts, count_entries, count_slots, data_extents
from storage.index.index_mark import IndexMark, write_mark
from store_files import write_file
from strategies import KEYS

SLOTS, ENTRIES = 13, 40
T0 = 1_700_000_000_000


def image_of(count: int, slots: int = SLOTS, entries: int = ENTRIES) -> oracles.IndexImage:
    image = oracles.IndexImage(slots, entries)
    for number in range(count):
        image.put(f"T#k{number % 17}{number}", 100 * (number + 1), T0 + 1000 * number)
    return image


def copy_of(path: Path, content: bytes) -> IndexCopy:
    path.write_bytes(content)
    return IndexCopy(path)


def changed(content: bytes, *changes: tuple[int, bytes]) -> bytes:
    data = bytearray(content)
    for position, new in changes:
        data[position : position + len(new)] = new
    return bytes(data)


def entry_place(number: int, field: int = 0, slots: int = SLOTS) -> int:
    return 40 + 4 * slots + 20 * number + field


# --- bytes ----------------------------------------------------------------------------------------------------------


class TestBytes:
    def test_header_slots_and_entries_are_those_of_the_file(self, tmp_path: Path) -> None:
        image = image_of(20)
        copy = copy_of(tmp_path / "file", image.to_bytes())
        assert copy.size == image.size
        assert copy.header.index_count == 21
        assert copy.header.end_physical_offset == 2000
        assert copy.slots(SLOTS).tolist() == [image.slots.get(slot, 0) for slot in range(SLOTS)]
        entries = copy.entries(SLOTS, 20)
        assert [tuple(entry) for entry in entries.tolist()] == [(0, 0, 0, 0), *image.entries]

    @pytest.mark.parametrize("size", [0, 39, 8192 + 1])
    def test_files_of_any_size_are_read(self, tmp_path: Path, size: int) -> None:
        content = bytes(range(1, 256)) * (size // 255 + 1)
        copy = copy_of(tmp_path / "file", content[:size])
        assert (copy.size, copy.last_data) == (size, size - 1)
        assert copy.first_data(0, size) == (0 if size else -1)

    @settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(places=st.sets(st.integers(0, (1 << 18) - 1), max_size=6), start=st.integers(0, 1 << 18))
    def test_the_first_and_the_last_byte_are_found_wherever_they_are(
        self, tmp_path: Path, places: set[int], start: int
    ) -> None:
        path = tmp_path / "file"
        path.unlink(missing_ok=True)
        write_file(path, 1 << 18, dict.fromkeys(places, b"x"))
        copy = IndexCopy(path)
        assert copy.last_data == max(places, default=-1)
        assert copy.first_data(start, 1 << 18) == min((place for place in places if place >= start), default=-1)

    def test_a_file_longer_than_any_broker_maps_is_refused_unread(self, tmp_path: Path) -> None:
        write_file(tmp_path / "file", 1 << 31, {})
        with pytest.raises(StoreError, match="at most 2147483647"):
            IndexCopy(tmp_path / "file")

    def test_a_file_that_is_cut_while_it_is_read_is_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "file"
        path.write_bytes(b"x" * 10_000)
        extents = module.data_extents

        def cut(descriptor: int, size: int) -> Sequence[tuple[int, int]]:
            found = list(extents(descriptor, size))
            os.truncate(path, 5_000)
            return found

        monkeypatch.setattr(module, "data_extents", cut)
        with pytest.raises(StoreError, match=r"10000.*5000"):
            IndexCopy(path)

    def test_a_file_system_that_knows_no_holes_has_one_extent(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_bytes(b"x" * 100)

        def refuse(*_: object) -> int:
            raise OSError(22, "not here")

        with (tmp_path / "file").open("rb") as file:
            monkeypatch.setattr(os, "lseek", refuse)
            assert list(data_extents(file.fileno(), 100)) == [(0, 100)]


# --- the slot count -------------------------------------------------------------------------------------------------


class TestCountSlots:
    @settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=30), slots=st.integers(1, 40), told=st.booleans())
    def test_a_sound_file_has_the_count_it_was_made_with_if_that_is_told_and_one_that_explains_it_else(
        self, tmp_path: Path, keys: list[str], slots: int, told: bool
    ) -> None:
        image = oracles.IndexImage(slots, len(keys) + 1)
        for number, key in enumerate(keys):
            image.put(f"T#{key}", 100 * number, T0)
        copy = copy_of(tmp_path / "file", image.to_bytes())
        found = count_slots(copy, [slots] if told else [])
        assert found == slots or not told
        assert oracles.first_bad_entry(image.to_bytes(), found, (copy.last_data - 40 - 4 * found) // 20) == 0

    @pytest.mark.parametrize(
        "changes",
        [
            [(entry_place(9, 16), b"\x00\x00\x00\x26")],
            [(entry_place(3), b"\x12\x34\x56\x78")],
            [(40 + 4 * n, bytes(4)) for n in range(6)],
            [(36, b"\x00\x00\x00\x05")],
            [(36, b"\x7f\xff\xff\xff"), (entry_place(20, 16), bytes(4))],
            [(entry_place(5), bytes(100))],
        ],
        ids=["a pointer", "a hash", "slots", "the header's count", "count and pointer", "five entries"],
    )
    @pytest.mark.parametrize("told", [[], [97, SLOTS]])
    def test_a_damaged_file_has_the_count_that_most_of_it_agrees_with(
        self, tmp_path: Path, changes: list[tuple[int, bytes]], told: list[int]
    ) -> None:
        copy = copy_of(tmp_path / "file", changed(image_of(39).to_bytes(), *changes))
        assert count_slots(copy, told) == SLOTS

    def test_bytes_that_no_count_explains_have_none(self, tmp_path: Path) -> None:
        noise = np.random.default_rng(3).integers(1, 255, 900, dtype=np.uint8).tobytes()
        assert count_slots(copy_of(tmp_path / "file", noise), [SLOTS]) == 0

    @pytest.mark.parametrize("size", [0, 59])
    def test_a_file_without_room_for_an_entry_has_none(self, tmp_path: Path, size: int) -> None:
        assert count_slots(copy_of(tmp_path / "file", bytes(size)), [SLOTS]) == 0

    def test_a_file_without_entries_has_the_count_that_is_told_if_its_length_allows_that(self, tmp_path: Path) -> None:
        copy = copy_of(tmp_path / "file", image_of(0).to_bytes())
        assert count_slots(copy, [SLOTS]) == SLOTS
        other = count_slots(copy, [SLOTS + 1])
        assert (copy.size - 40 - 4 * other) % 20 == 0


# --- the number of entries ------------------------------------------------------------------------------------------


class TestCountEntries:
    @pytest.mark.parametrize("count", [0, 39])
    def test_a_sound_file_has_as_many_as_it_says(self, tmp_path: Path, count: int) -> None:
        copy = copy_of(tmp_path / "file", image_of(count).to_bytes())
        assert count_entries(copy, SLOTS) == IndexCounts(SLOTS, ENTRIES, count)

    @pytest.mark.parametrize("said", [0, 19, 25, -1, 2**31 - 1])
    def test_a_header_that_lies_is_outvoted(self, tmp_path: Path, said: int) -> None:
        content = changed(image_of(20).to_bytes(), (36, oracles.packed(said, 4)))
        assert count_entries(copy_of(tmp_path / "file", content), SLOTS).entries == 20

    def test_a_last_entry_that_was_lost_is_still_counted_where_header_and_slots_say_so(self, tmp_path: Path) -> None:
        content = changed(image_of(20).to_bytes(), (entry_place(20), bytes(20)))
        assert count_entries(copy_of(tmp_path / "file", content), SLOTS).entries == 20

    @pytest.mark.parametrize("said", [1, 21])
    def test_of_a_file_that_grows_those_count_that_its_header_counted_first(self, tmp_path: Path, said: int) -> None:
        content = changed(image_of(20).to_bytes(), (36, oracles.packed(said, 4)))
        copy = copy_of(tmp_path / "file", content)
        assert count_entries(copy, SLOTS, grows=True).entries == said - 1

    def test_a_header_that_counts_more_than_there_are_bytes_is_not_believed_even_then(self, tmp_path: Path) -> None:
        content = changed(image_of(20).to_bytes(), (36, oracles.packed(30, 4)))
        assert count_entries(copy_of(tmp_path / "file", content), SLOTS, grows=True).entries == 20


# --- the mark -------------------------------------------------------------------------------------------------------


def test_the_mark_of_a_compacted_file_is_read_with_it(tmp_path: Path) -> None:
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
