"""Records moved into a plain segment: each as the oracle moves it, and what it points to."""

import pytest

from kernel_memory import Bytes, record_at
from oracles import signed
from storage.kernels.dispatching import DAMAGE, NEED_MORE
from storage.kernels.moving import RecordMover, mend_record
from store_files import pack_entry

BASE = 1 << 32
SIZE = 1 << 16


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


@pytest.mark.parametrize("crc", [False, True])
def test_a_record_is_mended_with_its_checksum(crc: bool) -> None:
    record = bytearray(record_at(BASE, prepared_transaction_offset=7, property_crc=crc))
    mend_record(record, 0, len(record), 99)
    assert bytes(record) == record_at(BASE, prepared_transaction_offset=99, property_crc=crc)
    assert signed(bytes(record), 28, 8) == BASE
