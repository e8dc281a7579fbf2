"""The entries of an index file beside those that its log leads to, against loops, and beside the image of a rebuild."""

import re
import struct
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from storage.doctor.index import _match_entries
from storage.doctor.index._index_image import IndexStretch, rebuilt_stretch
from storage.doctor.index._left_over_entries import LeftOver
from storage.doctor.index._match_entries import NO_KEY, NO_RECORD, NO_TIME, REPEATED, MatchedFile
from storage.doctor.log.scanned_log import ScannedLog
from storage.index.index_copy import IndexCopy, IndexCounts

SLOTS = 7
T0 = 1_700_000_000_000


class Keyed(NamedTuple):
    offset: int
    timestamp: int
    hashes: tuple[int, ...]
    tagged: bool = False


class HeldLog(ScannedLog, frozen=True, dict=True, kw_only=True):
    held: tuple[SimpleNamespace, ...]

    @property
    def blocks(self):
        return self.held


def log_of(blocks):
    held = [
        SimpleNamespace(
            first=block[0].offset,
            end=block[-1].offset + 1,
            entries=sum(len(record.hashes) for record in block),
            columns=lambda block=block: {
                "offsets": np.array([record.offset - block[0].offset for record in block], np.uint32),
                "timestamps": np.array([record.timestamp for record in block], np.int64),
                "counts": np.array([len(record.hashes) for record in block], np.uint16),
                "hashes": np.array([key_hash for record in block for key_hash in record.hashes], np.int32),
                "tagged": np.array([record.tagged for record in block], np.uint8),
            },
        )
        for block in blocks
    ]
    return HeldLog(minimum=0, end=1 << 62, lost=(), segment_size=1 << 30, is_live=False, may_lag=False, segments=(),
                   held=tuple(held))  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("index") / "20260101000000000"


def matched(path, entries, blocks):
    """A file of these entries, whatever its slots and header say, held against the log."""
    fields = [(0, 0, 0, 0), *entries]
    content = b"".join(struct.pack(">iqii", *entry) for entry in fields)
    path.write_bytes(bytes(44) + content)
    return MatchedFile(IndexCopy(path), IndexCounts(1, len(entries) + 1, len(entries)), log_of(blocks))


def seconds(timestamp: int, begin: int) -> int:
    return min(max((timestamp - begin) // 1000, 0), 2**31 - 1) if begin > 0 else 0


def flat(blocks):
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
            time = draw(st.integers(-3, 5) | st.integers(T0, T0 + 10**7))
            block.append(Keyed(offset, time, tuple(hashes), draw(st.booleans())))
            offset += draw(st.integers(1, 5))
        blocks.append(block)
        offset += draw(st.integers(0, 20))
    return blocks


@settings(max_examples=examples(12))
@given(logs(), st.data())
def test_any_entries_are_matched_as_a_loop_does(path, blocks, data) -> None:
    everything = flat(blocks)
    begin = data.draw(st.sampled_from([0, T0, T0 + 5000]))
    near = st.integers(everything[0][0].offset - 2, everything[-1][0].offset + 3)
    near |= st.sampled_from([-(2**63), -1, 2**63 - 1])
    right = st.sampled_from(everything).map(lambda entry: (entry[1], entry[0].offset))
    drawn = data.draw(st.lists(right | st.tuples(st.integers(-2, 9), near), min_size=1, max_size=15))
    times = {record.offset: record.timestamp for record, _, _ in everything}
    entries = [
        (key_hash, offset, seconds(times.get(offset, T0), begin) + data.draw(st.sampled_from([0, 0, 0, 1])), 0)
        for key_hash, offset in drawn
    ]
    found, expected = matched(path, entries, blocks), match_by_loop(entries, blocks, begin)
    assert (found.ranks[1:].tolist(), found.timestamps[1:].tolist()) == (expected["ranks"], expected["times"])
    assert found.wrong_times(begin).tolist() == expected["late"]
    assert (found.matches, found.rank_span()) == (expected["matches"], expected["span"])
    known = [rank for rank in expected["ranks"] if rank >= 0]
    assert found.is_ordered == (known == sorted(known))


def test_the_example_of_the_module_is_true(path) -> None:
    rows = [line.split() for line in str(_match_entries.__doc__).splitlines() if re.match(r" {12} +\d", line)]
    keys = [list(map(int, row[:3])) for row in rows[:-1]]
    entries = [(row if row is rows[-1] else row[3:])[1:4] for row in rows]
    offsets = sorted({offset for _, offset, _ in keys})
    blocks = [[Keyed(offset, T0, tuple(key for _, of, key in keys if of == offset))] for offset in offsets]
    found = matched(path, [(int(key_hash), int(offset), 0, 0) for offset, key_hash, _ in entries], blocks)
    codes = {"REPEATED": REPEATED, "NO_KEY": NO_KEY, "NO_RECORD": NO_RECORD}
    ranks = [said.rstrip(":") for _, _, said in entries]
    assert found.ranks[1:].tolist() == [codes[said] if said in codes else int(said) for said in ranks]
    assert found.unseen["rank"].tolist() == [0, 3]
    left = LeftOver(found, log_of(blocks), grows=False)
    assert (left.paired, left.numbers["repeats"], left.strays.tolist()) == ({4: 1}, 1, [5])
    assert left.missing.size == 0


def is_last_of_record(everything: list[tuple[Keyed, int, int]], rank: int) -> bool:
    return rank + 1 == len(everything) or everything[rank + 1][0] is not everything[rank][0]


def match_by_loop(entries, blocks, begin):
    """Match, by physical offset and then in order, each entry with the first free one that it can be."""
    records = {record.offset: (record, rank) for record, _, rank in flat(blocks)}
    taken: set[int] = set()
    ranks, times = [-1] * len(entries), [NO_TIME] * len(entries)
    late = []
    for number, (key_hash, offset, difference, _) in sorted(enumerate(entries, 1), key=lambda item: item[1][1]):
        if offset not in records:
            continue
        record, rank = records[offset]
        if key_hash not in record.hashes:
            ranks[number - 1] = NO_KEY
            continue
        place = rank + record.hashes.index(key_hash)
        ranks[number - 1] = REPEATED if place in taken else place
        taken.add(place)
        times[number - 1] = record.timestamp
        if number > 1 and difference != seconds(record.timestamp, begin):
            late.append(number)
    return {"ranks": ranks, "late": sorted(late), "times": times, "matches": len(taken),
            "span": (min(taken, default=-1), max(taken, default=-1))}  # fmt: skip


@settings(max_examples=examples(12))
@given(logs(repeated=True), st.booleans(), st.none() | st.tuples(st.integers(0, 2 * T0), st.integers(0, 99)), st.data())
def test_a_file_of_any_stretch_is_known_and_with_another_byte_it_is_not(path, blocks, tags, previous, data) -> None:
    """It is known where the file has the last key of its first record; that may have more in the file before."""
    named = [[record._replace(hashes=tuple(map(named_hash, record.hashes))) for record in block] for block in blocks]
    everything = flat(blocks)
    put = [
        rank for rank, (record, _, _) in enumerate(everything)
        if tags or not (record.tagged and is_last_of_record(everything, rank))
    ]  # fmt: skip
    if not put:
        return
    start = data.draw(st.integers(0, len(put) - 1))
    stop = data.draw(st.integers(start + 1, len(put)))
    image = oracles.IndexImage(SLOTS, stop - start + 1 + data.draw(st.integers(0, 2)))
    if previous is not None:
        image.begin_timestamp, image.begin_physical_offset = previous
    for rank in put[start:stop]:
        record, key_hash, _ = everything[rank]
        image.put(f"T#{key_hash}", record.offset, record.timestamp)
    path.write_bytes(image.to_bytes())
    stretch = rebuilt_stretch(IndexCopy(path), SLOTS, previous, log_of(named))
    chosen, first_record = put[start:stop], everything[put[start]][0]
    # A tag whose hash is that of a key makes two stretches of one image.
    is_single = tags or not first_record.tagged or first_record.hashes[-1] not in first_record.hashes[:-1]
    if is_single and (stop == len(put) or everything[put[stop]][0] is not first_record):
        offsets = [everything[rank][0].offset for rank in (chosen[0], chosen[-1])]
        has_tags = any(everything[r][0].tagged and is_last_of_record(everything, r) for r in chosen)
        assert stretch == IndexStretch([chosen[0], chosen[-1]], offsets, has_tags)
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    assert rebuilt_stretch(IndexCopy(path), SLOTS, previous, log_of(named)) is None


def named_hash(number: int) -> int:
    return oracles.index_hash(f"T#{number}")
