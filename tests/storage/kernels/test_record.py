"""The check of a record in place, against the loop oracle on whole, damaged and random bytes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from kernel_memory import Bytes, record_at
from protocol import message_layout
from storage.kernels import record as codes
from storage.kernels.record import (
    check_checksums,
    check_shape,
    find_property,
    has_piece,
    property_crc,
    store_timestamp,
    topic_length,
    topic_position,
)

HOSTS = {"v4": ("127.0.0.1", 10911), "v6": ("2001:db8::1", 10911)}


def packed(**changes: Any) -> bytes:
    return record_at(changes.pop("physical_offset", 4096), **{"keys": "a b", "unique_key": "U", "tags": "t", **changes})


def shape(data: bytes, offset: int = 4096) -> int:
    held = Bytes(data)
    return int(check_shape(held.address, held.length, offset))


class TestLayout:
    def test_positions_are_those_of_the_layout_table(self) -> None:
        names = ["total_size", "magic", "body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag"]
        assert message_layout.V4_V4_FIXED.size == 88
        data = packed(sys_flag=0x700)
        values = message_layout.V4_V4_FIXED.unpack_from(data)
        held = Bytes(data)
        assert dict(zip(names, values, strict=False))["physical_offset"] == 4096
        assert int.from_bytes(data[codes.PHYSICAL_OFFSET :][:8], "big") == 4096
        assert int.from_bytes(data[codes.SYS_FLAG :][:4], "big") == 0x700
        assert int.from_bytes(data[codes.BODY_CRC :][:4], "big") == values[2]
        assert int.from_bytes(data[codes.body_length_position(held.address) :][:4], "big") == 5

    @pytest.mark.parametrize("born", ["v4", "v6"])
    @pytest.mark.parametrize("stored", ["v4", "v6"])
    @pytest.mark.parametrize("topic", [b"T", b"%RETRY%" + b"g" * 150])
    def test_every_host_combination_and_version_is_read(self, born: str, stored: str, topic: bytes) -> None:
        flags = (0x10 if born == "v6" else 0) | (0x20 if stored == "v6" else 0)
        data = packed(sys_flag=flags, born_host=HOSTS[born], store_host=HOSTS[stored], topic_bytes=topic)
        held = Bytes(data)
        assert shape(data) == len(data)
        assert check_checksums(held.address, len(data)) == len(data)
        assert store_timestamp(held.address) == 1_700_000_000_123
        at = topic_position(held.address)
        assert data[at : at + topic_length(held.address)] == topic


class TestCheck:
    @given(st.data())
    def test_damaged_records_are_judged_like_the_oracle(self, data: st.DataObject) -> None:
        record = bytearray(packed(body=data.draw(st.binary(max_size=20))))
        for _ in range(data.draw(st.integers(0, 3))):
            record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
        held = Bytes(bytes(record))
        size = check_shape(held.address, held.length, 4096)
        sound = size > 0 and check_checksums(held.address, size) > 0
        assert sound == (oracles.read_record(bytes(record), 0, 4096) is not None)

    @given(st.binary(min_size=0, max_size=200))
    def test_random_bytes_are_judged_like_the_oracle(self, tail: bytes) -> None:
        data = (0).to_bytes(2, "big") + bytes([0, 120]) + (0xDAA320A7).to_bytes(4, "big") + tail
        assert (shape(data, -1) > 0) == (oracles.read_record(data, 0, check_crc=False) is not None)

    @pytest.mark.parametrize(
        ("change", "code"),
        [
            ({"magic": 0xCBD43194}, codes.BAD_MAGIC),
            ({"physical_offset": 4097}, codes.BAD_OFFSET),
        ],
    )
    def test_codes_name_the_reason(self, change: dict[str, object], code: int) -> None:
        assert shape(packed(**change)) == code

    def test_a_cut_record_has_a_bad_size(self) -> None:
        assert shape(packed()[:-1]) == codes.BAD_SIZE
        assert shape(b"") == codes.BAD_SIZE

    def test_a_wrong_body_checksum_is_found(self) -> None:
        held = Bytes(packed(crc=1))
        assert check_checksums(held.address, held.length) == codes.BAD_BODY_CRC

    def test_a_property_checksum_is_verified_over_everything_before_it(self) -> None:
        data = packed(property_crc=True)
        held = Bytes(data)
        assert property_crc(held.address, held.length) == oracles.signed(
            int(data[-11:-1][::-1]).to_bytes(8, "big"), 0, 8
        )
        assert check_checksums(held.address, held.length) == len(data)
        topic = data.index(b"TopicTest")
        held = Bytes(data[:topic] + b"X" + data[topic + 1 :])
        assert check_checksums(held.address, held.length) == codes.BAD_PROPERTY_CRC

    def test_digits_that_are_none_are_no_checksum(self) -> None:
        data = bytearray(packed(property_crc=True))
        data[-5] = ord("x")
        held = Bytes(bytes(data))
        assert property_crc(held.address, held.length) == -1


class TestProperties:
    @given(st.lists(st.sampled_from([b"KEYS", b"TAGS", b"UNIQ_KEY", b"K", b"\x01", b"\x02", b"v", b"a b", b""])))
    def test_properties_are_found_by_the_brokers_parsing_rules(self, pieces: list[bytes]) -> None:
        block = b"".join(pieces)
        held = Bytes(block)
        expected = oracles.parse_properties(oracles.decode_java(block))
        for name, number in (("KEYS", codes.KEYS_NAME), ("TAGS", codes.TAGS_NAME), ("UNIQ_KEY", codes.UNIQUE_KEY_NAME)):
            found = find_property(held.address, len(block), len(name), number)
            value = None if found < 0 else block[found >> 16 :][: found & 0xFFFF].decode()
            assert value == expected.get(name)

    @given(st.text("ab ", max_size=8), st.text("ab", max_size=2))
    def test_a_key_is_one_of_the_pieces_between_spaces(self, keys: str, key: str) -> None:
        left, right = Bytes(keys.encode()), Bytes(key.encode())
        assert has_piece(left.address, left.length, right.address, right.length) == (key in oracles.split_keys(keys))
