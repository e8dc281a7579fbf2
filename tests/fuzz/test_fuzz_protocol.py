"""Any bytes give frames, a command, a header and a body, or a `ProtocolError` of the documented kind; nothing else.

The bulk comes from a seeded generator, which changes recorded frames in a few places at some microseconds each;
hypothesis then looks where it finds something new, and shrinks what it finds.
"""

import inspect
import json
import random
from collections.abc import Iterator
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changed_headers import EDGES, HEADERS, changed
from frame_garbage import encode_frame_prefix
from protocol import headers
from protocol.bodies import CheckClientRequestBody, HeartbeatData, LockBatchRequestBody, TopicRouteData, decode_json
from protocol.codes import RequestCode
from protocol.command import (
    Command,
    Response,
    decode_command,
    decode_header,
    encode_request,
    encode_response,
    ext_fields_of,
)
from protocol.errors import BadCommand, BadFrame, BadHeader, ProtocolError
from protocol.fastjson import parse_fastjson
from protocol.frame import Frame, FrameDecoder
from protocol.headers import RequestHeader
from protocol.java_hash import decode_java
from recorded_headers import recorded_frames

EXAMPLES = min(100_000, 1000 * settings.default.max_examples)
"""By a generator; all of them with `make fuzz`."""

HEADER_TYPES = [
    member for _, member in inspect.getmembers(headers, inspect.isclass) if issubclass(member, RequestHeader)
]
BODY_TYPES = (HeartbeatData, LockBatchRequestBody, CheckClientRequestBody, TopicRouteData)


def recorded_bodies() -> list[bytes]:
    """JSON bodies, the shortest of each beginning."""
    bodies = sorted({frame.body for frame in recorded_frames() if frame.body[:1] == b"{"}, key=len, reverse=True)
    return list({body[:24]: body for body in bodies if len(body) < 2_000}.values())


BODIES = recorded_bodies()


def changed_frames(seed: int, count: int) -> Iterator[Frame]:
    """Recorded headers with changes, as frames."""
    generator = random.Random(seed)
    for _ in range(count):
        serialize_type, header = generator.choice(HEADERS)
        yield serialize_type, changed(generator, header), b""


def command_or_none(frame: Frame) -> Command | None:
    with suppress(BadCommand):
        return decode_command(frame)
    return None


def use_everything(command: Command, header_type: type[RequestHeader]) -> None:
    """Whatever the server may do with a command that decoded."""
    assert command.is_response in (True, False)
    assert command.language_code is not None
    fields: dict[str, str] | None = None
    with suppress(BadHeader):
        fields = ext_fields_of(command)
        assert all(isinstance(text, str) for text in (*fields, *fields.values()))
    with suppress(BadHeader):
        assert type(decode_header(command, header_type)) is header_type
    answer = encode_response(command, Response(1, command.remark, fields))
    again = decode_command(FrameDecoder().feed(answer)[0])
    assert (again.opaque, again.serialize_type) == (command.opaque, command.serialize_type)
    assert again.remark == command.remark or not command.remark
    assert ext_fields_of(again) == (fields or {}) or command.serialize_type


def test_changed_headers_decode_or_fail_as_documented() -> None:
    generator = random.Random(1)
    decoded = 0
    for frame in changed_frames(seed=2, count=EXAMPLES):
        command = command_or_none(frame)
        if command is not None:
            decoded += 1
            use_everything(command, generator.choice(HEADER_TYPES))
    assert EXAMPLES // 10 < decoded < EXAMPLES


def test_changed_headers_that_decode_say_what_another_parser_reads() -> None:
    compared = 0
    for frame in changed_frames(seed=3, count=EXAMPLES // 5):
        command = command_or_none(frame)
        if command is None or frame[0]:
            continue
        compared += 1
        members = json.loads(decode_java(frame[1]))
        for name in ("code", "opaque", "flag", "version"):
            # A number may come as a text.
            assert getattr(command, name) == int(float(members.get(name, 0))), frame[1]
        with suppress(BadHeader):
            fields = ext_fields_of(command)
            present = {name for name, text in (members.get("extFields") or {}).items() if text is not None}
            assert set(fields) == {name.encode("utf-8", "replace").decode() for name in present}, frame[1]
    assert compared > EXAMPLES // 50


def test_changed_headers_that_another_parser_reads_as_a_command_decode() -> None:
    plain = 0
    for frame in changed_frames(seed=4, count=EXAMPLES // 5):
        with suppress(ValueError):
            members = json.loads(frame[1])
            if frame[0] == 0 and isinstance(members, dict) and is_plain_command(members):
                plain += 1
                assert command_or_none(frame) is not None, frame[1]
    assert plain > EXAMPLES // 50


def is_plain_command(members: dict[str, object]) -> bool:
    numbers = [members.get(name, 0) for name in ("code", "opaque", "flag", "version")]
    texts = [members.get(name) for name in ("language", "remark")]
    return (
        "code" in members
        and all(type(number) is int and abs(number) < 2**31 for number in numbers)
        and all(isinstance(text, str | None) for text in texts)
    )


def test_changed_streams_give_the_same_frames_in_any_pieces() -> None:
    generator = random.Random(5)
    for _ in range(EXAMPLES // 20):
        parts = [generator.choice(HEADERS) for _ in range(generator.randint(1, 4))]
        stream = b"".join(encode_frame_prefix(kind, len(header), 3) + header + b"bod" for kind, header in parts)
        if generator.random() < 0.7:
            place = generator.randrange(len(stream))
            stream = stream[:place] + bytes([generator.choice(EDGES)]) + stream[place + 1 :]
        size = generator.choice((1, 5, 64, 300))
        assert frames_of(stream, len(stream)) == frames_of(stream, size), stream.hex()


def frames_of(stream: bytes, size: int) -> tuple[list[Frame], str | None]:
    """The frames of a stream fed in pieces of `size` bytes, and the sentence of the error that ended it."""
    decoder = FrameDecoder()
    frames: list[Frame] = []
    for start in range(0, len(stream), size):
        try:
            frames += decoder.feed(stream[start : start + size])
        except BadFrame as error:
            return frames + error.frames, str(error)
    return frames, None


def test_changed_bodies_decode_or_fail_as_documented() -> None:
    generator = random.Random(6)
    for _ in range(EXAMPLES // 10):
        data = changed(generator, generator.choice(BODIES))
        with suppress(BadCommand):
            decode_json(data, generator.choice(BODY_TYPES))
        with suppress(ProtocolError):
            parse_fastjson(data)


def test_random_bytes_are_hardly_ever_a_command() -> None:
    generator = random.Random(7)
    for _ in range(EXAMPLES // 10):
        data = generator.randbytes(generator.randrange(60))
        assert command_or_none((0, data, b"")) is None
        command = command_or_none((1, data, b""))
        if command is not None:
            use_everything(command, RequestHeader)


# ---------------------------------------------------------------------- where hypothesis looks


@given(st.lists(st.binary(max_size=40), max_size=6), st.integers(8, 100))
def test_any_reads_give_frames_or_a_bad_frame(reads: list[bytes], limit: int) -> None:
    decoder = FrameDecoder(limit)
    with suppress(BadFrame):
        for data in reads:
            for serialize_type, header, body in decoder.feed(data):
                assert 0 <= serialize_type <= 255
                assert 8 + len(header) + len(body) <= limit


@given(st.one_of(st.binary(max_size=80), st.text(max_size=80).map(str.encode)), st.integers(0, 2))
def test_any_header_bytes_give_a_command_or_a_bad_command(data: bytes, serialize_type: int) -> None:
    command = command_or_none((serialize_type, data, b""))
    if command is not None:
        use_everything(command, RequestHeader)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
field_names = st.sampled_from(
    sorted({field.encode_name for kind in HEADER_TYPES for field in msgspec.structs.fields(kind)})
)


@given(st.dictionaries(field_names, json_values, max_size=12), st.sampled_from(HEADER_TYPES))
def test_any_field_values_give_a_header_or_a_bad_header(fields: dict[str, object], kind: type[RequestHeader]) -> None:
    text = json.dumps({"code": 1, "extFields": fields}).encode()
    command = command_or_none((0, text, b""))
    if command is not None:
        with suppress(BadHeader):
            assert type(decode_header(command, kind)) is kind


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@pytest.mark.parametrize("serialize_type", [0, 1])
@given(
    fields=st.dictionaries(texts, texts, max_size=5), remark=st.none() | texts, opaque=st.integers(-(2**31), 2**31 - 1)
)
def test_any_answer_comes_back(serialize_type: int, fields: dict[str, str], remark: str | None, opaque: int) -> None:
    request = Command(code=1, opaque=opaque, serialize_type=serialize_type)
    (frame,) = FrameDecoder().feed(encode_response(request, Response(0, remark, fields)))
    answer = decode_command(frame)
    assert (answer.opaque, answer.is_response) == (opaque, True)
    if serialize_type:
        # An empty text and none are the same there.
        remark, fields = remark or None, {name: text for name, text in fields.items() if name and text}
    assert (answer.remark, ext_fields_of(answer)) == (remark, fields)


@pytest.mark.parametrize("serialize_type", [0, 1])
@given(fields=st.dictionaries(texts.filter(bool), texts.filter(bool), max_size=5), body=st.binary(max_size=20))
def test_any_request_comes_back(serialize_type: int, fields: dict[str, str], body: bytes) -> None:
    (frame,) = FrameDecoder().feed(
        encode_request(RequestCode.VIEW_MESSAGE_BY_ID, fields, opaque=1, body=body, serialize_type=serialize_type)
    )
    command = decode_command(frame)
    assert (command.code, command.body, ext_fields_of(command)) == (RequestCode.VIEW_MESSAGE_BY_ID, body, fields)
