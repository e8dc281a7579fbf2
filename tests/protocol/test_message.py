"""Stored messages decoded: as RocketMQ's own decoder decodes its own encoder's bytes, and as the field table says."""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings

import oracles
from examples import examples
from golden_store import pairs, text, vectors
from protocol.errors import CorruptRecord, TruncatedFile
from protocol.message import decode_message
from store_files import pack_batch, pack_record, with_host_bits
from strategies import records

PLAIN = {
    "topic_bytes": b"TopicTest", "body": b"hello", "properties_bytes": b"KEYS\x01k1 k2\x02TAGS\x01TagA\x02",
    "queue_id": 3, "flag": 7, "queue_offset": 11, "physical_offset": 4096, "sys_flag": 0, "born_timestamp": 1000,
    "born_host": ("10.0.0.1", 54321), "store_timestamp": 2000, "store_host": ("10.0.0.2", 10911), "reconsume_times": 2,
    "prepared_transaction_offset": 5,
}  # fmt: skip


def record_of(**changes: object) -> bytes:
    fields = PLAIN | changes
    fields["sys_flag"] = with_host_bits(fields["sys_flag"], fields["born_host"], fields["store_host"])
    return pack_record(**fields)


def messages_of_java() -> Iterator[tuple[list[str], bytes]]:
    for columns in vectors("message"):
        yield columns[1:], bytes.fromhex(columns[0])


def test_every_field_is_what_the_java_client_decodes() -> None:
    for columns, record in messages_of_java():
        message = decode_message(record)
        numbers = (
            message.total_size, message.body_crc, message.queue_id, message.flag, message.queue_offset,
            message.physical_offset, message.sys_flag, message.born_timestamp,
        )  # fmt: skip
        assert [str(number) for number in numbers] == columns[:8]
        assert message.born_host.pack().hex() == columns[8] + f"{int(columns[9]):08x}"
        assert str(message.store_timestamp) == columns[10]
        assert message.store_host.pack().hex() == columns[11] + f"{int(columns[12]):08x}"
        assert [str(message.reconsume_times), str(message.prepared_transaction_offset)] == columns[13:15]
        assert message.decoded_body().hex() == columns[15]
        assert message.topic == text(columns[16])
        assert message.properties == pairs(columns[17])
        assert [message.offset_message_id, message.message_id] == [columns[18], text(columns[19])]


def test_the_java_vectors_hold_both_versions_all_host_sizes_and_all_compressions() -> None:
    kinds = {
        (record[7], decode_message(record).sys_flag & 0x30, decode_message(record).sys_flag & 0x701)
        for _, record in messages_of_java()
    }
    assert kinds == {
        (version, hosts, compression)
        for version in (0xA7, 0xAB)
        for hosts in (0, 0x10, 0x20, 0x30)
        for compression in (0, 0x001, 0x101, 0x201, 0x301)
    }


@settings(max_examples=examples(12))
@given(records)
def test_decoding_equals_the_field_by_field_oracle(fields: dict[str, object]) -> None:
    fields["sys_flag"] = with_host_bits(fields["sys_flag"], fields["born_host"], fields["store_host"])
    record = pack_record(**fields)
    expected = oracles.read_record(record, 0)
    message = decode_message(memoryview(record), physical_offset=fields["physical_offset"])
    assert expected is not None
    others = {"born_host", "store_host", "topic_bytes", "body"}
    for name in vars(expected).keys() - others | {"topic", "properties"}:
        assert getattr(message, name) == getattr(expected, name), name
    assert message.stored_body == expected.body
    assert (message.born_host.raw_ip, message.born_host.port) == expected.born_host
    assert (message.store_host.raw_ip, message.store_host.port) == expected.store_host


def test_ids_of_the_recorded_store_are_those_that_its_producer_was_told(g1_store: Path) -> None:
    produced = [
        line.split("\t") for line in (Path(__file__).parent.parent / "golden/g1/produced.tsv").read_text().splitlines()
    ]
    told = {tuple(columns[2:4]) for columns in produced if len(columns) > 3 and len(columns[3]) == 32}
    log = b"".join(path.read_bytes() for path in sorted((g1_store / "commitlog").iterdir()))
    for unique_key, offset_message_id in told:
        message = decode_message(log[int(offset_message_id[16:], 16) :])
        assert (message.unique_key, message.offset_message_id) == (unique_key, offset_message_id)
        assert message.message_id == unique_key
    assert len(told) == 19


def test_a_wrong_crc_is_an_error_unless_it_is_not_asked_for() -> None:
    record = record_of(crc=1)
    with pytest.raises(CorruptRecord, match=f"body CRC 0x{zlib.crc32(b'hello') & 0x7FFFFFFF:08x}, expected 0x00000001"):
        decode_message(record)
    assert decode_message(record, check_crc=False).body_crc == 1


@pytest.mark.parametrize("length", [-1, -5, -(2**31)])
def test_a_negative_body_length_is_an_empty_body_as_in_java(length: int) -> None:
    record = bytearray(record_of(body=b""))
    struct.pack_into(">i", record, 84, length)
    assert decode_message(bytes(record)).body == b""


def test_a_negative_properties_length_is_an_empty_block_as_in_java() -> None:
    record = record_of(properties_bytes=b"")
    assert decode_message(record[:-2] + b"\xff\xff").properties == {}


@pytest.mark.parametrize("length", [0x80, 0xFF])
def test_a_negative_topic_length_is_an_error(length: int) -> None:
    record = bytearray(record_of(topic_bytes=b"t" * 127, body=b""))
    record[88] = length
    with pytest.raises(CorruptRecord, match=f"topic length {length - 256}"):
        decode_message(bytes(record))


def test_hosts_of_sixteen_bytes_need_room_for_them() -> None:
    record = bytearray(record_of(body=b"", topic_bytes=b"", properties_bytes=b""))
    record[39] |= 0x30
    with pytest.raises(CorruptRecord, match="total size 91, expected room for all fields"):
        decode_message(bytes(record))


def test_lengths_and_magic_that_are_none_are_named() -> None:
    for position, value, message in [
        (4, 0xCBD43194, "magic 0xcbd43194, expected 0xdaa320a7"),
        (4, 0, "magic 0x00000000"),
        (0, 90, "total size 90, expected at least 91"),
        (0, 0x80000000, "total size -2147483648"),
        (0, 91, "body length 5"),
        (84, 0x7FFFFFFF, "body length 2147483647"),
        (84, 6, "topic length 84, expected 0 to"),
    ]:
        record = bytearray(record_of())
        struct.pack_into(">I", record, position, value)
        with pytest.raises(CorruptRecord, match=message):
            decode_message(bytes(record))


def test_a_record_that_is_cut_off_is_truncated_wherever_the_cut_is() -> None:
    record = record_of()
    for size in range(len(record)):
        with pytest.raises(TruncatedFile, match=f"but only {size} are there"):
            decode_message(record[:size])


def test_an_unknown_compression_is_an_error_and_an_empty_body_is_none() -> None:
    with pytest.raises(CorruptRecord, match="compression type 5, expected 0 to 3"):
        decode_message(record_of(sys_flag=0x501, body=b"\0\xff\1")).decoded_body()
    assert decode_message(record_of(sys_flag=0x501, body=b"")).decoded_body() == b""
    assert decode_message(record_of(sys_flag=0x500)).decoded_body() == b"hello"


def test_inner_messages_are_those_that_a_java_consumer_gets() -> None:
    expected: list[list[list[str]]] = []
    batches = []
    for kind, *columns in vectors("inner-batch", "inner"):
        if kind == "inner-batch":
            batches.append(decode_message(bytes.fromhex(columns[0])))
            expected.append([])
        else:
            expected[-1].append(columns)
    for batch, columns_of_each in zip(batches, expected, strict=True):
        inner = batch.inner_messages()
        assert [str(message.queue_offset) for message in inner] == [columns[0] for columns in columns_of_each]
        for message, columns in zip(inner, columns_of_each, strict=True):
            assert [str(message.flag), message.decoded_body().hex()] == columns[1:3]
            # Java sets WAIT anew, from the outer message; ours stays what was sent.
            assert without_wait(message.properties) == without_wait(pairs(columns[3]))
            assert [message.topic, str(message.physical_offset)] == [text(columns[4]), columns[5]]
            assert message.inner_messages() == [message]


def without_wait(properties: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name != "WAIT"}


def test_a_broken_batch_is_an_error() -> None:
    for body in [
        b"\0" * 19,
        pack_batch([(b"a", {})])[:-1],
        pack_batch([(b"a", {"k": "v"})])[:-1],
        pack_batch([(b"a", {})]) + b"\0",
        bytes(16) + b"\xff\xff\xff\xff" + bytes(2),
        bytes(20) + b"\xff\xff",
        bytes(16) + b"\x7f\xff\xff\xff" + bytes(2),
    ]:
        with pytest.raises(CorruptRecord, match="sub-message at"):
            decode_message(record_of(body=body, sys_flag=0xC0)).inner_messages()
