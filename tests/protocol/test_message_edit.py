"""Records made and changed: byte for byte as RocketMQ's encoder makes them, and readable by its rules after an edit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from golden_store import vectors
from message_encoding import encode_message
from protocol.checksum import verify_property_crc
from protocol.errors import CorruptRecord, TruncatedFile
from protocol.host_address import HostAddress
from protocol.message import Message, decode_message
from protocol.message_edit import with_store_host, without_property
from protocol.message_layout import V1_MAGIC, V2_MAGIC
from store_files import pack_record, with_host_bits
from strategies import hosts, records

JAVA_RECORDS = [bytes.fromhex(columns[0]) for columns in vectors("message")]


def encode_again(message: Message) -> bytes:
    other = ("total_size", "stored_body", "properties_bytes", "_properties", "budget", "record_properties")
    fields = {name: getattr(message, name) for name in Message.__slots__ if name not in other}
    return encode_message(**fields, body=message.stored_body, properties=message.properties_bytes)


def test_decoding_and_encoding_gives_javas_bytes_back() -> None:
    for record in JAVA_RECORDS:
        assert encode_again(decode_message(record)) == record


@given(records)
def test_encoding_equals_the_field_by_field_oracle(fields: dict[str, object]) -> None:
    fields |= {"topic_bytes": "主题".encode(), "property_crc": False}
    expected = pack_record(
        **fields | {"sys_flag": with_host_bits(fields["sys_flag"], fields["born_host"], fields["store_host"])}
    )
    fields |= {"born_host": HostAddress(*fields["born_host"]), "store_host": HostAddress(*fields["store_host"])}
    del fields["topic_bytes"], fields["property_crc"]
    assert encode_message(topic="主题", properties=fields.pop("properties_bytes"), **fields) == expected


@pytest.mark.parametrize(
    ("topic", "magic"), [("t" * 127, V1_MAGIC), ("t" * 128, V2_MAGIC), ("é" * 63, V1_MAGIC), ("😀" * 64, V2_MAGIC)]
)
def test_the_version_follows_the_number_of_utf_16_units_of_the_topic(topic: str, magic: int) -> None:
    message = decode_message(encode_message(topic=topic))
    assert (message.topic, message.magic) == (topic, magic)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"topic": "é" * 100}, "topic of 200 bytes: at most 127 fit"),
        ({"topic": "t" * 32768}, "topic of 32768 bytes: at most 32767 fit"),
        ({"topic": "t", "properties": b"x" * 32768}, "properties of 32768 bytes"),
    ],
)
def test_what_does_not_fit_its_length_field_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_message(**fields)


@given(records, st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY"]))
def test_without_a_property_everything_else_stays(fields: dict[str, object], name: str) -> None:
    fields["sys_flag"] = with_host_bits(fields["sys_flag"], fields["born_host"], fields["store_host"])
    if fields["property_crc"]:  # a broker ends the last property first
        fields["properties_bytes"] = fields["properties_bytes"].rstrip(b"\x02") + b"\x02"
    record = pack_record(**fields)
    before, after = decode_message(record), decode_message(without_property(record + b"behind", name))
    expected = before.properties
    expected.pop(name, None)
    found = after.properties
    if fields["property_crc"]:
        assert verify_property_crc(record)
        assert verify_property_crc(without_property(record, name))
        for properties in (expected, found):
            properties.pop("__CRC32#", None)
    assert found == expected
    unchanged = {"total_size", "properties_bytes", "_properties"}
    for field in set(Message.__slots__) - unchanged:
        assert getattr(before, field) == getattr(after, field), field
    assert oracles.read_record(without_property(record, name), 0) is not None


@given(records, hosts)
def test_another_store_host_changes_nothing_else(fields: dict[str, object], host: tuple[str, int]) -> None:
    fields["sys_flag"] = with_host_bits(fields["sys_flag"], fields["born_host"], fields["store_host"])
    record = pack_record(**fields)
    fields["store_host"] = host
    fields["sys_flag"] = with_host_bits(fields["sys_flag"], fields["born_host"], host)
    assert with_store_host(record + b"behind", HostAddress(*host)) == pack_record(**fields)


@pytest.mark.parametrize(
    "edit", [lambda data: without_property(data, "KEYS"), lambda data: with_store_host(data, HostAddress("::1", 1))]
)
def test_what_is_no_record_cannot_be_edited(edit: object) -> None:
    assert callable(edit)
    with pytest.raises(CorruptRecord):
        edit(bytes(200))
    with pytest.raises(TruncatedFile):
        edit(JAVA_RECORDS[0][:-1])
