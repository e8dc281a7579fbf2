"""Any bytes of a peer or a record give a value or an error of the documented kind; nothing else."""

import inspect
import random
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from frame_garbage import HEADERS, changed
from fuzz.decoders import CORPUS, feed_decoders
from golden_frames import recorded_frames
from golden_store import vectors
from protocol import headers
from protocol.bodies import CheckClientRequestBody, HeartbeatData, LockBatchRequestBody, TopicRouteData, decode_json
from protocol.checksum import verify_property_crc
from protocol.command import Response, decode_command, decode_header, encode_response, ext_fields_of
from protocol.errors import BadCommand, BadHeader, CorruptRecord, ProtocolError, TruncatedFile
from protocol.fastjson import parse_fastjson
from protocol.frame import FrameDecoder
from protocol.headers import RequestHeader
from protocol.host_address import HostAddress
from protocol.message import decode_message, decode_messages
from protocol.message_edit import with_store_host, without_property
from strategies import damaged

EXAMPLES = min(100_000, 300 * settings.default.max_examples)

HEADER_TYPES = [each for _, each in inspect.getmembers(headers, inspect.isclass) if issubclass(each, RequestHeader)]
BODY_TYPES = (HeartbeatData, LockBatchRequestBody, CheckClientRequestBody, TopicRouteData)


LONG_BEFORE_SHORT = sorted({frame.body for frame in recorded_frames() if frame.body[:1] == b"{"}, key=len, reverse=True)
BODIES = list({body[:24]: body for body in LONG_BEFORE_SHORT if len(body) < 2_000}.values())


def command_or_none(frame):
    with suppress(BadCommand):
        return decode_command(frame)
    return None


def use_command(command, header_type) -> None:
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
    for _ in range(EXAMPLES):
        serialize_type, header = generator.choice(HEADERS)
        command = command_or_none((serialize_type, changed(generator, header), b""))
        if command is not None:
            decoded += 1
            use_command(command, generator.choice(HEADER_TYPES))
    assert EXAMPLES // 10 < decoded < EXAMPLES


def test_changed_bodies_decode_or_fail_as_documented() -> None:
    generator = random.Random(6)
    for _ in range(EXAMPLES // 10):
        data = changed(generator, generator.choice(BODIES))
        with suppress(BadCommand):
            decode_json(data, generator.choice(BODY_TYPES))
        with suppress(ProtocolError):
            parse_fastjson(data)


RECORDS = [bytes.fromhex(columns[0]) for kind in ("message", "inner-batch") for columns in [*map(list, vectors(kind))]]

LIMIT = 1024 * 1024
EDGES = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)


def changed_records(seed, count):
    generator = random.Random(seed)
    for _ in range(count):
        record = bytearray(generator.choice(RECORDS))
        for _ in range(generator.randint(1, 3)):
            places = generator.randrange(8), generator.randrange(36, 40), generator.randrange(len(record))
            byte = generator.choice(EDGES) if generator.random() < 0.5 else generator.randrange(256)
            record[generator.choice(places)] = byte
        yield bytes(record[: generator.randrange(len(record))] if generator.random() < 0.1 else record)


def decode_or_none(data):
    with suppress(CorruptRecord, TruncatedFile):
        return decode_message(data)
    return None


def use_everything(message) -> None:
    assert message.total_size >= 91
    assert isinstance(message.message_id, str)
    assert (message.keys, message.tags) is not None
    with suppress(CorruptRecord):
        message.decoded_body(LIMIT)
    with suppress(CorruptRecord):
        message.inner_messages(LIMIT)


def test_changed_records_are_edited_or_refused() -> None:
    for data in changed_records(seed=3, count=EXAMPLES // 10):
        with suppress(CorruptRecord, TruncatedFile):
            decode_message(without_property(data, "UNIQ_KEY"), check_crc=False)
            decode_message(with_store_host(data, HostAddress("::1", 1)), check_crc=False)
            verify_property_crc(data)


@given(st.data())
def test_damaged_records_decode_or_fail_as_documented(data: st.DataObject) -> None:
    record = data.draw(damaged(data.draw(st.sampled_from(RECORDS))))
    message = decode_or_none(record)
    assert (message is None) == (oracles.read_record(record, 0) is None)
    if message is not None:
        use_everything(message)


@pytest.mark.parametrize("check_crc", [True, False])
@given(data=st.data())
def test_damaged_answers_give_whole_messages_up_to_the_damage(data: st.DataObject, check_crc: bool) -> None:
    body = data.draw(damaged(b"".join(data.draw(st.lists(st.sampled_from(RECORDS), max_size=4)))))
    total = 0
    with suppress(CorruptRecord, TruncatedFile):
        for message in decode_messages(body, check_crc=check_crc):
            total += message.total_size
    assert total <= len(body)


def test_an_input_raises_nothing_that_was_not_meant() -> None:
    for path in sorted(CORPUS.iterdir()):
        feed_decoders(path.read_bytes())
