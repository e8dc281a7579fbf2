"""The checksum of bodies, and the one that a record may carry for itself."""

import sys
import zlib
from importlib import reload
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

import protocol.checksum
from golden_store import vectors
from protocol.checksum import body_crc, property_crc, renew_property_crc, verify_property_crc
from protocol.errors import CorruptRecord
from store_files import pack_record

FIELDS = {
    "topic_bytes": b"T", "body": b"hello", "queue_id": 0, "flag": 0, "queue_offset": 0, "physical_offset": 0,
    "sys_flag": 0, "born_timestamp": 0, "born_host": ("127.0.0.1", 1), "store_timestamp": 0,
    "store_host": ("127.0.0.1", 2), "reconsume_times": 0, "prepared_transaction_offset": 0,
}  # fmt: skip
PROTECTED = pack_record(**FIELDS, properties_bytes=b"a\x01b\x02", property_crc=True)


@given(st.binary())
def test_the_body_crc_is_crc_32_without_the_top_bit(body: bytes) -> None:
    assert body_crc(body) == body_crc(memoryview(body)) == zlib.crc32(body) & 0x7FFFFFFF


def test_records_of_the_brokers_own_encoder_verify() -> None:
    records = [bytes.fromhex(columns[0]) for columns in vectors("message")]
    protected = [record for record in records if property_crc(record) is not None]
    assert len(protected) == len(records) // 2 > 0
    assert all(verify_property_crc(record) and renew_property_crc(record) == record for record in protected)


def test_every_changed_byte_in_front_of_it_is_noticed() -> None:
    assert verify_property_crc(PROTECTED)
    assert verify_property_crc(PROTECTED + b"bytes behind the record")
    assert verify_property_crc(memoryview(PROTECTED))
    for position in (8, 20, 40, 60, len(PROTECTED) - 30, len(PROTECTED) - 21):
        changed = bytearray(PROTECTED)
        changed[position] ^= 1
        try:
            assert not verify_property_crc(bytes(changed))
        except CorruptRecord:
            pytest.fail(f"byte {position} makes the record unreadable: choose another")
        assert verify_property_crc(renew_property_crc(bytes(changed)))


def test_without_the_fast_library_the_standard_one_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "isal.isal_zlib", ModuleType("isal.isal_zlib"))
        assert reload(protocol.checksum).crc32 is zlib.crc32
        assert protocol.checksum.body_crc(b"hello") == zlib.crc32(b"hello") & 0x7FFFFFFF
    reload(protocol.checksum)
