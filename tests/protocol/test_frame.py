"""Frames, in the manner of h11: one table of cases drives the decoder whole, byte by byte and with trailing bytes."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frame_garbage import encode_frame_prefix
from protocol.errors import BadFrame, FrameTooLarge, RequestByHttp
from protocol.frame import FRAME_LIMIT, Frame, FrameDecoder

# Written by RemotingCommand.encode() of 5.5.0.
JAVA_JSON = bytes.fromhex(
    "000000680000005f7b22636f6465223a302c22666c6167223a312c226c616e6775616765223a224a415641222c226f7061717565223a372c2273657269"
    "616c697a655479706543757272656e74525043223a224a534f4e222c2276657273696f6e223a3437397d68656c6c6f"
)
JAVA_BINARY = bytes.fromhex(
    "0000002c0100002300000001df0000000700000001000000000000000e00066f666673657400000002313268656c6c6f"
)

CASES: list[tuple[Frame, bytes]] = [
    ((0, JAVA_JSON[8:-5], b"hello"), JAVA_JSON),
    ((1, JAVA_BINARY[8:-5], b"hello"), JAVA_BINARY),
    ((0, b"{}", b""), bytes.fromhex("00000006 00000002") + b"{}"),
    ((0, b"", b""), bytes.fromhex("00000004 00000000")),
    ((0, b"", b"body"), bytes.fromhex("00000008 00000000") + b"body"),
    ((255, b"h", b"b"), bytes.fromhex("00000006 ff000001") + b"hb"),
    ((0, b"h" * 70_000, b"b" * 70_000), bytes.fromhex("000222e4 00011170") + b"h" * 70_000 + b"b" * 70_000),
]

HTTP_REQUEST = "a request by HTTP, and this is the remoting port: the page has a port of its own, that of --http"
HTTP_ANSWER = "an answer by HTTP: brokers listen on another port, mostly 10911, and name servers on 9876"

BAD_PREFIXES = [
    ("ffffffff 00000000", BadFrame, "frame length -1, expected at least 4"),
    ("80000000 00000000", BadFrame, "frame length -2147483648, expected at least 4"),
    ("00000000 00000000", BadFrame, "frame length 0, expected at least 4"),
    ("00000003 00000000", BadFrame, "frame length 3, expected at least 4"),
    ("00000004 00000001", BadFrame, "header length 1, but only 0 bytes are left for it"),
    ("00000010 00ffffff", BadFrame, "header length 16777215, but only 12 bytes are left for it"),
    ("00fffffd 00000000", FrameTooLarge, "a frame of 16777217 bytes, more than the limit of 16777216"),
    ("7fffffff 00000000", FrameTooLarge, "a frame of 2147483651 bytes, more than the limit of 16777216"),
    ("16030100 c8010000", FrameTooLarge, "a frame of 369295620 bytes, more than the limit of 16777216"),
    *(
        (beginning[:8].hex(), RequestByHttp, HTTP_REQUEST)
        for beginning in (
            b"GET / HTTP/1.1",
            b"POST /api",
            b"HEAD /metrics",
            b"OPTIONS * ",
            b"DELETE /x",
            b"PRI * HTTP/2.0",
        )
    ),
    (b"HTTP/1.1 400"[:8].hex(), BadFrame, HTTP_ANSWER),
    (b"PROXY TCP4 "[:8].hex(), FrameTooLarge, "a frame of 1347571548 bytes, more than the limit of 16777216"),
]


def in_pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


@pytest.mark.parametrize("trailing", [JAVA_BINARY[:length] for length in (1, 7, 8, -1)])
def test_trailing_bytes_stay_in_the_buffer(trailing: bytes) -> None:
    for frame, data in CASES:
        decoder = FrameDecoder()
        assert decoder.feed(data + trailing) == [frame]
        assert decoder.needs_more
        assert decoder.feed(JAVA_BINARY[len(trailing) :]) == [CASES[1][0]]


@given(st.lists(st.sampled_from(CASES[:-1]), max_size=6), st.lists(st.integers(0, 300), max_size=12))
def test_any_split_of_the_stream_gives_the_same_frames(cases: list[tuple[Frame, bytes]], cuts: list[int]) -> None:
    stream = b"".join(data for _, data in cases)
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    decoder = FrameDecoder()
    found = [frame for start, stop in pairwise(places) for frame in decoder.feed(stream[start:stop])]
    assert found == [frame for frame, _ in cases]
    assert not decoder.needs_more


@pytest.mark.parametrize("size", [8, 1])
def test_a_bad_prefix_is_refused_as_soon_as_it_is_there(size: int) -> None:
    for prefix, kind, sentence in BAD_PREFIXES:
        decoder = FrameDecoder()
        *begin, end = in_pieces(bytes.fromhex(prefix), size)
        for piece in begin:
            assert decoder.feed(piece) == []
        with pytest.raises(BadFrame) as caught:
            decoder.feed(end)
        assert type(caught.value) is kind
        assert str(caught.value) == sentence
        assert caught.value.frames == []


def test_a_bad_stream_stays_bad_and_repeats_no_frame() -> None:
    decoder = FrameDecoder()
    with pytest.raises(BadFrame):
        decoder.feed(JAVA_JSON + b"\0" * 8)
    with pytest.raises(BadFrame) as again:
        decoder.feed(JAVA_JSON)
    assert again.value.frames == []


@pytest.mark.parametrize("limit", [8, 64, FRAME_LIMIT])
def test_the_limit_counts_the_whole_frame_with_its_length_field(limit: int) -> None:
    longest = encode_frame_prefix(0, 0, limit - 8) + bytes(limit - 8)
    assert FrameDecoder(limit).feed(longest) == [(0, b"", bytes(limit - 8))]
    with pytest.raises(FrameTooLarge) as caught:
        FrameDecoder(limit).feed(encode_frame_prefix(0, 0, limit - 7))
    assert (caught.value.size, caught.value.limit) == (limit + 1, limit)


REFUSED = b'{"code":34}'
FLOOD = bytes.fromhex("00000077 0000000b") + REFUSED + b"x" * 104


@pytest.mark.parametrize("size", [1, 8, 19, 100])
def test_a_body_that_is_not_wanted_is_thrown_away_and_the_frame_handed_out_with_its_length(size: int) -> None:
    asked = []

    def skips(serialize_type: int, header: bytes) -> bool:
        asked.append((serialize_type, header))
        return header == REFUSED

    decoder = FrameDecoder(body_limit=100, skips=skips)
    frames: list[Frame] = []
    most = 0
    for piece in in_pieces(FLOOD + JAVA_JSON + FLOOD, size):
        frames += decoder.feed(piece)
        most = max(most, decoder.buffered)
    assert [(header, len(body), bytes(body)) for _, header, body in frames] == [
        (REFUSED, 104, b""),
        (JAVA_JSON[8:-5], 5, b"hello"),
        (REFUSED, 104, b""),
    ]
    assert not decoder.needs_more
    assert most <= len(JAVA_JSON)
    assert set(asked) == {(0, REFUSED)}


def test_a_long_body_that_is_wanted_or_is_here_already_is_kept() -> None:
    decoder = FrameDecoder(body_limit=100, skips=lambda _type, _header: False)
    frames = [frame for piece in in_pieces(FLOOD, 50) for frame in decoder.feed(piece)]
    assert frames == [(0, REFUSED, b"x" * 104)]
    decoder = FrameDecoder(body_limit=100, skips=lambda _type, _header: True)
    assert decoder.feed(FLOOD) == [(0, REFUSED, b"x" * 104)]
    assert decoder.feed(FLOOD[:-1])[0][2] == b""
    assert decoder.needs_more
    assert decoder.feed(b"x" + JAVA_JSON) == [CASES[0][0]]


def test_a_body_no_longer_than_the_limit_is_nobodys_question() -> None:
    decoder = FrameDecoder(body_limit=104, skips=lambda _type, _header: True)
    frames = [frame for piece in in_pieces(FLOOD, 50) for frame in decoder.feed(piece)]
    assert frames == [(0, REFUSED, b"x" * 104)]
