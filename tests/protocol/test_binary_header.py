"""The binary header against bytes of RocketMQSerializable 5.5.0, recorded headers, and all ways lengths can lie."""

from typing import NamedTuple

import pytest

from protocol.command import decode_command, ext_fields_of
from protocol.errors import BadCommand
from protocol.kernels.responses import encode_head
from recorded_headers import recorded_frames

VERSION = 479


class BinaryHeader(NamedTuple):
    """What a binary header says."""

    code: int
    flag: int
    opaque: int
    version: int
    language: str | int | None
    remark: str | None
    ext_fields: dict[str, str]


def decode_binary_header(data: bytes) -> BinaryHeader:
    command = decode_command((1, data, b""))
    assert command.serialize_type == 1
    return BinaryHeader(
        command.code,
        command.flag,
        command.opaque,
        command.version,
        command.language,
        command.remark,
        ext_fields_of(command),
    )


def encode_binary_header(header: BinaryHeader) -> bytes:
    code, flag, opaque, version, _, remark, ext_fields = header
    return encode_head(1, code, flag, opaque, remark, ext_fields, version, 0)[8:]


# (header, bytes that Java writes for it)
CASES = [
    (BinaryHeader(0, 1, 7, VERSION, 0, None, {}), "00000001df00000007000000010000000000000000"),
    (
        BinaryHeader(0, 1, 7, VERSION, 0, None, {"offset": "12"}),
        "00000001df0000000700000001000000000000000e00066f6666736574000000023132",
    ),
    (
        BinaryHeader(22, 1, -1, VERSION, 0, 'can not find 标签 "x" \n 😀', {}),
        "00160001dfffffffff000000010000001e63616e206e6f742066696e6420e6a087e7adbe20227822200a20f09f988000000000",
    ),
    (
        BinaryHeader(-1000, 1, 2**31 - 1, VERSION, 0, None, {"k": "标"}),
        "fc180001df7fffffff00000001000000000000000a00016b00000003e6a087",
    ),
    (
        BinaryHeader(33, 0, 5, VERSION, 0, None, {"offset": "6581", "topic": "TopicTest"}),
        "00210001df0000000500000000000000000000002400066f666673657400000004363538310005746f70696300000009546f70696354657374",
    ),
]


@pytest.mark.parametrize(("header", "data"), CASES)
def test_what_java_writes_is_decoded(header: BinaryHeader, data: str) -> None:
    assert decode_binary_header(bytes.fromhex(data)) == header


@pytest.mark.parametrize(("header", "data"), CASES)
def test_bytes_behind_the_fields_are_ignored_as_in_java(header: BinaryHeader, data: str) -> None:
    assert decode_binary_header(bytes.fromhex(data) + b"\0\1") == header


@pytest.mark.parametrize(("header", "data"), CASES)
def test_what_is_encoded_is_what_java_writes(header: BinaryHeader, data: str) -> None:
    assert encode_binary_header(header).hex() == data


@pytest.mark.parametrize(("header", "data"), CASES)
def test_a_header_cut_anywhere_is_refused(header: BinaryHeader, data: str) -> None:
    whole = bytes.fromhex(data)
    for length in range(len(whole)):
        with pytest.raises(BadCommand):
            decode_binary_header(whole[:length])


def test_recorded_headers_come_back_byte_for_byte() -> None:
    recorded = [frame.binary for frame in recorded_frames() if frame.binary]
    assert len(recorded) == 36
    for data in recorded:
        header = decode_binary_header(data)
        assert header.language == 0
        assert encode_binary_header(header) == data


def test_empty_keys_and_values_are_absent_as_in_java() -> None:
    fields = bytes.fromhex("0005 656d707479 00000000" + "0000 00000001 78" + "0001 71 00000001 31")
    header = bytes.fromhex("000f 00 01df 00000005 00000002 00000000") + len(fields).to_bytes(4, "big") + fields
    assert decode_binary_header(header).ext_fields == {"q": "1"}


def test_a_negative_length_of_all_fields_means_none() -> None:
    assert decode_binary_header(bytes.fromhex("000f 00 01df 00000005 00000002 00000000 ffffffff")).ext_fields == {}


def test_malformed_utf8_is_replaced_as_in_java() -> None:
    header = decode_binary_header(bytes.fromhex("0001 00 0000 00000000 00000000 00000002 61ff 00000000"))
    assert header.remark == "a\ufffd"


START = "0001 00 0000 00000000 00000000 "

LIES = [
    ("", "a binary header of 0 bytes, expected at least 21"),
    (START + "ffffffff 00000000", "binary header: remark takes -1 bytes, but 0 are left for it"),
    (START + "00000001 00000000", "binary header: remark takes 1 bytes, but 0 are left for it"),
    (START + "7fffffff 00000000", "binary header: remark takes 2147483647 bytes, but 0 are left for it"),
    (START + "00000000 00000001", "binary header: extFields takes 1 bytes, but 0 are left for it"),
    (
        START + "00000000 00000001 00",
        "binary header: the length of an extFields key takes 2 bytes, but 1 are left for it",
    ),
    (START + "00000000 00000002 ffff", "binary header: an extFields key takes -1 bytes, but 0 are left for it"),
    (START + "00000000 00000003 0002 6b", "binary header: an extFields key takes 2 bytes, but 1 are left for it"),
    (
        START + "00000000 00000003 0001 6b",
        "binary header: the length of the value of 'k' takes 4 bytes, but 0 are left for it",
    ),
    (
        START + "00000000 00000007 0001 6b ffffffff",
        "binary header: the value of 'k' takes -1 bytes, but 0 are left for it",
    ),
    # The value lies inside the header, but outside the fields.
    (
        START + "00000000 00000008 0001 6b 00000002 3132",
        "binary header: the value of 'k' takes 2 bytes, but 1 are left for it",
    ),
]


@pytest.mark.parametrize(("data", "sentence"), LIES)
def test_a_length_beyond_what_holds_it_is_named(data: str, sentence: str) -> None:
    with pytest.raises(BadCommand) as caught:
        decode_binary_header(bytes.fromhex(data))
    assert str(caught.value) == sentence


@pytest.mark.parametrize("length", [32_766, 32_767])
def test_a_key_as_long_as_its_length_field_allows_is_written(length: int) -> None:
    data = encode_binary_header(BinaryHeader(0, 1, 0, 0, 0, None, {"k" * length: "v", "after": "1"}))
    assert decode_binary_header(data).ext_fields == {"k" * length: "v", "after": "1"}


@pytest.mark.parametrize("key", ["k" * 32_768, "标" * 10_923])
def test_a_longer_key_is_refused_instead_of_written_wrong(key: str) -> None:
    with pytest.raises(BadCommand, match="more than 32767"):
        encode_binary_header(BinaryHeader(0, 1, 0, 0, 0, None, {key: "v"}))


@pytest.mark.parametrize(
    "numbers", [(32_768, 0, 0, 0), (200_050, 0, 0, 0), (0, 0, 0, 32_768), (0, 0, 2**31, 0), (0, 2**31, 0, 0)]
)
def test_a_number_too_large_for_its_field_is_refused(numbers: tuple[int, int, int, int]) -> None:
    with pytest.raises(BadCommand, match="too large for a binary header"):
        encode_binary_header(BinaryHeader(*numbers, 0, None, {}))


def test_a_lone_surrogate_is_written_as_java_does() -> None:
    data = encode_binary_header(BinaryHeader(1, 1, 0, 0, 0, "\udcff", {"k": "\ud800"}))
    assert decode_binary_header(data)[5:] == ("?", {"k": "?"})
