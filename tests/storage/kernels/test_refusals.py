"""What no kernel takes, but refuses with a sentence: places outside of a region, room of another size, wrong counts."""

import numpy as np
import pytest

from kernel_memory import Bytes, HeldFile, IndexBytes, KernelStore
from storage.filter.base import CHOICE_OF_EVERYTHING
from storage.filter.sql92 import parse
from storage.kernels import (
    dispatching,
    file_map,
    index_entries,
    indexes,
    message_rows,
    messages,
    moving,
    pulls,
    records,
    select_records,
    sql92,
    store_view,
    texts,
)
from storage.kernels.region import Region

BASE, SIZE = (1 << 32, 1 << 16)
INDEX_BYTES = 40 + 4 * 2 + 20 * 4  # of an index file of two slots, with room for four entries; the first is none


def longs(*values):
    return np.array(values, np.int64)


def ints(*values):
    return np.array(values, np.int32)


def room(count):
    return np.empty(count, np.int64)


def refuse(message, call, *arguments, **keywords) -> None:
    with pytest.raises(ValueError, match=message):
        call(*arguments, **keywords)


@pytest.mark.parametrize(("position", "stop"), [(-1, 10), (0, 1000), (0, -1), (2**62, 2**63 - 1), (1000, 1001)])
def test_a_place_of_no_record(position: int, stop: int) -> None:
    region, room, held = Region(bytes(200)), np.zeros(records.MAXIMUM_PIECES, np.int64), Bytes(bytes(200)).region
    calls = [
        lambda: records.check_shape(region, position, stop, -1),
        lambda: records.check_intact(region, position, stop, -1),
        lambda: records.check_step(region, position, stop, -1, 0),
        lambda: records.has_sane_texts(region, position, stop),
        lambda: records.tag_entry_hash(region, position, stop),
        lambda: records.entry_hashes(region, position, stop),
        lambda: records.walk_records(region, position, stop, 0, 0, True),
        lambda: records.scan_keys(region, position, 0, stop, 0, 0, room.astype(np.int32), room),
        lambda: records.find_candidate(region, position, stop, 0),
        lambda: records.find_recent(region, position, 0, stop, 0, 0),
        lambda: records.find_record(region, position, stop, 0),
        lambda: records.find_record_backwards(region, position, stop, 0),
        lambda: records.find_intact_backwards(region, position, stop, stop, 0),
        lambda: records.find_record_by_entries(region, position, 0, stop, 0, 0, room[:0], 0, True, True),
        lambda: records.walk_appended(region, position, 0, stop, 0, 0),
        lambda: memory().run(held, position, stop, BASE, BASE + SIZE, SIZE),
        lambda: moving.RecordMover(bytearray(SIZE), SIZE, BASE, SIZE).run(
            held, position, stop, BASE, BASE + SIZE, SIZE
        ),
    ]
    for call in calls:
        refuse("do not lie in a region of", call)


def memory(records: int = 10) -> dispatching.DispatchMemory:
    return dispatching.DispatchMemory(tags=True, checksums=True, delays=[], lmq=True, batch_topics=[], units=True,
                                      entries=True, timestamps=True, records=records)  # fmt: skip


def test_records() -> None:
    hashes, offsets = np.zeros(records.MAXIMUM_PIECES, np.int32), np.zeros(records.MAXIMUM_PIECES, np.int64)
    nothing = Region(b"")

    def scan(*room):
        return records.scan_keys(nothing, 0, 0, 0, 0, 0, *room)

    refuse("do not lie in", records.store_timestamp, Region(bytes(90)), 0)
    refuse("do not lie in", records.closes_segment, Region(bytes(7)), 0, 7)
    refuse("too few", records.check_step, Region(bytes(7)), 0, 7, 0, 7)
    refuse("expected one dimension of 32-bit integers, found 1 of 64 bits", scan, offsets, offsets)
    refuse("of 64-bit integers, found 1 of 64 bits, format d", scan, hashes, offsets.astype(np.float64))
    refuse(f"room for {records.MAXIMUM_PIECES - 1} entries", scan, hashes[1:], offsets)
    below = 0, 0, 0, 0, 0, np.empty(0, np.void(20).dtype), -1, True, True
    refuse("there is no entry -1", records.find_record_by_entries, nothing, *below)
    hashes.flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        scan(hashes, offsets)


def test_index_files() -> None:
    region, none = Region(bytes(INDEX_BYTES)), longs()
    for slots, entries in ((0, 1), (2, 5), (3, 4), (2**31, 1), (1, 0)):
        held, said = bytearray(INDEX_BYTES), f"{slots} slots and {entries} entries|{entries - 1} entries"
        zeros = np.zeros(4, np.int64)
        refuse(said, indexes.IndexWriter, held, slots, entries, 0, 0)
        refuse(said, indexes.place_entries, held, slots, ints(0, 0, 0, 0), zeros, zeros, entries - 1, 0)
    for slots, entries in ((0, 1), (2, -1), (2, 30), (1000, 0), (2**31, 1), (1, 2**62)):
        refuse(f"{slots} slots and {entries} entries", indexes.check_structure, region, slots, entries)
    for before, most in ((-1, 1), (3, 1), (0, -1)):
        said = f"{most} gaps among entries {before} to 2"
        refuse(said, indexes.measure_entries, region, 2, before, 2, most)
    refuse("1 and 2 stretches", indexes.measure_compacted, region, 2, 1, 0, longs(0), longs(0, 0))
    refuse("2 slots and 99 entries", indexes.share_explained, region, 2, 99)
    refuse(f"a last byte at {region.size}", indexes.next_slot_count, region, 1, region.size)
    refuse("entries 0 to 2 of a file that has room for 1", indexes.check_pointers, region, 2, 2, 1, none, ints(), 9)
    refuse("1 hashes of 0 entries", indexes.check_pointers, region, 2, 2, 2, none, ints(0), 9)


def test_texts() -> None:
    def held(position, length):
        return (Bytes(b"abc").region, Bytes(b"de").region, longs(0, position), longs(3, length))

    factor, codes, data = 0x2545F4914F6CDD1D, np.empty(2, np.int32), np.zeros(5, np.uint8)
    for position, length in ((2, 2), (4, 1), (2**62, 2**62), (-2, 2), (-(2**63), 1), (0, 2**63 - 1)):
        places, said = held(position, length), f"text 1 of {length} bytes at position {position} does not lie in"
        refuse(said, texts.copy_texts, *places, ints(0, 3, 5), data)
        refuse(said, texts.find_holding, *places, None, room(2))
        refuse(said, texts.find_holding, *places, b"a", room(2))
        refuse(said, texts.split_keys, *places, room(2), room(9), room(9))
        refuse(said, texts.code_texts, *places, factor, codes, room(2), room(2))
    places = (Bytes(b"a b").region, Bytes(b"c").region, longs(0, -1), longs(3, 1))
    refuse("text 0 of 3 bytes at offset 2 does not fit into 4 bytes", texts.copy_texts, *places, ints(2, 3), data[:4])
    refuse("text 1 of 1 bytes at offset -1 does not fit", texts.copy_texts, *places, ints(0, -1), data[:4])
    refuse("room for 2 keys, expected 3", texts.split_keys, *places, room(2), room(2), room(3))
    refuse("room for 1 rows, expected 2", texts.find_holding, *places, b"a", room(1))
    refuse("room for 1 codes, expected 2", texts.code_texts, *places, factor, codes[:1], room(9), room(9))
    refuse("2 positions and 1 lengths", texts.find_holding, *places[:3], longs(1), b"a", room(2))
    few = Region(bytes(8)), longs(0), np.zeros(31, np.uint8), room(1)
    refuse("room for 31 bytes of texts, expected 32", texts.write_hosts, *few)


def test_hosts_and_properties() -> None:
    def split(block, positions, lengths, rows, pairs):
        found = (np.empty(pairs, np.int32), room(9), room(9))
        return texts.split_properties(block, positions, lengths, 3, room(rows), *found, room(9), room(9))

    region, blocks = Bytes(bytes(16)).region, Bytes(bytes(72)).region
    for position in (-1, 9, 2**63 - 1):
        outside = "do not lie in a region of 16 bytes"
        refuse(outside, texts.write_hosts, region, longs(8, position), np.zeros(64, np.uint8), room(2))
        refuse(outside, texts.bytes_at, region, position, 8)
        refuse("block 1 of 8 bytes at position", split, blocks, longs(64, position), longs(8, 8), 2, 9)
    pairs = (np.empty(1, np.int32), room(2), room(2))
    refuse("with 64 of them before its end", split, blocks, longs(0), longs(63), 1, 9)
    block = Region(b"." * 64 + b"a\x01b\x02c\x01d")
    refuse("room for 1 properties, expected 2", split, block, longs(64), longs(7), 1, 1)
    refuse("room for 1 properties, expected 2", texts.places_of_name, longs(2), *pairs, 0, room(1), room(1))


def test_units_of_a_pull() -> None:
    log, file = KernelStore([]).log, HeldFile(bytes(60))
    for position, first, stop in ((0, 0, 4), (-1, 0, 1), (61, 0, 0), (0, -1, 1), (0, 2, 1), (1, 0, 3)):
        given = (position, first, stop, 2, b"T", CHOICE_OF_EVERYTHING, first, 1, 1, 100, 0)
        refuse("units", pulls.pull, log, file, *given)


def test_a_store() -> None:
    for position, length in ((-1, 1), (0, 0), (0, 11), (10, 1), (2**62, 2**62), (5, -1)):
        refuse("of a file of 10", HeldFile(bytes(10)).is_hot, position, length, 1000)
    for valid in (-1, 11):
        said = "valid bytes in a file of 10"
        refuse(said, KernelStore, [(0, bytes(10))], valid=[valid])
        refuse(said, KernelStore([(0, bytes(10))]).log.grown, valid)
    for bases in ((10, 9), (-1, 5), (0, 2**63 - 9)):
        refuse("a segment of 10 bytes from", KernelStore, [(base, bytes(10)) for base in bases])
    data, seen = bytes(40 + 4 + 3 * 20), HeldFile(b"abc")
    for slots, entries in ((0, 1), (-1, 1), (1, 3), (17, 0), (2**31, 1), (1, -1)):
        refuse("entries", KernelStore, [], [IndexBytes(data, slots, entries, 0)])
    refuse("no segment", store_view.LogView().grown, 1)
    refuse("heat of 1 times 64 KiB", store_view.FileView, memoryview(bytes(store_view.PROBE_BYTES)), ints(0), -1)
    refuse("seen already", store_view.FileView.__init__, seen, memoryview(b"abc"), ints(0), -1)
    refuse("not seen yet", store_view.LogView, [(0, store_view.FileView.__new__(store_view.FileView), 0)])
    refuse("without room for shortcuts", store_view.IndexFilesView, [(HeldFile(data), 1, 2, 0, True, True, None)])
    refuse("2 hashes of 1 offsets", store_view.RunsView, [(ints(0, 0), longs(0))])
    assert len(store_view.IndexFilesView([(HeldFile(data), 1, 2, 0, True, True, store_view.Shortcuts())])) == 1


def test_blocks_of_a_scan_and_segments_that_are_moved() -> None:
    for count in (-1, 0, (1 << 28) + 1):
        refuse(f"blocks of {count} records", memory, count)
    for given in ((9, 0, 1), (-1, 0, 1), (8, -1, 1), (8, 0, 0)):
        refuse("a segment of", moving.RecordMover, bytearray(8), *given)
    for given in ((-1, 100), (0, 90), (0, 1 << 40), (1 << 40, 100)):
        refuse("do not lie in", moving.mend_record, bytearray(200), *given, 0)
    mover = moving.RecordMover(bytearray(SIZE), SIZE, BASE, SIZE)
    refuse("are not of a segment", mover.run, Region(bytes(8)), 0, 8, BASE - 1, BASE + SIZE, SIZE)
    untouched = bytearray(200)
    refuse("no record of", moving.mend_record, untouched, 0, 200, 0)
    assert not any(untouched)


@pytest.mark.parametrize(("offsets", "stops", "hashes", "first", "count", "message"), [
    ((1, 2), (1,), (5,), 0, 1, "columns are not all of length 1"),
    ((1,), (2,), (5,), 0, 1, "1 hashes for 2 entries"),
    ((1,), (1,), (5,), 0, 2, "entries 0 to 2 of 1"),
    ((1,), (1,), (5,), -1, 1, "entries -1 to 0 of 1"),
    ((1,), (4,), (5, 6, 7, 8), 0, 4, "4 entries for a file that has room for 3"),
])  # fmt: skip
def test_columns_of_an_index_file(offsets, stops, hashes, first, count, message) -> None:
    held = bytearray(INDEX_BYTES)
    writer = indexes.IndexWriter(held, 2, 4, 0, 0)
    refuse(message, writer.put, longs(*offsets), longs(7), longs(*stops), ints(*hashes), first, count)
    assert not any(held)


def test_entries_of_an_index_file() -> None:
    region, two, fates = Bytes(bytes(200)).region, longs(0, 0), np.zeros(2, np.uint8)

    def heads(filled, fates):
        return index_entries.read_heads(region, 0, filled, 200, BASE, two, 0, fates, two)

    refuse("bytes 0 to 201", heads, 201, fates)
    refuse("1 fates and 2 times of 2 records", heads, 200, fates[:1])
    few = 0, 200, 200, BASE, two, 0, (), True, fates, two, two[:1]
    refuse("1 tags of 2 records", index_entries.read_records, region, *few)
    refuse("bytes 0 to 12", index_entries.check_slots, bytes(8), ints(0, 0, 0), -1)
    refuse("of a file of 0 slots", index_entries.check_entries, bytes(20), 1, ints())
    refuse("1 starts and 2 ends", index_entries.deal_entries, bytes(20), longs(0), two)


def test_numbers_of_rows() -> None:
    region, found = Bytes(bytes(12)).region, np.empty(1, np.int64)
    for position, bits in ((-1, 32), (9, 32), (5, 64), (1 << 62, 32), (0, 16)):
        refuse("bits|bytes", message_rows.load_numbers, region, longs(position), 0, bits, found)
    for position, distance in ((2**63 - 1, 8), (-(2**63), -8), (-1, -(2**31)), (12, 2**31 - 1)):
        said = f"{distance} bytes behind position {position} does not lie"
        refuse(said, message_rows.load_numbers, region, longs(position), distance, 32, found)


def test_searches() -> None:
    def needle(first: int, second: int) -> object:
        return select_records.find_needle(Bytes(b"abc").region, 0, 3, b"ab", first, second)

    nine = Region(bytes(9))
    for rarest in ((-1, 0), (1, 0), (0, 2)):
        refuse("of a needle of 2 bytes", needle, *rarest)
    refuse("no queue offset", messages.MessageSearch, b"T", 0, -2, np.zeros(20, np.uint8), 1)
    refuse("8-bit", messages.MessageSearch, b"T", 0, 0, ints(0, 0, 0, 0, 0), 1)
    refuse("do not lie in a region", messages.find_messages, nine, 0, 9, 10, 0, 9, [])
    with pytest.raises(TypeError):
        messages.find_messages(nine, 0, 9, 9, 0, 9, [None])


def test_blocks_of_properties_for_an_expression() -> None:
    program, region = parse("a = 'x'").program, Bytes(bytes(128)).region
    outcomes = np.empty(1, np.uint8)
    for position, length in ((-1, 4), (100, 30), (101, 28), (0, 60), (128, 1), (64, -1), (1 << 62, 8)):
        refuse("block 0", sql92.decide_records, program, region, longs(position), longs(length), outcomes)
    one = longs(0)
    refuse("room for 0 outcomes", sql92.decide_records, program, region, one, one, outcomes[:0])


def test_pages_of_a_map() -> None:
    with open(__file__, "rb") as file:
        pages = file_map.FileMap(file.fileno(), 100)
    for start, stop in ((-1, 5), (6, 5), (0, 101)):
        said = f"bytes {start} to {stop} do not lie in a map of 100 bytes"
        refuse(said, pages.populate, start, stop)
        refuse(said, pages.drop, start, stop)
