"""Records moved into a plain segment: each as the oracle moves it, and what it points to."""

import mmap
import random
import struct

import pytest

from kernel_memory import Bytes, record_at
from oracles import packed, read_record, signed
from plain_oracle import moved_record
from storage.kernels.dispatching import BLANK, DAMAGE, FULL, NEED_MORE
from storage.kernels.moving import RecordMover, mend_record
from store_files import pack_entry

BASE = 1 << 32
SIZE = 1 << 16


def ledger(random_of: random.Random, count: int) -> tuple[bytes, dict[int, bytes]]:
    """A segment of a ledger that ends with its BLANK, and its records by physical offset."""
    data, records = bytearray(), dict[int, bytes]()
    for number in range(count):
        if random_of.random() < 0.2:
            data += pack_entry(b"members", BASE + len(data), index=number, kind=random_of.choice([2, 3]))
        place = BASE + len(data) + 48
        half = random_of.choice([0, 0, BASE - 500, *list(records)[-5:]])
        record = record_at(
            place,
            sys_flag=random_of.choice([0, 8, 0x10, 0x20, 0x30]),
            body=random_of.randbytes(random_of.randrange(200)),
            prepared_transaction_offset=half,
            property_crc=random_of.random() < 0.5,
        )
        records[place] = record
        data += pack_entry(record, BASE + len(data), index=number)
    data += packed(-1, 4) + packed(SIZE - len(data), 4)
    return bytes(data).ljust(SIZE, b"\0"), records


def test_records_follow_one_another_at_their_new_places() -> None:
    for seed in range(8):
        data, records = ledger(random.Random(seed), 60)
        held, memory = Bytes(data), mmap.mmap(-1, SIZE)
        mover = RecordMover(memory, SIZE, BASE, 1 << 12)
        position, links, fulls = 0, b"", 0
        while (step := mover.run(held.region, position, SIZE, BASE, BASE + SIZE, SIZE)).reason == FULL:
            links, position, fulls = links + bytes(mover.take_links()), step.position, fulls + 1
        links += bytes(mover.take_links())
        assert (step.reason, fulls > 0, mover.records) == (BLANK, True, 60)
        moves, end = {}, BASE
        for place, record in records.items():
            moves[place], end = end, end + len(record)
        # What lies in other segments stays as it is until it is known where that is now.
        expected = b"".join(
            moved_record(record, moves[place], {**moves, BASE - 500: BASE - 500}, 0)
            for place, record in records.items()
        )
        assert memory[: mover.used] == expected
        assert not any(memory[mover.used :])
        assert (mover.used, mover.last_record) == (end - BASE, max(moves.values()))
        found = struct.iter_unpack("=II", mover.moves_made())
        assert [(BASE + before, BASE + after) for before, after in found] == list(moves.items())
        elsewhere = [moves[place] - BASE for place, record in records.items() if half_of(record) == BASE - 500]
        assert list(struct.iter_unpack("=qq", links)) == [(place, BASE - 500) for place in elsewhere]
        last = read_record(expected, max(moves.values()) - BASE, max(moves.values()))
        assert last is not None
        assert mover.last_timestamp == last.store_timestamp


def half_of(record: bytes) -> int:
    found = read_record(record, 0)
    assert found is not None
    return found.prepared_transaction_offset


def test_a_record_that_is_cut_off_or_damaged_ends_a_run() -> None:
    record = record_at(BASE + 48)
    entry = pack_entry(record, BASE, index=0)
    for data, reason in ((entry[:-1], NEED_MORE), (entry[:20], NEED_MORE), (entry[:-30] + bytes(30), DAMAGE)):
        mover = RecordMover(bytearray(SIZE), SIZE, BASE, SIZE)
        step = mover.run(Bytes(data).region, 0, len(data), BASE, BASE + SIZE, SIZE)
        assert (step.reason, mover.used, mover.records) == (reason, 0, 0)
    wrong = record_at(BASE + 48, crc=1)
    data = pack_entry(wrong, BASE, index=0)
    mover = RecordMover(bytearray(SIZE), SIZE, BASE, SIZE)
    assert mover.run(Bytes(data).region, 0, len(data), BASE, BASE + SIZE, SIZE).reason == DAMAGE


def test_a_record_for_which_there_is_no_room_is_not_written() -> None:
    record = record_at(BASE)
    memory = bytearray(len(record) - 1)
    mover = RecordMover(memory, len(memory), BASE, 1)
    assert mover.run(Bytes(record).region, 0, len(record), BASE, BASE + SIZE, SIZE).reason == DAMAGE
    assert not any(memory)


@pytest.mark.parametrize("crc", [False, True])
def test_a_record_is_mended_with_its_checksum(crc: bool) -> None:
    record = bytearray(record_at(BASE, prepared_transaction_offset=7, property_crc=crc))
    mend_record(record, 0, len(record), 99)
    assert bytes(record) == record_at(BASE, prepared_transaction_offset=99, property_crc=crc)
    assert signed(bytes(record), 28, 8) == BASE
