"""What the doors of the lane refuse, and what reads requests; answers are compared in `lane`."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.kernels.lane import KnownPull, KnownPulls, Lane, PullKind
from broker.kernels.requests import code_of, plain_end
from kernel_memory import Guarded, HeldFile, KernelStore
from lane_requests import LITE_PULL, PULL, QUERY, VIEW, mutated, pull, query, template_with, view
from protocol.codes import RequestCode
from storage.kernels.pulls import EVERYTHING, Choice
from storage.kernels.region import Region
from storage.queue.unit_struct import UNIT

UNITS = 100


def known_pull(topic=b"T", units=UNITS, first=0, stop=UNITS, numbers=2) -> KnownPull:
    kind = PullKind(RequestCode.PULL_MESSAGE, topic, b"G", b"*", None, 0, 32, None, 0, 0)
    file = HeldFile(bytes(UNIT.size * UNITS))
    choice, header = Choice(EVERYTHING), template_with(numbers)
    return KnownPull(kind, file, 0, 0, units, first, stop, 32, 32, 1 << 20, choice, 0, header)


@pytest.mark.parametrize(("most", "slots"), [(0, 4), (4, 4), (5, 4), (1, 3), (1, 6)])
def test_a_table_that_fills_up_or_is_no_power_of_two_is_refused(most: int, slots: int) -> None:
    with pytest.raises(ValueError, match=f"{most} pulls in {slots} slots"):
        KnownPulls(most, slots)


def test_units_outside_the_file_or_the_run_are_refused() -> None:
    with pytest.raises(ValueError, match="101 units at position 0 do not lie in 2000 bytes"):
        known_pull(units=UNITS + 1)
    for first, stop in ((-1, 5), (6, 5), (0, UNITS + 1)):
        with pytest.raises(ValueError, match=f"queue offsets {first} to {stop} of 0 to 100"):
            known_pull(first=first, stop=stop)
    with pytest.raises(ValueError, match="a header with 3 numbers"):
        known_pull(numbers=3)


def test_a_lane_that_follows_nothing_or_is_given_places_outside_of_what_was_read_refuses() -> None:
    lane = Lane(KnownPulls(1, 4), 1 << 20, 1 << 20, 100, 1 << 20)
    store = KernelStore([])
    with pytest.raises(ValueError, match="follows no snapshot"):
        lane.answer(store.view, b"", 0, 0, 0)
    one, three = template_with(1), template_with(3)
    with pytest.raises(ValueError, match="other numbers than the lane has"):
        lane.follow(one, one, one, True, True, 0)
    lane.follow(one, one, three, True, True, 0)
    for data in (b"abc", bytearray(b"abc")):
        for start, stop in ((-1, 2), (2, 1), (0, 4)):
            with pytest.raises(ValueError, match=f"bytes {start} to {stop} of 3"):
                lane.answer(store.view, data, start, stop, 0)
        assert lane.answer(store.view, data, 0, 0, 0)[:2] == (b"", 0)


def test_a_header_with_too_many_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="a header with 5 numbers"):
        template_with(5)


SPECIAL = re.compile(rb'["\\\x00-\x1f\x80-\xff]')


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


def test_nothing_is_read_behind_the_end_of_a_header() -> None:
    generator, guarded = random.Random(3), Guarded(4096)
    headers = [view(0)[8:], query("Grüße", "\U0001f600")[8:], pull("T", maxMsgBytes=None)[8:], b"{", b"", b'{"code']
    plain = 0
    for number in range(10_000):
        one = mutated(generator, view(0) if number % 2 else query("T", "k"))[8:]
        header = one if number % 3 else headers[number % 6]
        header = header[: generator.randrange(len(header) + 1)] if number % 4 else header
        plain += code_of(Region(guarded.put(header))) is not None
    assert plain > 250


def test_a_pull_is_known_once_where_it_starts_and_as_long_as_there_is_room() -> None:
    known = KnownPulls(2, 8)
    with pytest.raises(ValueError, match="queue offset 50 of 0 to 50"):
        known.add(known_pull(stop=50), 50)
    assert known.add(known_pull(), 0)
    assert not known.add(known_pull(), 1)
    assert known.add(known_pull(b"U"), 0)
    assert (len(known), known.is_full) == (2, True)
    with pytest.raises(ValueError, match="as many pulls as there may be"):
        known.add(known_pull(b"V"), 0)
    known.clear()
    assert (len(known), known.is_full) == (0, False)
    assert known.add(known_pull(b"V"), 0)


@given(st.binary(max_size=40), st.integers(0, 12), st.integers(0, 12))
def test_a_run_ends_at_the_first_special_byte(tail: bytes, plain: int, start: int) -> None:
    data = b"~ !#[]azAZ\x7f0"[:plain] + tail
    start = min(start, len(data))
    expected = found.start() if (found := SPECIAL.search(data, start)) else len(data)
    assert plain_end(Region(data), start) == expected


def test_the_codes_are_those_of_the_protocol() -> None:
    frames = {VIEW: view(0), QUERY: query("T", "k"), PULL: pull("T"), LITE_PULL: pull("T", code=LITE_PULL)}
    assert {code: code_of(Region(frame[8:])) for code, frame in frames.items()} == {code: code for code in frames}
    codes = RequestCode
    taken = {codes.VIEW_MESSAGE_BY_ID, codes.QUERY_MESSAGE, codes.PULL_MESSAGE, codes.LITE_PULL_MESSAGE}
    assert frames.keys() == taken


@pytest.mark.parametrize("remark", [b"null", b'""', b'"\xc3\xbc"'])
def test_a_remark_may_stand_at_the_very_end(remark: bytes) -> None:
    header = b'{"code":33,"extFields":{"offset":"0"},"flag":0,"opaque":1,"remark":%b}' % remark
    assert code_of(Region(header)) == VIEW
