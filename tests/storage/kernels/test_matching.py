"""An index file held against its log, against loops: counts by majority, matches, times, slots and pointers."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from kernel_memory import Bytes
from storage.kernels import indexes, matching
from storage.kernels.region import Region
from strategies import KEYS

SLOTS = 7
T0 = 1_700_000_000_000
Entry = tuple[int, int, int, int]


def image_of(keys: Sequence[str], slots: int = SLOTS) -> oracles.IndexImage:
    image = oracles.IndexImage(slots, len(keys) + 4)
    for number, key in enumerate(keys):
        image.put(f"T#{key}", 100 * number, T0 + 1000 * number)
    return image


def entry_bytes(entries: Sequence[Entry]) -> bytes:
    """Entry 0 and those given."""
    fields = [(0, 0, 0, 0), *entries]
    return b"".join(
        oracles.packed(value, size) for entry in fields for value, size in zip(entry, (4, 8, 4, 4), strict=True)
    )


key_lists = st.lists(st.sampled_from(KEYS), min_size=1, max_size=25)


# --- counts ---------------------------------------------------------------------------------------------------------


class TestShareExplained:
    @given(key_lists, st.sampled_from([1, 2, 7, 13]), st.sampled_from([1, 2, 7, 13]), st.data())
    def test_it_is_what_a_loop_counts(self, keys: list[str], slots: int, tried: int, data: st.DataObject) -> None:
        content = bytearray(image_of(keys, slots).to_bytes())
        for _ in range(data.draw(st.integers(0, 3))):
            content[data.draw(st.integers(40, len(content) - 1))] = data.draw(st.integers(0, 255))
        entries = min((len(content) - 40 - 4 * tried) // 20 - 1, len(keys))
        held = Bytes(bytes(content))
        share = indexes.share_explained(held.region, tried, entries)
        assert share == share_by_loop(bytes(content), tried, entries)

    @given(key_lists)
    def test_the_right_count_explains_all(self, keys: list[str]) -> None:
        held = Bytes(image_of(keys).to_bytes())
        assert indexes.share_explained(held.region, SLOTS, len(keys)) == 1.0


def share_by_loop(data: bytes, slots: int, entries: int) -> float:
    heads: dict[int, int] = {}
    good = 0
    for number in range(1, entries + 1):
        at = 40 + 4 * slots + 20 * number
        key_hash = oracles.signed(data, at, 4)
        if key_hash >= 0:
            good += oracles.signed(data, at + 16, 4) == heads.get(key_hash % slots, 0)
            heads[key_hash % slots] = number
    total = entries
    for slot in range(slots):
        held = oracles.signed(data, 40 + 4 * slot, 4)
        if held or heads.get(slot, 0):
            total += 1
            good += held == heads.get(slot, 0)
    return good / total


class TestNextSlotCount:
    @settings(max_examples=60)
    @given(st.lists(st.sampled_from(KEYS), min_size=3, max_size=60), st.integers(1, 20), st.integers(1, 20), st.data())
    def test_it_is_the_first_that_explains_most_of_the_first_entries(
        self, keys: list[str], slots: int, start: int, data: st.DataObject
    ) -> None:
        content = bytearray(image_of(keys, slots).to_bytes())
        entry = 40 + 4 * slots + 20
        for _ in range(data.draw(st.integers(0, 15), "wrong pointers")):
            content[entry + 20 * data.draw(st.integers(0, len(keys) - 1)) + 19] ^= 1
        last = max(place for place, byte in enumerate(content) if byte)
        right = [tried for tried in range(start, len(content)) if may_have_slots(bytes(content), tried, last)]
        held = Bytes(bytes(content))
        assert indexes.next_slot_count(held.region, start, last) == (right[0] if right else 0)


def may_have_slots(data: bytes, slots: int, last: int) -> bool:
    entries = (last - 40 - 4 * slots) // 20
    if entries < 1:
        return False
    looked_at = min(entries, indexes.QUICK_ENTRIES)
    heads: dict[int, int] = {}
    failures = 0
    for number in range(1, looked_at + 1):
        at = 40 + 4 * slots + 20 * number
        key_hash, previous = oracles.signed(data, at, 4), oracles.signed(data, at + 16, 4)
        failures += key_hash < 0 or previous != heads.get(key_hash % slots, 0)
        if key_hash >= 0:
            heads[key_hash % slots] = number
    return failures <= indexes.QUICK_FAILURES and 2 * failures <= looked_at


# --- entries beside the log -----------------------------------------------------------------------------------------


class Keyed(NamedTuple):
    """A record of the log and the hashes that it leads to."""

    offset: int
    timestamp: int
    hashes: tuple[int, ...]


class Matched:
    """A file held against the blocks of a log, from the first to the last."""

    def __init__(self, entries: Sequence[Entry], blocks: Sequence[Sequence[Keyed]], begin: int, room: int = 50) -> None:
        offsets = [entry[1] for entry in entries]
        order = np.zeros(0, np.int32)
        if offsets != sorted(offsets):
            order = np.array(sorted(range(1, len(entries) + 1), key=lambda number: offsets[number - 1]), np.int32)
        self.ranks = np.full(len(entries) + 1, -1, np.int64)
        region = Region(bytes(44) + entry_bytes(entries))
        self.matching = matching.Matching(region, 1, len(entries), order, begin, self.ranks, room)
        self.seen: list[int] = []
        rank = 0
        for block in blocks:
            first = block[0].offset
            self.matching.next_offset(first)
            hashes = [key_hash for record in block for key_hash in record.hashes]
            seen = np.zeros(len(hashes), np.uint8)
            self.matching.match(
                first,
                np.array([record.offset - first for record in block], np.uint32),
                np.array([record.timestamp for record in block], np.int64),
                np.array([len(record.hashes) for record in block], np.uint16),
                np.array(hashes, np.int32), rank, seen,
            )  # fmt: skip
            self.seen += seen.tolist()
            rank += len(hashes)


def seconds(timestamp: int, begin: int) -> int:
    return min(max((timestamp - begin) // 1000, 0), 2**31 - 1) if begin > 0 else 0


def flat(blocks: Sequence[Sequence[Keyed]]) -> list[tuple[Keyed, int, int]]:
    """Each entry that the log leads to: its record, its hash, and the rank of the record's first one."""
    found: list[tuple[Keyed, int, int]] = []
    for record in (record for block in blocks for record in block):
        rank = len(found)
        found += [(record, key_hash, rank) for key_hash in record.hashes]
    return found


@st.composite
def logs(draw: st.DrawFn, *, repeated: bool = False) -> list[list[Keyed]]:
    """Blocks of records in the order of the log; without `repeated` a record leads to each hash once."""
    offset, blocks = draw(st.integers(0, 2**40)), []
    for _ in range(draw(st.integers(1, 3))):
        block = []
        for _ in range(draw(st.integers(1, 4))):
            hashes = draw(
                st.lists(st.integers(0, 9), min_size=1, max_size=draw(st.sampled_from([4, 10])), unique=not repeated)
            )
            block.append(Keyed(offset, draw(st.integers(-3, 5) | st.integers(T0, T0 + 10**7)), tuple(hashes)))
            offset += draw(st.integers(1, 5))
        blocks.append(block)
        offset += draw(st.integers(0, 20))
    return blocks


class TestMatchEntries:
    @settings(max_examples=150)
    @given(logs(repeated=True), st.data())
    def test_the_entries_that_a_broker_puts_have_their_ranks(
        self, blocks: list[list[Keyed]], data: st.DataObject
    ) -> None:
        """Wherever a file begins and ends, be it among the keys of a record, and whatever keys that names twice."""
        everything = flat(blocks)
        start = data.draw(st.integers(0, len(everything) - 1))
        stop = data.draw(st.integers(start + 1, len(everything)))
        begin = everything[start][0].timestamp
        entries = [
            (key_hash, record.offset, seconds(record.timestamp, begin), 0)
            for record, key_hash, _ in everything[start:stop]
        ]
        matched = Matched(entries, blocks, begin)
        found, ranks = matched.matching, matched.ranks[1:].tolist()
        whole = [key_hash for record, key_hash, rank in everything if record is everything[start][0]]
        is_told = start + stop - start >= everything[start][2] + len(whole)  # the record's last key is in the file
        if is_told:
            assert ranks == list(range(start, stop))
        assert [everything[rank][:2] for rank in ranks] == [entry[:2] for entry in everything[start:stop]]
        assert len(set(ranks)) == len(ranks)
        assert sum(matched.seen) == len(entries) == found.matches == found.timed
        assert found.lates == 0
        times = [record.timestamp for record, _, _ in everything[start:stop]]
        assert found.first_time == times[0]
        assert found.last_time == times[-1]
        assert found.largest_time == max(times)
        assert found.smallest_time == min((time for time in times if time > 0), default=max(times))

    @settings(max_examples=200)
    @given(logs(), st.integers(0, 60), st.data())
    def test_any_entries_are_matched_as_a_loop_does(
        self, blocks: list[list[Keyed]], room: int, data: st.DataObject
    ) -> None:
        everything = flat(blocks)
        begin = data.draw(st.sampled_from([0, T0, T0 + 5000]))
        near = st.integers(everything[0][0].offset - 2, everything[-1][0].offset + 3)
        near |= st.sampled_from([-(2**63), -1, 2**63 - 1])
        right = st.sampled_from(everything).map(lambda entry: (entry[1], entry[0].offset))
        drawn = data.draw(st.lists(right | st.tuples(st.integers(0, 9), near), min_size=1, max_size=15))
        times = {record.offset: record.timestamp for record, _, _ in everything}
        entries = [
            (key_hash, offset, seconds(times.get(offset, T0), begin) + data.draw(st.sampled_from([0, 0, 0, 1])), 0)
            for key_hash, offset in drawn
        ]
        matched = Matched(entries, blocks, begin, room)
        found, expected = matched.matching, match_by_loop(entries, blocks, begin)
        assert matched.ranks[1:].tolist() == expected["ranks"]
        assert found.lates == len(expected["late"])
        assert [(each.number, each.expected) for each in found.late] == expected["late"][:room]
        for name in ("matches", "timed", "first_time", "last_time", "lowest", "highest"):
            assert getattr(found, name) == expected[name], name
        assert [rank for rank, seen in enumerate(matched.seen) if seen] == sorted(
            rank for rank in expected["ranks"] if rank >= 0
        )

    def test_ranks_that_fall_are_counted(self) -> None:
        block = [Keyed(100 * n, T0, (n, n + 50)) for n in range(4)]
        entries = [(1, 100, 0, 0), (51, 100, 0, 0), (52, 200, 0, 0), (2, 200, 0, 0), (3, 300, 0, 0)]
        assert Matched(entries, [block], T0).matching.descents == 1

    @pytest.mark.parametrize(
        ("keys", "entries", "ranks"),
        [
            ("aab", "ab", [1, 2]),
            ("aab", "b", [2]),
            ("aba", "a", [2]),
            ("aba", "ba", [1, 2]),
            ("abt", "ab", [0, 1]),  # an older broker's, without the tag's
            ("abt", "bt", [1, 2]),
        ],
    )
    def test_a_file_that_begins_among_the_keys_of_a_record_has_the_last_of_them(
        self, keys: str, entries: str, ranks: list[int]
    ) -> None:
        block = [Keyed(0, T0, tuple(map(ord, keys))), Keyed(50, T0, (1,))]
        file = [(ord(key), 0, 0, 0) for key in entries] + [(1, 50, 0, 0)]
        assert Matched(file, [block], T0).ranks[1:].tolist() == [*ranks, 3]


def test_entries_of_a_record_with_many_keys_are_not_compared_with_all_of_them() -> None:
    count = 20_000
    record = Keyed(0, T0, tuple(range(count)))
    backwards = [(count - 1 - number, 0, 0, 0) for number in range(count)]
    for others in ([(-5, 0, 0, 0)] * count, [(7, 0, 0, 0)] * count):
        matched = Matched(backwards + others, [[record]], T0)
        assert matched.matching.matches == count
        assert matched.matching.compared < 2 * count * 40, "logarithms, not 400 million"


def test_columns_that_do_not_fit_are_refused() -> None:
    region, none, ranks = Region(bytes(44 + 60)), np.zeros(0, np.int32), np.zeros(3, np.int64)
    with pytest.raises(ValueError, match="do not lie in a region"):
        matching.Matching(region, 1, 3, none, 0, np.zeros(4, np.int64), 1)
    with pytest.raises(ValueError, match="2 ranks"):
        matching.Matching(region, 1, 2, none, 0, ranks[:2], 1)
    for numbers in ([0, 1], [1, 3]):
        with pytest.raises(ValueError, match="there is no entry"):
            matching.Matching(region, 1, 2, np.array(numbers, np.int32), 0, ranks, 1)
    one = matching.Matching(region, 1, 2, none, 0, ranks, 1)
    offsets, times, counts = np.zeros(1, np.uint32), np.zeros(1, np.int64), np.full(1, 2, np.uint16)
    two, seen = np.zeros(2, np.int32), np.zeros(2, np.uint8)
    for columns in (
        (offsets, times[:0], counts, two, 0, seen),
        (offsets, times, counts[:0], two, 0, seen),
        (offsets, times, counts, two[:1], 0, seen),
        (offsets, times, counts, two, 0, seen[:1]),
    ):
        with pytest.raises(ValueError, match="of"):
            one.match(0, *columns)
    one.match(0, offsets, times, counts, two, 0, seen)
    assert (one.matches, one.next_offset(0)) == (2, None)


def match_by_loop(entries: Sequence[Entry], blocks: Sequence[Sequence[Keyed]], begin: int) -> dict[str, Any]:
    """Match, by physical offset and then in order, each entry with the first free one that it can be."""
    records = {record.offset: (record, rank) for record, _, rank in flat(blocks)}
    taken: set[int] = set()
    ranks: list[int] = [-1] * len(entries)
    late, times = [], []
    first = last = matching.NO_TIME
    for number, (key_hash, offset, difference, _) in sorted(enumerate(entries, 1), key=lambda item: item[1][1]):
        if offset not in records:
            continue
        record, rank = records[offset]
        if key_hash not in record.hashes:
            ranks[number - 1] = matching.NO_KEY
            continue
        place = rank + record.hashes.index(key_hash)
        ranks[number - 1] = matching.REPEATED - rank if place in taken else place
        taken.add(place)
        times.append(record.timestamp)
        first = record.timestamp if number == 1 else first
        last = record.timestamp if number == len(entries) else last
        if number > 1 and difference != seconds(record.timestamp, begin):
            late.append((number, seconds(record.timestamp, begin)))
    return {
        "ranks": ranks, "late": late, "matches": len(taken), "timed": len(times), "first_time": first,
        "last_time": last, "lowest": min(taken, default=-1), "highest": max(taken, default=-1),
    }  # fmt: skip


@given(st.lists(st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=6))
def test_a_compacted_file_begins_with_the_first_true_time(times: list[int]) -> None:
    begin = times[0]
    for time in times[1:]:
        begin = matching.earlier_begin(begin, time)
    assert begin == min((time for time in times if time > 0), default=max(times))


# --- slots and pointers ---------------------------------------------------------------------------------------------


def check_pointers(data: bytes, slots: int, entries: int, **options: Any) -> tuple[int, list[list[int]], int]:
    """How many are wrong, the rows, slots in use."""
    fixed: dict[int, int] = options.get("fixed", {})
    check = indexes.check_pointers(
        Bytes(data).region, slots, entries, options.get("written", entries), np.array(sorted(fixed), np.int64),
        np.array([fixed[number] for number in sorted(fixed)], np.int32), options.get("room", 100),
    )  # fmt: skip
    return check.wrong, [[each.kind, each.number, each.expected, each.found] for each in check.noted], check.used


def wrong_by_loop(data: bytes, slots: int, entries: int, fixed: dict[int, int]) -> list[list[int]]:
    heads = dict.fromkeys(range(slots), 0)
    wrong = []
    for number in range(1, entries + 1):
        at = 40 + 4 * slots + 20 * number
        key_hash = fixed.get(number, oracles.signed(data, at, 4))
        if key_hash < 0:
            continue
        found = oracles.signed(data, at + 16, 4)
        if found != heads[key_hash % slots]:
            wrong.append([indexes.BAD_POINTER, number, heads[key_hash % slots], found])
        heads[key_hash % slots] = number
    for slot, head in heads.items():
        found = oracles.signed(data, 40 + 4 * slot, 4)
        if found != head:
            wrong.append([indexes.BAD_SLOT, slot, head, found])
    return wrong


class TestCheckPointers:
    @settings(max_examples=150)
    @given(key_lists, st.sampled_from([1, 2, 7]), st.integers(0, 5), st.data())
    def test_what_is_wrong_is_what_a_loop_finds(
        self, keys: list[str], slots: int, room: int, data: st.DataObject
    ) -> None:
        content = bytearray(image_of(keys, slots).to_bytes())
        for _ in range(data.draw(st.integers(0, 4))):
            content[data.draw(st.integers(40, 40 + 4 * slots + 20 * len(keys) + 19))] = data.draw(st.integers(0, 255))
        fixed = data.draw(st.dictionaries(st.integers(1, len(keys)), st.integers(0, 2**31 - 1), max_size=3))
        expected = wrong_by_loop(bytes(content), slots, len(keys), fixed)
        wrong, rows, used = check_pointers(bytes(content), slots, len(keys), fixed=fixed, room=room)
        assert wrong == len(expected)
        assert rows[:room] == expected[:room]
        hashes = [
            fixed.get(number, oracles.signed(bytes(content), 40 + 4 * slots + 20 * number, 4))
            for number in range(1, len(keys) + 1)
        ]
        assert used == len({key_hash % slots for key_hash in hashes if key_hash >= 0})

    @given(key_lists, st.integers(1, 24))
    def test_slots_of_a_file_that_grows_may_be_ahead(self, keys: list[str], known: int) -> None:
        known = min(known, len(keys))
        data = image_of(keys).to_bytes()
        assert check_pointers(data, SLOTS, known, written=len(keys))[0] == 0

    @pytest.mark.parametrize("pointer", [3, 4, 9])
    def test_a_way_down_that_leads_up_is_wrong(self, pointer: int) -> None:
        data = bytearray(image_of(["a", "a", "a", "a"], 1).to_bytes())
        data[44 + 20 * 4 + 16 : 44 + 20 * 5] = oracles.packed(pointer, 4)
        wrong = list(rows_of(check_pointers(bytes(data), 1, 2, written=4)))
        assert wrong == ([] if pointer == 3 else [[indexes.BAD_SLOT, 0, 2, 4]])


def rows_of(found: tuple[int, list[list[int]], int]) -> Iterator[list[int]]:
    yield from found[1]


def test_counts_that_do_not_fit_are_refused() -> None:
    region, none = Bytes(image_of(["a", "b"]).to_bytes()).region, np.zeros(0, np.int64)
    with pytest.raises(ValueError, match="7 slots and 99 entries"):
        indexes.share_explained(region, SLOTS, 99)
    with pytest.raises(ValueError, match=f"a last byte at {region.size}"):
        indexes.next_slot_count(region, 1, region.size)
    with pytest.raises(ValueError, match="entries 0 to 2 of a file that has room for 1"):
        indexes.check_pointers(region, SLOTS, 2, 1, none, np.zeros(0, np.int32), 9)
    with pytest.raises(ValueError, match="1 hashes of 0 entries"):
        indexes.check_pointers(region, SLOTS, 2, 2, none, np.zeros(1, np.int32), 9)
