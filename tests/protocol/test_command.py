"""Frames and commands: what Java writes drives encoder and decoder, then recorded headers, then what goes wrong."""

import json
from itertools import pairwise
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_frames import recorded_frames
from protocol.codes import LanguageCode
from protocol.command import Command, Response, decode_command, encode_request, encode_response, ext_fields_of
from protocol.errors import BadCommand, BadFrame, FrameTooLarge, RequestByHttp
from protocol.frame import FrameDecoder

BODY = b"hello"


class Case(NamedTuple):
    code: int
    flag: int
    opaque: int
    remark: str | None
    ext_fields: dict[str, str] | None
    json: str
    binary: str


CASES = [
    Case(
        0, 1, 7, None, None,
        '{"code":0,"flag":1,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":479}',
        "00000001df00000007000000010000000000000000",
    ),
    Case(
        0, 1, 7, None, {"offset": "12"},
        '{"code":0,"extFields":{"offset":"12"},"flag":1,"language":"JAVA","opaque":7,'
        '"serializeTypeCurrentRPC":"JSON","version":479}',
        "00000001df0000000700000001000000000000000e00066f6666736574000000023132",
    ),
    Case(
        22, 1, -1, 'can not find 标签 "x" \n 😀', None,
        '{"code":22,"flag":1,"language":"JAVA","opaque":-1,"remark":"can not find 标签 \\"x\\" \\n 😀",'
        '"serializeTypeCurrentRPC":"JSON","version":479}',
        "00160001dfffffffff000000010000001e63616e206e6f742066696e6420e6a087e7adbe20227822200a20f09f988000000000",
    ),
    Case(
        -1000, 1, 2**31 - 1, "", {"k": "标"},
        '{"code":-1000,"extFields":{"k":"标"},"flag":1,"language":"JAVA","opaque":2147483647,"remark":"",'
        '"serializeTypeCurrentRPC":"JSON","version":479}',
        "fc180001df7fffffff00000001000000000000000a00016b00000003e6a087",
    ),
    Case(
        33, 0, 5, None, {"offset": "6581", "topic": "TopicTest"},
        '{"code":33,"extFields":{"offset":"6581","topic":"TopicTest"},"flag":0,"language":"JAVA","opaque":5,'
        '"serializeTypeCurrentRPC":"JSON","version":479}',
        "00210001df000000050000000000000000000000240006"
        "6f666673657400000004363538310005746f70696300000009546f70696354657374",
    ),
    Case(
        15, 2, 5, None, {"q": "1"},
        '{"code":15,"extFields":{"q":"1"},"flag":2,"language":"JAVA","opaque":5,'
        '"serializeTypeCurrentRPC":"JSON","version":479}',
        "000f0001df0000000500000002000000000000000800017100000001" "31",
    ),
]  # fmt: skip


def stream_of(case: Case, serialize_type: int) -> bytes:
    header = bytes.fromhex(case.binary) if serialize_type else case.json.encode()
    length = (4 + len(header) + len(BODY)).to_bytes(4, "big")
    return length + bytes([serialize_type]) + len(header).to_bytes(3, "big") + header + BODY


def json_frame(header, body=b""):
    if isinstance(header, dict):
        header = json.dumps(header)
    return (0, header if isinstance(header, bytes) else header.encode(), body)


@pytest.mark.parametrize("serialize_type", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_what_java_writes_is_decoded(case: Case, serialize_type: int) -> None:
    stream, piece = stream_of(case, serialize_type) + b"\0\0", 7
    decoder = FrameDecoder()
    frames = [frame for start in range(0, len(stream), piece) for frame in decoder.feed(stream[start : start + piece])]
    (command,) = map(decode_command, frames)
    assert (command.code, command.flag, command.opaque) == (case.code, case.flag, case.opaque)
    assert command.remark == (case.remark or None if serialize_type else case.remark)
    assert ext_fields_of(command) == (case.ext_fields or {})
    assert (command.version, command.language_code) == (479, LanguageCode.JAVA)
    assert (command.serialize_type, command.body) == (serialize_type, BODY)
    assert (command.is_response, command.is_oneway) == (case.flag == 1, case.flag == 2)
    assert decoder.needs_more


@pytest.mark.parametrize("serialize_type", [0, 1])
@pytest.mark.parametrize("case", [case for case in CASES if case.flag == 1])
def test_an_answer_is_what_java_writes(case: Case, serialize_type: int) -> None:
    request = Command(code=1, opaque=case.opaque, serialize_type=serialize_type)
    response = Response(case.code, case.remark, case.ext_fields, BODY)
    assert encode_response(request, response) + BODY == stream_of(case, serialize_type)
    assert encode_response(request, msgspec.structs.replace(response, body=memoryview(BODY))) + BODY == stream_of(
        case, serialize_type
    )


@pytest.mark.parametrize("serialize_type", [0, 1])
@pytest.mark.parametrize("case", [case for case in CASES if case.flag != 1])
def test_a_request_is_what_java_writes(case: Case, serialize_type: int) -> None:
    written = encode_request(
        case.code, case.ext_fields, opaque=case.opaque, body=BODY, oneway=case.flag == 2, serialize_type=serialize_type
    )
    assert written == stream_of(case, serialize_type)


def test_every_recorded_binary_header_is_decoded_and_encoded_alike() -> None:
    recorded = [frame.binary for frame in recorded_frames() if frame.binary]
    assert recorded
    for data in recorded:
        command = decode_command((1, data, b""))
        again = encode_request(
            command.code, ext_fields_of(command), opaque=command.opaque, oneway=command.is_oneway, serialize_type=1,
            version=command.version,
        )  # fmt: skip
        assert again[8:] == data


def test_every_recorded_answer_is_encoded_with_equal_values() -> None:
    recorded = [frame for frame in recorded_frames() if frame.header and frame.header["flag"] == 1]
    assert len(recorded) > 500
    for frame in recorded:
        header = frame.header
        request = Command(code=0, opaque=header["opaque"])
        response = Response(header["code"], header.get("remark"), header.get("extFields"), frame.body)
        ((serialize_type, ours, body),) = FrameDecoder().feed(encode_response(request, response) + frame.body)
        assert (serialize_type, body) == (0, frame.body)
        assert json.loads(ours) == header | {"version": 479}


@pytest.mark.parametrize("header", [
    "", "[]", "null", "{}", '{"code":33', '{"code":33}x', "{code:33}", '{"code":null}',
    '{"code":33,"opaque":99999999999}', '{"code":2147483648}', '{"code":33.7}', '{"code":"x"}',
    '{"code":33,"remark":5}', '{"code":33,"language":2147483648}', '{"code":33,"language":-2147483649}',
    '{"code":33,"language":1180591620717411303424}', '{"code":33,"extFields":' + "[" * 100_000, "\x16\x03\x01",
], ids=lambda header: header[:30])  # fmt: skip
@pytest.mark.untraced  # at the end of the stack a tracer fails itself
def test_what_is_no_command_is_refused(header: str) -> None:
    with pytest.raises(BadCommand, match=r"^the header is no command: "):
        decode_command(json_frame(header))


# Written by RemotingCommand.encode() of 5.5.0.
JAVA_JSON = bytes.fromhex(
    "000000680000005f7b22636f6465223a302c22666c6167223a312c226c616e6775616765223a224a415641222c226f7061717565223a372c2273657269"
    "616c697a655479706543757272656e74525043223a224a534f4e222c2276657273696f6e223a3437397d68656c6c6f"
)
JAVA_BINARY = bytes.fromhex(
    "0000002c0100002300000001df0000000700000001000000000000000e00066f666673657400000002313268656c6c6f"
)

FRAMES = [
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
            b"GET / HTTP/1.1", b"POST /api", b"HEAD /metrics", b"OPTIONS * ", b"DELETE /x", b"PRI * HTTP/2.0",
        )
    ),
    (b"HTTP/1.1 400"[:8].hex(), BadFrame, HTTP_ANSWER),
    (b"PROXY TCP4 "[:8].hex(), FrameTooLarge, "a frame of 1347571548 bytes, more than the limit of 16777216"),
]  # fmt: skip


def in_pieces(data, size):
    return (data[start : start + size] for start in range(0, len(data), size))


@given(st.lists(st.sampled_from(FRAMES[:-1]), max_size=6), st.lists(st.integers(0, 300), max_size=12))
def test_any_split_of_the_stream_gives_the_same_frames(cases, cuts) -> None:
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


REFUSED = b'{"code":34}'
FLOOD = bytes.fromhex("00000077 0000000b") + REFUSED + b"x" * 104


@pytest.mark.parametrize("size", [1, 8, 19, 100])
def test_a_body_that_is_not_wanted_is_thrown_away_and_the_frame_handed_out_with_its_length(size: int) -> None:
    asked = []

    def skips(serialize_type: int, header: bytes) -> bool:
        asked.append((serialize_type, header))
        return header == REFUSED

    decoder = FrameDecoder(body_limit=100, skips=skips)
    frames = []
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


JAVA = bytes.fromhex("00000001df0000000700000001000000000000000e00066f6666736574000000023132")
START = "0001 00 0000 00000000 00000000 "


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
            decode_command((1, bytes.fromhex(data) if isinstance(data, str) else data, b""))
        assert str(caught.value) == f"binary header: {part} takes {wanted} bytes, but {left} are left for it"
