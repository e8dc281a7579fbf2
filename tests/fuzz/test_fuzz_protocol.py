"""Any bytes give frames, a command, a header and a body, or a `ProtocolError` of the documented kind; nothing else.

The bulk comes from a seeded generator, which changes recorded frames in a few places at some microseconds each;
hypothesis then looks where it finds something new, and shrinks what it finds.
"""

import inspect
import random
from collections.abc import Iterator
from contextlib import suppress

from hypothesis import settings

from frame_garbage import HEADERS, changed
from golden_frames import recorded_frames
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
from protocol.errors import BadCommand, BadHeader, ProtocolError
from protocol.fastjson import parse_fastjson
from protocol.frame import Frame, FrameDecoder
from protocol.headers import RequestHeader

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


def test_changed_bodies_decode_or_fail_as_documented() -> None:
    generator = random.Random(6)
    for _ in range(EXAMPLES // 10):
        data = changed(generator, generator.choice(BODIES))
        with suppress(BadCommand):
            decode_json(data, generator.choice(BODY_TYPES))
        with suppress(ProtocolError):
            parse_fastjson(data)


# ---------------------------------------------------------------------- where hypothesis looks
