"""Frames, commands, headers and bodies: what Java writes, then what was recorded, then what goes wrong."""

import inspect
import json
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from body_samples import SAMPLES
from broker.service.dispatcher import handled_methods
from broker.service.request_families import PROCESSORS
from golden_frames import parse_java_json, recorded_frames
from protocol import bodies, headers
from protocol.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from protocol.command import (
    Command,
    Response,
    decode_command,
    decode_header,
    encode_request,
    encode_response,
    ext_fields_of,
)
from protocol.errors import BadCommand, BadFrame, BadHeader, FrameTooLarge, RequestByHttp
from protocol.frame import FrameDecoder
from protocol.header_fields import I32, I64, field_plans, header_from_texts
from protocol.headers import RequestHeader

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
        again = encode_request(command.code, ext_fields_of(command), opaque=command.opaque, oneway=command.is_oneway,
                               serialize_type=1, version=command.version)  # fmt: skip
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
    ((0, JAVA_JSON[8:-5], b"hello"), JAVA_JSON), ((1, JAVA_BINARY[8:-5], b"hello"), JAVA_BINARY),
    ((0, b"{}", b""), bytes.fromhex("00000006 00000002") + b"{}"), ((0, b"", b""), bytes.fromhex("00000004 00000000")),
    ((0, b"", b"body"), bytes.fromhex("00000008 00000000") + b"body"),
    ((255, b"h", b"b"), bytes.fromhex("00000006 ff000001") + b"hb"),
    ((0, b"h" * 70_000, b"b" * 70_000), bytes.fromhex("000222e4 00011170") + b"h" * 70_000 + b"b" * 70_000),
]  # fmt: skip

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
    expected = [(REFUSED, 104, b""), (JAVA_JSON[8:-5], 5, b"hello"), (REFUSED, 104, b"")]
    assert [(header, len(body), bytes(body)) for _, header, body in frames] == expected
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


# Fields as the Java classes of 5.5.0 declare them; * for @CFNotNull, except where a client may send no field at all
# (GetAllTopicConfig, GetAllSubscriptionGroup) and where Java cannot do without (topic of QueryConsumeQueue).
FIELDS = {
    "EmptyRequestHeader": "",
    "QueryMessageRequestHeader": "topic* key* maxNum* beginTimestamp* endTimestamp* indexType lastKey "
    "_UNIQUE_KEY_QUERY",
    "ViewMessageRequestHeader": "offset* topic",
    "PullMessageRequestHeader": "consumerGroup* topic* queueId* queueOffset* maxMsgNums* sysFlag* commitOffset* "
    "suspendTimeoutMillis* subVersion* subscription expressionType maxMsgBytes liteTopic requestSource "
    "proxyFrowardClientId",
    "QueryConsumeQueueRequestHeader": "topic* queueId index count consumerGroup",
    "GetMaxOffsetRequestHeader": "topic* queueId* committed",
    "GetMinOffsetRequestHeader": "topic* queueId*",
    "SearchOffsetRequestHeader": "topic* queueId* timestamp* boundaryType liteTopic",
    "GetEarliestMsgStoretimeRequestHeader": "topic* queueId*",
    "QueryConsumerOffsetRequestHeader": "consumerGroup* topic* queueId* setZeroIfNotFound",
    "UpdateConsumerOffsetRequestHeader": "consumerGroup* topic* queueId* commitOffset*",
    "GetRouteInfoRequestHeader": "topic* acceptStandardJsonOnly",
    "GetTopicStatsInfoRequestHeader": "topic*",
    "GetTopicConfigRequestHeader": "topic*",
    "GetAllTopicConfigRequestHeader": "topicSeq dataVersion maxTopicNum",
    "GetTopicsByClusterRequestHeader": "cluster*",
    "QueryTopicConsumeByWhoRequestHeader": "topic*",
    "QueryTopicsByConsumerRequestHeader": "group*",
    "GetConsumerListByGroupRequestHeader": "consumerGroup*",
    "GetConsumerConnectionListRequestHeader": "consumerGroup*",
    "GetProducerConnectionListRequestHeader": "producerGroup*",
    "GetConsumeStatsRequestHeader": "consumerGroup* topic topicList",
    "GetConsumeStatsInBrokerHeader": "isOrder*",
    "QueryConsumeTimeSpanRequestHeader": "topic* group*",
    "QuerySubscriptionByConsumerRequestHeader": "group* topic",
    "GetAllSubscriptionGroupRequestHeader": "groupSeq dataVersion maxGroupNum",
    "GetSubscriptionGroupConfigRequestHeader": "group*",
    "UnregisterClientRequestHeader": "clientID* producerGroup consumerGroup",
    "GetConsumerRunningInfoRequestHeader": "consumerGroup* clientId* jstackEnable",
    "ConsumeMessageDirectlyResultRequestHeader": "consumerGroup* clientId msgId brokerName topic topicSysFlag "
    "groupSysFlag",
    "ViewBrokerStatsDataRequestHeader": "statsName* statsKey*",
    "GetKVConfigRequestHeader": "namespace* key*",
    "GetKVListByNamespaceRequestHeader": "namespace*",
}

HEADER_TYPES = {
    name: member
    for name, member in inspect.getmembers(headers, inspect.isclass)
    if issubclass(member, RequestHeader) and member is not RequestHeader
}

# What each recorded request carries, by what answers it.
TYPE_OF_CODE = {int(code): header for family in PROCESSORS for code, header, _ in handled_methods(family)}
# Fields that any request may carry and no header class lists, and those of signed requests.
COMMON = {"ns", "nsd", "bname", "lo", "oway", "ReqT", "AccessKey", "Signature"}

# What a broker sends, to its name server and to consumers.
IGNORED = {RequestCode.REGISTER_BROKER, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED}


def recorded_requests():
    found = []
    for frame in recorded_frames():
        if frame.binary:
            command = decode_command((1, frame.binary, frame.body))
            header = ext_fields_of(command)
        elif frame.header["flag"] & 1:
            continue
        else:
            command = decode_command((0, msgspec.json.encode(frame.header), frame.body))
            header = frame.header.get("extFields", {})
        if not command.is_response and command.code not in IGNORED:
            found.append((command, header))
    return found


def as_texts(header: RequestHeader) -> dict[str, str]:
    texts = {}
    for field in msgspec.structs.fields(header):
        value = getattr(header, field.name)
        if value is not None:
            texts[field.encode_name] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def test_a_header_has_the_fields_of_its_java_class() -> None:
    # The table lists every header.
    assert set(FIELDS) == set(HEADER_TYPES)
    # A header has the fields of its java class.
    for name in FIELDS:
        fields = field_plans(HEADER_TYPES[name])
        assert {field.wire_name + "*" * field.is_required for field in fields} == set(FIELDS[name].split())


def test_every_recorded_request_is_decoded_field_by_field() -> None:
    requests = recorded_requests()
    assert len(requests) > 600
    assert len({command.code for command, _ in requests}) > 30
    for command, recorded in requests:
        texts = as_texts(decode_header(command, TYPE_OF_CODE.get(command.code, headers.EmptyRequestHeader)))
        known = {name: text for name, text in recorded.items() if name not in COMMON}
        assert {name: texts.get(name) for name in known} == known


class Choice(StrEnum):
    LOWER = "LOWER"
    UPPER = "UPPER"


class Needed(msgspec.Struct, rename="camel"):
    some_int: I32
    some_long: I64
    some_text: str


class Optional(msgspec.Struct, rename="camel"):
    some_int: I32 | None = None
    some_long: I64 = -1
    some_text: str | None = None
    some_flag: bool = True
    other_flag: bool | None = None
    choice: Choice = Choice.LOWER


GOOD = {"someInt": "1", "someLong": "2", "someText": "x"}

# (text, Integer.parseInt, Long.parseLong): None where Java leaves the field null.
NUMBERS = [
    ("1", 1, 1), ("+1", 1, 1), ("-0", 0, 0), ("007", 7, 7), (" 1", None, None), ("1 ", None, None), ("1_0", None, None),
    ("1e3", None, None), ("1.0", None, None), ("0x10", None, None), ("--1", None, None), ("", None, None),
    ("true", None, None), ("2147483647", 2**31 - 1, 2**31 - 1), ("2147483648", None, 2**31),
    ("-2147483648", -(2**31), -(2**31)), ("9223372036854775807", None, 2**63 - 1), ("9223372036854775808", None, None),
    ("-9223372036854775808", None, -(2**63)), ("9" * 100_000, None, None),
]  # fmt: skip


def test_numbers_are_what_java_parses() -> None:
    for text, as_int, as_long in NUMBERS:
        for name, expected, bits in (("someInt", as_int, 32), ("someLong", as_long, 64)):
            if expected is None:
                with pytest.raises(BadHeader) as caught:
                    header_from_texts(Needed, GOOD | {name: text})
                assert (caught.value.field, caught.value.value) == (name, text)
                assert caught.value.reason == f"is no {bits}-bit integer"
            else:
                header = header_from_texts(Needed, GOOD | {name: text})
                assert getattr(header, "some_" + name[4:].lower()) == expected


def test_an_empty_number_or_boolean_is_absent_but_an_empty_text_is_a_text() -> None:
    empty = dict.fromkeys(("someInt", "someLong", "someText", "someFlag", "otherFlag", "choice"), "")
    assert header_from_texts(Optional, empty) == Optional(some_text="")


RESPONSE_FLAG = 1

# Those that the file below does not list, as the Java classes of the same names in 5.5.1 have them.
CONSTANTS = [(RequestCode, "DELETE_TOPIC_IN_BROKER_LIST", 5002), (RequestCode, "DELETE_SUBSCRIPTION_GROUP_LIST", 5003),
             (LanguageCode, "JAVA", 0), (LanguageCode, "GO", 9), (LanguageCode, "NODE_JS", 13),
             (SerializeType, "JSON", 0), (SerializeType, "ROCKETMQ", 1)]  # fmt: skip

JAVA_CODES = Path(__file__).parents[1] / "data" / "java-codes.tsv"
"""Class, name and value of each constant: what `javap -constants` prints of the jar of remoting 5.5.0, where
RemotingSysResponseCode is what ResponseCode extends, and at the end the four of 4.9.8 that 5.5.0 has no more."""

NEVER_ON_THE_WIRE = set(range(1014, 1019))
"""What controllers say to themselves, in the log that they replicate."""


@pytest.mark.parametrize(
    ("kind", "classes"), [(RequestCode, {"RequestCode"}), (ResponseCode, {"ResponseCode", "RemotingSysResponseCode"})]
)
def test_the_codes_are_all_constants_of_the_java_classes(kind, classes) -> None:
    rows = [line.split("\t") for line in JAVA_CODES.read_text().splitlines()]
    java = {name: int(value) for class_, name, value in rows if class_ in classes}
    assert len(java) > 60
    java |= {name: value for newer, name, value in CONSTANTS if newer is kind}
    expected = {name: value for name, value in java.items() if kind is ResponseCode or value not in NEVER_ON_THE_WIRE}
    assert {name: int(code) for name, code in kind.__members__.items()} == expected


def test_every_recorded_code_and_language_is_known() -> None:
    headers = [frame.header for frame in recorded_frames() if frame.header]
    assert {bool(header["flag"] & RESPONSE_FLAG) for header in headers} == {True, False}
    for header in headers:
        kind = ResponseCode if header["flag"] & RESPONSE_FLAG else RequestCode
        assert header["code"] in list(kind)
        assert header["language"] in LanguageCode.__members__


READ_ALONE = {bodies.ConsumerOffsetTable, bodies.SubscriptionGroupTable, bodies.TopicConfigTable, bodies.TopicOffsets,
              bodies.TopicQueues}  # fmt: skip
"""What our client reads of answers that `storage.layout.store_config` writes."""

# Which struct reads and writes the recorded body of a code, request or answer.
KIND_OF_CODE = {34: bodies.HeartbeatData, **dict.fromkeys((41, 42), bodies.LockBatchRequestBody)}
KIND_OF_CODE[46] = bodies.CheckClientRequestBody
KIND_OF_ANSWER = {28: bodies.KVTable, 38: bodies.GetConsumerListByGroupResponseBody, 41: bodies.LockBatchResponseBody,
                  105: bodies.TopicRouteData, 106: bodies.ClusterInfo, 206: bodies.TopicList, 300: bodies.GroupList,
                  305: bodies.TopicList, 315: bodies.BrokerStatsData, 321: bodies.QueryConsumeQueueResponseBody,
                  907: bodies.HARuntimeInfo}  # fmt: skip


def test_every_struct_is_encoded_and_equals_its_sample() -> None:
    # A body equals the sample as values.
    for value, text in SAMPLES:
        assert parse_java_json(bodies.encode_json(value).decode()) == parse_java_json(text)
    # Every struct is encoded somewhere above.
    seen: set[type] = set()
    todo = [value for value, _ in SAMPLES]
    while todo:
        value = todo.pop()
        if isinstance(value, msgspec.Struct):
            seen.add(type(value))
            todo += [getattr(value, name) for name in value.__struct_fields__]
        elif isinstance(value, dict | list):
            todo += value.values() if isinstance(value, dict) else value
    within_raw = {bodies.TopicOffset, bodies.OffsetWrapper}
    structs = {
        member
        for name, member in inspect.getmembers(bodies, inspect.isclass)
        if member.__module__ == bodies.__name__ and not name.startswith("_")
    }
    assert structs == seen | within_raw | READ_ALONE | {bodies.CheckClientRequestBody}


def coded_frames():
    """Each recorded frame with a header, the code of the request that it is or answers, and whether it answers it."""
    codes = {}
    for frame in recorded_frames():
        if frame.header and frame.header["flag"] & 1:
            yield frame, codes.get((frame.destination, frame.source, frame.header["opaque"]), 0), True
        elif frame.header:
            codes[frame.source, frame.destination, frame.header["opaque"]] = frame.header["code"]
            yield frame, frame.header["code"], False


def test_what_our_client_reads_alone_is_read_from_recorded_answers() -> None:
    kinds = {RequestCode.GET_ALL_TOPIC_CONFIG: bodies.TopicConfigTable,
             RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: bodies.SubscriptionGroupTable,
             RequestCode.GET_TOPIC_STATS_INFO: bodies.TopicOffsets}  # fmt: skip
    answers = [(code, frame.body) for frame, code, is_answer in coded_frames() if is_answer and frame.body]
    found = {code: bodies.decode_json(body, kinds[code]) for code, body in answers if code in kinds}
    topics, groups, offsets = (found[code] for code in kinds)
    assert topics.topic_config_table["TopicTest"] == bodies.TopicQueues(4, 4, {})
    assert topics.topic_config_table["SCHEDULE_TOPIC_XXXX"] == bodies.TopicQueues(18, 18, {})
    assert {"CG_TAG", "CG_SQL", "TOOLS_CONSUMER"} <= groups.subscription_group_table.keys()
    assert offsets.by_queue().keys() == {0, 1, 2, 3}


def test_recorded_bodies_are_read_and_written_with_equal_values() -> None:
    coded = [(KIND_OF_ANSWER if answers else KIND_OF_CODE, code, frame.body) for frame, code, answers in coded_frames()]
    recorded = [(kinds[code], body) for kinds, code, body in coded if code in kinds and body]
    assert {kind for kind, _ in recorded} == {*KIND_OF_CODE.values(), *KIND_OF_ANSWER.values()}
    for kind, body in recorded:
        expected = parse_java_json(body.decode())
        if kind is bodies.CheckClientRequestBody:
            expected["namespace"] = None
        assert parse_java_json(bodies.encode_json(bodies.decode_json(body, kind)).decode()) == expected


def test_a_cpp_heartbeat_names_its_enums_by_number() -> None:
    consumer = {"groupName": "G", "consumeType": 1, "messageModel": 1, "consumeFromWhere": 4, "subscriptionDataSet": []}
    found = bodies.decode_json(
        json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode(), bodies.HeartbeatData
    )
    assert found.consumer_data_set == [
        bodies.ConsumerData("G", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET")
    ]


def test_go_heartbeats_have_nulls_and_quoted_hashes() -> None:
    subscription = {"topic": "T", "subString": "TagA", "tagsSet": ["TagA"], "codeSet": ["2598919"], "subVersion": 1}
    data = {
        "clientID": "c",
        "producerDataSet": None,
        "consumerDataSet": [
            {"groupName": "G", "subscriptionDataSet": [subscription, None]},
            {"groupName": "H", "subscriptionDataSet": None, "unitMode": None},
        ],
    }
    found = bodies.decode_json(json.dumps(data).encode(), bodies.HeartbeatData)
    assert found.producer_data_set == []
    assert [consumer.group_name for consumer in found.consumer_data_set] == ["G", "H"]
    (kept,) = found.consumer_data_set[0].subscription_data_set
    assert (kept.code_set, kept.tags_set, kept.expression_type) == ([2598919], ["TagA"], "TAG")


@pytest.mark.untraced  # at the end of the stack a tracer fails itself
@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":' * 100_000, b'{"clientID":' + b"[" * 400 + b"]" * 400 + b"}"])
def test_deep_bodies_are_refused(data: bytes) -> None:
    with pytest.raises(BadCommand):
        bodies.decode_json(data, bodies.HeartbeatData)
