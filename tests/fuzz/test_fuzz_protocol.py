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
from hypothesis import given, settings
from hypothesis import strategies as st

from changed_headers import EDGES, HEADERS, changed
from frame_garbage import encode_frame_prefix
from protocol import headers
from protocol.bodies import CheckClientRequestBody, HeartbeatData, LockBatchRequestBody, TopicRouteData, decode_json
from protocol.command import (
    Command,
    Response,
    decode_command,
    decode_header,
    encode_response,
    ext_fields_of,
)
from protocol.errors import BadCommand, BadFrame, BadHeader, ProtocolError
from protocol.fastjson import parse_fastjson
from protocol.frame import Frame, FrameDecoder
from protocol.headers import RequestHeader
from recorded_headers import recorded_frames

EXAMPLES = min(100_000, 300 * settings.default.max_examples)
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


# ---------------------------------------------------------------------- where hypothesis looks


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
