"""Offset message ids and unique keys, against RocketMQ's own classes and a recorded store."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_store import vectors
from protocol.errors import BadMessageId
from protocol.host_address import HostAddress
from protocol.message_id import (
    decode_message_id,
    encode_message_id,
    is_offset_message_id_candidate,
)
from strategies import hosts

REFERENCE = "7F00000100002A9F0000000000001241"


def test_ids_are_those_that_java_makes() -> None:
    for text, ip, port, offset in vectors("message-id"):
        message_id = decode_message_id(text)
        assert message_id.address.raw_ip.hex() == ip
        assert [str(message_id.address.port), str(message_id.physical_offset)] == [port, offset]
        assert encode_message_id(message_id.address, message_id.physical_offset) == text
        assert is_offset_message_id_candidate(text)


@given(hosts, st.integers(-(2**63), 2**63 - 1))
def test_an_id_is_decoded_exactly_if_its_port_can_be_one(host: tuple[str, int], offset: int) -> None:
    text = encode_message_id(HostAddress(*host), offset)
    assert len(text) == (56 if ":" in host[0] else 32)
    assert is_offset_message_id_candidate(text) is (0 <= host[1] <= 65535)
    if 0 <= host[1] <= 65535:
        assert decode_message_id(text).physical_offset == offset
    else:
        with pytest.raises(BadMessageId, match=f"port {host[1]} is outside"):
            decode_message_id(text)


def test_what_is_no_id_is_told_why() -> None:
    for text, message in [
        ("", "length 0, expected 32 hex digits \\(IPv4\\) or 56 \\(IPv6\\)"),
        (REFERENCE[:-1], "length 31"),
        (REFERENCE + "0", "length 33"),
        ("x" * 500, "length 500"),
        (REFERENCE[:31] + "G", "'G' at position 31 is no hex digit"),
        (" " + REFERENCE[1:], "' ' at position 0"),
        (REFERENCE[:5] + "_" + REFERENCE[6:], "'_' at position 5"),
        ("٣" + REFERENCE[1:], "at position 0 is no hex digit"),
        ("7F00000100010000" + "0" * 16, "port 65536 is outside 0 to 65535"),
        ("7F000001FFFFFFFF" + "0" * 16, "port -1 is outside"),
    ]:
        with pytest.raises(BadMessageId, match=message):
            decode_message_id(text)
        assert not is_offset_message_id_candidate(text)


@given(st.one_of(st.text(), st.text("0123456789abcdefABCDEFx", min_size=31, max_size=57)))
def test_any_text_is_an_id_or_the_error(text: str) -> None:
    if is_offset_message_id_candidate(text):
        assert str(decode_message_id(text)) == text.upper()
    else:
        with pytest.raises(BadMessageId) as caught:
            decode_message_id(text)
        assert len(str(caught.value)) < 400
