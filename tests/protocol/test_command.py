"""Commands: one table of what Java writes drives encoder and decoder; then recorded headers; then what goes wrong."""

import json
from typing import Any, NamedTuple

import msgspec
import pytest

from protocol.codes import LanguageCode, RequestCode
from protocol.command import (
    Command,
    Response,
    decode_command,
    decode_header,
    decode_response,
    encode_request,
    encode_response,
    ext_fields_of,
)
from protocol.errors import BadCommand, BadHeader, FrameTooLarge
from protocol.frame import Frame, FrameDecoder
from protocol.headers import (
    EmptyRequestHeader,
    GetMaxOffsetRequestHeader,
    GetRouteInfoRequestHeader,
    PullMessageRequestHeader,
    QueryMessageRequestHeader,
    SearchOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from recorded_headers import recorded_frames

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


def request_with(fields: str | bytes) -> Command:
    """A request whose `extFields` is this text."""
    text = fields if isinstance(fields, bytes) else fields.encode("utf-8", "surrogatepass")
    return decode_command(json_frame(b'{"code":12,"opaque":3,"extFields":%b}' % text))


def with_fields(**fields: object) -> Command:
    return request_with(json.dumps(fields))


# ---------------------------------------------------------------------- the table


@pytest.mark.parametrize("serialize_type", [0, 1])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("piece", [1, 7, 10_000])
def test_what_java_writes_is_decoded_in_any_pieces(case: Case, serialize_type: int, piece: int) -> None:
    stream = stream_of(case, serialize_type) + b"\0\0"
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


def test_every_recorded_json_header_is_decoded() -> None:
    recorded = [frame for frame in recorded_frames() if frame.header]
    assert len(recorded) > 1_000
    for frame in recorded:
        command = decode_command(json_frame(frame.header, frame.body))
        expected = {
            name: frame.header.get(name) for name in ("code", "flag", "opaque", "version", "language", "remark")
        }
        assert {name: getattr(command, name) for name in expected} == expected
        assert ext_fields_of(command) == frame.header.get("extFields", {})
        assert command.body == frame.body
        assert command.language_code is LanguageCode.JAVA


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


def test_an_answer_in_the_binary_form_says_the_same() -> None:
    recorded = [frame for frame in recorded_frames() if frame.header and frame.header["flag"] == 1]
    assert len(recorded) > 500
    for frame in recorded:
        header = frame.header
        request = Command(code=0, opaque=header["opaque"], serialize_type=1)
        response = Response(header["code"], header.get("remark"), header.get("extFields"), frame.body)
        command = decode_response(FrameDecoder().feed(encode_response(request, response) + frame.body)[0])
        assert (command.code, command.opaque, command.flag) == (header["code"], header["opaque"], 1)
        assert command.remark == (header.get("remark") or None)
        assert ext_fields_of(command) == header.get("extFields", {})


# ---------------------------------------------------------------------- headers of commands


@pytest.mark.parametrize(
    ("header", "code", "opaque"),
    [
        ('{"code":"33","opaque":7}', 33, 7),
        ('{"code":33,"extFields":null,"remark":null,"language":null}', 33, 0),
        ('{"code":33,"language":9,"x":[{}]}', 33, 0),
        ('{"code":1,"code":2}', 2, 0),
        (' { "code" : 33 ,\n"opaque":-1 } ', 33, -1),
        ('{"code":33,"remark":"","suspended":false,"serializeTypeCurrentRPC":"ROCKETMQ"}', 33, 0),
        ('{"code":33,"body":"x","serializeType":1,"serialize_type":1}', 33, 0),
    ],
)
def test_a_header_is_read_as_leniently_as_java_reads_it(header: str, code: int, opaque: int) -> None:
    command = decode_command(json_frame(header, BODY))
    assert (command.code, command.opaque) == (code, opaque)
    assert (command.serialize_type, command.body) == (0, BODY)
    assert ext_fields_of(command) == {}
    assert decode_header(command, EmptyRequestHeader) == EmptyRequestHeader()


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


@pytest.mark.parametrize(("raw", "remark"), [(b"a\xff", "a\ufffd"), (b"\\ud800b", "?b"), (b"\xed\xa0\x80", "\ufffd")])
def test_malformed_texts_of_a_header_are_replaced_as_in_java(raw: bytes, remark: str) -> None:
    command = decode_command(json_frame(b'{"code":1,"opaque":5,"remark":"%b","extFields":{"a":"1"}}' % raw))
    assert (command.opaque, command.remark, ext_fields_of(command)) == (5, remark, {"a": "1"})


def test_a_third_form_of_header_is_refused() -> None:
    with pytest.raises(BadCommand, match="serialize type 2"):
        decode_command((2, b"{}", b""))


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ('"GO"', LanguageCode.GO),
        ('"NOPE"', LanguageCode.OTHER),
        ("12", LanguageCode.RUST),
        ("-1", LanguageCode.OTHER),
        ("99", LanguageCode.OTHER),
        ("null", LanguageCode.OTHER),
    ],
)
def test_a_language_comes_by_name_or_by_number(language: str, code: LanguageCode) -> None:
    assert decode_command(json_frame(f'{{"code":1,"language":{language}}}')).language_code is code


# ---------------------------------------------------------------------- fields

QUERY = {"topic": "T", "key": "K", "maxNum": "64", "beginTimestamp": "0", "endTimestamp": "9223372036854775807"}


def test_fields_arrive_typed() -> None:
    header = decode_header(
        with_fields(**QUERY, _UNIQUE_KEY_QUERY="true", indexType="U", nsd="x"), QueryMessageRequestHeader
    )
    assert header == QueryMessageRequestHeader(
        topic="T",
        key="K",
        max_num=64,
        begin_timestamp=0,
        end_timestamp=2**63 - 1,
        index_type="U",
        unique_key_query=True,
    )


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_both_forms_give_the_same_header(serialize_type: int) -> None:
    request = encode_request(RequestCode.QUERY_MESSAGE, QUERY, opaque=1, serialize_type=serialize_type)
    header = decode_header(decode_command(FrameDecoder().feed(request)[0]), QueryMessageRequestHeader)
    assert (header.topic, header.key, header.max_num, header.end_timestamp) == ("T", "K", 64, 2**63 - 1)


def test_numbers_and_booleans_of_node_and_cpp_clients_are_taken() -> None:
    command = with_fields(
        consumerGroup="G",
        topic=5,
        queueId=0,
        queueOffset=10**18,
        maxMsgNums=32,
        sysFlag=2,
        commitOffset=-1,
        suspendTimeoutMillis=20000,
        subVersion=0,
        subscription=True,
        Signature="",
        AccessKey="",
        unitMode=False,
    )
    header = decode_header(command, PullMessageRequestHeader)
    assert (header.topic, header.queue_id, header.queue_offset, header.commit_offset) == ("5", 0, 10**18, -1)
    assert header.subscription == "true"


@pytest.mark.parametrize("missing", QUERY)
def test_a_missing_field_is_named(missing: str) -> None:
    fields = {name: text for name, text in QUERY.items() if name != missing}
    for absent in (fields, {**fields, missing: None}):
        with pytest.raises(BadHeader) as caught:
            decode_header(with_fields(**absent), QueryMessageRequestHeader)
        assert str(caught.value) == f"{missing} is missing"


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("maxNum", "abc", "maxNum: 'abc' is no 32-bit integer"),
        ("maxNum", "", "maxNum: '' is no 32-bit integer"),
        ("maxNum", " 64", "maxNum: ' 64' is no 32-bit integer"),
        ("maxNum", "2147483648", "maxNum: '2147483648' is no 32-bit integer"),
        ("maxNum", 2**31, "maxNum: '2147483648' is no 32-bit integer"),
        ("maxNum", 1.5, "maxNum: '1.5' is no 32-bit integer"),
        ("maxNum", True, "maxNum: 'true' is no 32-bit integer"),
        ("maxNum", [1], "maxNum: '[\"1\"]' is no 32-bit integer"),
        ("beginTimestamp", "9223372036854775808", "beginTimestamp: '9223372036854775808' is no 64-bit integer"),
        ("endTimestamp", "now", "endTimestamp: 'now' is no 64-bit integer"),
    ],
)
def test_a_malformed_field_is_named_with_its_value(field: str, value: object, sentence: str) -> None:
    with pytest.raises(BadHeader) as caught:
        decode_header(with_fields(**QUERY | {field: value}), QueryMessageRequestHeader)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(("text", "number"), [("+5", 5), ("007", 7), ("-0", 0), ("-9223372036854775808", -(2**63))])
def test_numbers_are_taken_as_java_parses_them(text: str, number: int) -> None:
    assert decode_header(with_fields(offset=text), ViewMessageRequestHeader).offset == number


@pytest.mark.parametrize(
    ("raw", "expected"),
    [('"true"', True), ('"TRUE"', True), ('"tRuE"', True), ("true", True)]
    + [(raw, False) for raw in ('"false"', "false", '"1"', "1", '"yes"', '""', "null", "0", '" true"')],
)
def test_only_true_in_any_case_is_true(raw: str, expected: bool) -> None:
    fields = json.dumps(QUERY)[:-1] + f',"_UNIQUE_KEY_QUERY":{raw}}}'
    assert decode_header(request_with(fields), QueryMessageRequestHeader).unique_key_query is expected
    route = decode_header(request_with(f'{{"topic":"T","acceptStandardJsonOnly":{raw}}}'), GetRouteInfoRequestHeader)
    assert bool(route.accept_standard_json_only) is expected


def test_a_key_that_looks_like_the_flag_does_not_set_it() -> None:
    fields = QUERY | {"key": '"_UNIQUE_KEY_QUERY":"true"', "_UNIQUE_KEY_QUERY": "1"}
    assert decode_header(with_fields(**fields), QueryMessageRequestHeader).unique_key_query is False


@pytest.mark.parametrize(
    ("fields", "committed"),
    [({}, True), ({"committed": "true"}, True), ({"committed": "false"}, False), ({"committed": "1"}, False)],
)
def test_a_boolean_may_be_true_by_default(fields: dict[str, str], committed: bool) -> None:
    header = decode_header(with_fields(topic="T", queueId="0", **fields), GetMaxOffsetRequestHeader)
    assert header.committed is committed


@pytest.mark.parametrize(("text", "name"), [("UPPER", "UPPER"), ("upper", "UPPER"), ("x", "LOWER"), ("", "LOWER")])
def test_a_boundary_is_taken_as_java_takes_it(text: str, name: str) -> None:
    command = with_fields(topic="T", queueId="0", timestamp="1", boundaryType=text)
    assert decode_header(command, SearchOffsetRequestHeader).boundary_type.name == name


def test_malformed_texts_become_what_java_makes_of_them() -> None:
    raw = b'{"topic":"T\xff","offset":"1"}'
    assert decode_header(request_with(raw), ViewMessageRequestHeader).topic == "T\ufffd"
    assert ext_fields_of(request_with(raw)) == {"topic": "T\ufffd", "offset": "1"}
    assert decode_header(request_with('{"topic":"\\ud800","offset":"1"}'), ViewMessageRequestHeader).topic == "?"


@pytest.mark.parametrize("raw", ["[]", '"x"', "5"])
def test_fields_that_are_no_object_are_refused(raw: str) -> None:
    for decode in (ext_fields_of, lambda command: decode_header(command, EmptyRequestHeader)):
        with pytest.raises(BadHeader, match=r"^extFields: .* is no JSON object$"):
            decode(request_with(raw))


# ---------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    "response",
    [
        Response(1, "bad \udcff"),
        Response(0, None, {"k\ud800": "v\udfff"}),
        Response(0, "\ud800", {"k": "\ud800"}),
    ],
)
@pytest.mark.parametrize("serialize_type", [0, 1])
def test_a_lone_surrogate_is_answered_as_a_question_mark(response: Response, serialize_type: int) -> None:
    request = Command(code=1, serialize_type=serialize_type)
    command = decode_response(FrameDecoder().feed(encode_response(request, response))[0])
    texts = (command.remark or "") + "".join(f"{name}{text}" for name, text in ext_fields_of(command).items())
    assert "?" in texts
    assert texts.isascii()


def test_texts_are_escaped_in_every_place() -> None:
    odd = 'a"b\\c\n\0%d{}%b'
    for response in (Response(0, None, {odd: odd}), Response(1, odd, {odd: odd}), Response(0, odd)):
        command = decode_response(FrameDecoder().feed(encode_response(Command(code=1, opaque=9), response))[0])
        assert (command.opaque, command.remark) == (9, response.remark)
        assert ext_fields_of(command) == (response.ext_fields or {})


def test_a_header_too_long_for_its_length_field_is_refused() -> None:
    for response in (Response(1, "x" * 2**24), Response(0, None, {"x": "x" * 2**24})):
        with pytest.raises(FrameTooLarge):
            encode_response(Command(code=1), response)


def test_a_key_too_long_for_the_binary_form_is_refused() -> None:
    response = Response(0, None, {"k" * 32_768: "v"})
    with pytest.raises(BadCommand, match="more than 32767"):
        encode_response(Command(code=1, serialize_type=1), response)
    assert encode_response(Command(code=1), response)


def test_a_request_code_above_i16_needs_the_json_form() -> None:
    assert RequestCode.POP_MESSAGE > 2**15
    command = decode_command(FrameDecoder().feed(encode_request(RequestCode.POP_MESSAGE, opaque=1))[0])
    assert command.code == RequestCode.POP_MESSAGE
    with pytest.raises(BadCommand):
        encode_request(RequestCode.POP_MESSAGE, opaque=1, serialize_type=1)
