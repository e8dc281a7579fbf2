"""Any bytes give a message or a `StoreError`; any text an id or a `BadMessageId`; any block properties; nothing else.

The bulk comes from a seeded generator, which changes valid records in a few places at some microseconds each;
hypothesis then looks where it finds something new, and shrinks what it finds.
"""

import random
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from golden_store import vectors
from protocol.checksum import verify_property_crc
from protocol.errors import CorruptRecord, TruncatedFile
from protocol.host_address import HostAddress
from protocol.message import Message, decode_message, decode_messages
from protocol.message_edit import with_store_host, without_property
from strategies import damaged

RECORDS = [bytes.fromhex(columns[0]) for kind in ("message", "inner-batch") for columns in [*map(list, vectors(kind))]]
EXAMPLES = min(100_000, 300 * settings.default.max_examples)
"""By a generator; all of them with `make fuzz`."""

LIMIT = 1024 * 1024
EDGES = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)


def changed_records(seed: int, count: int) -> Iterator[bytes]:
    """Valid records with one to three bytes changed, most of them where lengths, flags and versions stand."""
    generator = random.Random(seed)
    for _ in range(count):
        record = bytearray(generator.choice(RECORDS))
        for _ in range(generator.randint(1, 3)):
            record[
                generator.choice(
                    (generator.randrange(8), generator.randrange(36, 40), generator.randrange(len(record)))
                )
            ] = generator.choice(EDGES) if generator.random() < 0.5 else generator.randrange(256)
        yield bytes(record[: generator.randrange(len(record))] if generator.random() < 0.1 else record)


def decode_or_none(data: bytes) -> Message | None:
    with suppress(CorruptRecord, TruncatedFile):
        return decode_message(data)
    return None


def use_everything(message: Message) -> None:
    """Touch whatever is computed from a message that decoded."""
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
