"""The binary header: all ways in which its lengths can lie, and what does not fit it.

What RocketMQSerializable 5.5.0 writes, and recorded headers, are in `test_command.py`.
"""

import pytest

from protocol.command import Command, decode_command, encode_head, ext_fields_of
from protocol.errors import BadCommand

JAVA = bytes.fromhex("00000001df0000000700000001000000000000000e00066f6666736574000000023132")
"""An answer to the request 7 with the field `offset`, 12."""
START = "0001 00 0000 00000000 00000000 "
ASKED = "000f 00 01df 00000005 00000002 00000000 "


def decoded(data: bytes | str) -> Command:
    return decode_command((1, bytes.fromhex(data) if isinstance(data, str) else data, b""))


def encoded(
    code: int = 0, flag: int = 0, opaque: int = 0, version: int = 0, remark: str | None = None, **fields: str
) -> bytes:
    return encode_head(1, code, flag, opaque, remark, fields, version, 0)[8:]


def test_bytes_behind_the_fields_are_ignored_as_in_java() -> None:
    command = decoded(JAVA + b"\0\1")
    assert (command.opaque, ext_fields_of(command)) == (7, {"offset": "12"})


def test_a_header_cut_anywhere_is_refused() -> None:
    for length in range(len(JAVA)):
        with pytest.raises(BadCommand):
            decoded(JAVA[:length])


def test_empty_keys_and_values_are_absent_as_in_java() -> None:
    fields = bytes.fromhex("0005 656d707479 00000000" + "0000 00000001 78" + "0001 71 00000001 31")
    assert ext_fields_of(decoded(bytes.fromhex(ASKED) + len(fields).to_bytes(4, "big") + fields)) == {"q": "1"}
    assert ext_fields_of(decoded(ASKED + "ffffffff")) == {}, "a negative length of all fields means none"


def test_a_length_beyond_what_holds_it_is_named() -> None:
    for data, part, wanted, left in [
        (START + "ffffffff 00000000", "remark", -1, 0),
        (START + "00000001 00000000", "remark", 1, 0),
        (START + "7fffffff 00000000", "remark", 2147483647, 0),
        (START + "00000000 00000001", "extFields", 1, 0),
        (START + "00000000 00000001 00", "the length of an extFields key", 2, 1),
        (START + "00000000 00000002 ffff", "an extFields key", -1, 0),
        (START + "00000000 00000003 0002 6b", "an extFields key", 2, 1),
        (START + "00000000 00000003 0001 6b", "the length of the value of 'k'", 4, 0),
        (START + "00000000 00000007 0001 6b ffffffff", "the value of 'k'", -1, 0),
        # The value lies inside the header, but outside the fields.
        (START + "00000000 00000008 0001 6b 00000002 3132", "the value of 'k'", 2, 1),
    ]:
        with pytest.raises(BadCommand) as caught:
            decoded(data)
        assert str(caught.value) == f"binary header: {part} takes {wanted} bytes, but {left} are left for it"


@pytest.mark.parametrize("length", [32_766, 32_767])
def test_a_key_as_long_as_its_length_field_allows_is_written(length: int) -> None:
    fields = {"k" * length: "v", "after": "1"}
    assert ext_fields_of(decoded(encoded(**fields))) == fields


@pytest.mark.parametrize("key", ["k" * 32_768, "标" * 10_923])
def test_a_longer_key_is_refused_instead_of_written_wrong(key: str) -> None:
    with pytest.raises(BadCommand, match="more than 32767"):
        encoded(**{key: "v"})


@pytest.mark.parametrize(
    "numbers", [(32_768, 0, 0, 0), (200_050, 0, 0, 0), (0, 0, 0, 32_768), (0, 0, 2**31, 0), (0, 2**31, 0, 0)]
)
def test_a_number_too_large_for_its_field_is_refused(numbers: tuple[int, int, int, int]) -> None:
    with pytest.raises(BadCommand, match="too large for a binary header"):
        encoded(*numbers)


def test_texts_that_utf_8_cannot_hold_are_replaced_as_in_java() -> None:
    assert decoded(START + "00000002 61ff 00000000").remark == "a\ufffd"
    command = decoded(encoded(remark="\udcff", k="\ud800"))
    assert (command.remark, ext_fields_of(command)) == ("?", {"k": "?"})
