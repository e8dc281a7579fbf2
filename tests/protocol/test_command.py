"""Commands: one table of what Java writes drives encoder and decoder; then recorded headers; then what goes wrong."""

import json
from typing import Any, NamedTuple

import msgspec
import pytest

from golden_frames import recorded_frames
from protocol.codes import LanguageCode
from protocol.command import (
    Command,
    Response,
    decode_command,
    encode_request,
    encode_response,
    ext_fields_of,
)
from protocol.errors import BadCommand, FrameTooLarge
from protocol.frame import Frame, FrameDecoder

BODY = b"hello"


class Case(NamedTuple):
    """What RemotingCommand.encode() of 5.5.0 wrote for a command with the body `hello`, in both forms."""

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


def json_frame(header: str | bytes | dict[str, Any], body: bytes = b"") -> Frame:
    if isinstance(header, dict):
        header = json.dumps(header)
    return (0, header if isinstance(header, bytes) else header.encode(), body)


# ---------------------------------------------------------------------- the table


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
        case.code,
        case.ext_fields,
        opaque=case.opaque,
        body=BODY,
        oneway=case.flag == 2,
        serialize_type=serialize_type,
    )
    assert written == stream_of(case, serialize_type)


# ---------------------------------------------------------------------- recorded headers


def test_every_recorded_binary_header_is_decoded_and_encoded_alike() -> None:
    recorded = [frame.binary for frame in recorded_frames() if frame.binary]
    assert recorded
    for data in recorded:
        command = decode_command((1, data, b""))
        again = encode_request(
            command.code,
            ext_fields_of(command),
            opaque=command.opaque,
            oneway=command.is_oneway,
            serialize_type=1,
            version=command.version,
        )
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


# ---------------------------------------------------------------------- headers of commands


@pytest.mark.parametrize(
    "header",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"code":33',
        '{"code":33}x',
        "{code:33}",
        '{"code":null}',
        '{"code":33,"opaque":99999999999}',
        '{"code":2147483648}',
        '{"code":33.7}',
        '{"code":"x"}',
        '{"code":33,"remark":5}',
        '{"code":33,"language":2147483648}',
        '{"code":33,"language":-2147483649}',
        '{"code":33,"language":1180591620717411303424}',
        '{"code":33,"extFields":' + "[" * 100_000,
        "\x16\x03\x01",
    ],
    ids=lambda header: header[:30],
)
@pytest.mark.untraced  # at the end of the stack a tracer fails itself
def test_what_is_no_command_is_refused(header: str) -> None:
    with pytest.raises(BadCommand, match=r"^the header is no command: "):
        decode_command(json_frame(header))


def test_a_language_comes_by_name_or_by_number() -> None:
    for language, code in [
        ('"GO"', LanguageCode.GO),
        ('"NOPE"', LanguageCode.OTHER),
        ("12", LanguageCode.RUST),
        ("-1", LanguageCode.OTHER),
        ("99", LanguageCode.OTHER),
        ("null", LanguageCode.OTHER),
    ]:
        assert decode_command(json_frame(f'{{"code":1,"language":{language}}}')).language_code is code


# ---------------------------------------------------------------------- answers


def test_a_header_too_long_for_its_length_field_is_refused() -> None:
    for response in (Response(1, "x" * 2**24), Response(0, None, {"x": "x" * 2**24})):
        with pytest.raises(FrameTooLarge):
            encode_response(Command(code=1), response)
