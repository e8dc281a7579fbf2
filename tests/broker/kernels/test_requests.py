"""Requests read where they lie: where a run of plain ASCII ends, and that nothing is read behind the end."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.kernels.requests import code_of, plain_end
from kernel_memory import Guarded
from lane_requests import LITE_PULL, PULL, QUERY, VIEW, mutated, pull, query, view
from protocol.codes import RequestCode
from storage.kernels.region import Region

SPECIAL = re.compile(rb'["\\\x00-\x1f\x80-\xff]')


@given(st.binary(max_size=40), st.integers(0, 12), st.integers(0, 12))
def test_a_run_ends_at_the_first_special_byte(tail: bytes, plain: int, start: int) -> None:
    data = b"~ !#[]azAZ\x7f0"[:plain] + tail
    start = min(start, len(data))
    expected = found.start() if (found := SPECIAL.search(data, start)) else len(data)
    assert plain_end(Region(data), start) == expected


def test_every_byte_counts_alike_at_every_place_before_any_other_byte() -> None:
    for byte in range(256):
        for place in range(16):
            data = b"a" * place + bytes([byte, (byte + 1) % 256, 0x22, 0x00])
            data += b"a" * (20 - len(data))
            found = SPECIAL.search(data)
            assert found
            assert plain_end(Region(data), 0) == found.start(), data


@pytest.mark.parametrize("position", [-1, 4])
def test_a_run_begins_within_its_bytes(position: int) -> None:
    with pytest.raises(ValueError, match="do not lie in"):
        plain_end(Region(b"abc"), position)


def test_the_codes_are_those_of_the_protocol() -> None:
    frames = {VIEW: view(0), QUERY: query("T", "k"), PULL: pull("T"), LITE_PULL: pull("T", code=LITE_PULL)}
    assert {code: code_of(Region(frame[8:])) for code, frame in frames.items()} == {code: code for code in frames}
    assert frames.keys() == {
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.QUERY_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
    }


def test_nothing_is_read_behind_the_end_of_a_header() -> None:
    generator, guarded = random.Random(3), Guarded(4096)
    headers = [view(0)[8:], query("Grüße", "\U0001f600")[8:], pull("T", maxMsgBytes=None)[8:], b"{", b"", b'{"code']
    plain = 0
    for number in range(10_000):
        header = (
            mutated(generator, view(0) if number % 2 else query("T", "k"))[8:] if number % 3 else headers[number % 6]
        )
        header = header[: generator.randrange(len(header) + 1)] if number % 4 else header
        plain += code_of(Region(guarded.put(header))) is not None
    assert plain > 250


@pytest.mark.parametrize(
    "remark",
    [b"null", b'""', b'"\xc3\xbc"'],
)
def test_a_remark_may_stand_at_the_very_end(remark: bytes) -> None:
    header = b'{"code":33,"extFields":{"offset":"0"},"flag":0,"opaque":1,"remark":%b}' % remark
    assert code_of(Region(header)) == VIEW
