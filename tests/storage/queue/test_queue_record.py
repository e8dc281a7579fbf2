"""Whether a record is a message of a queue, and which of its messages."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import V1_MAGIC, V2_MAGIC
from storage.queue.queue_place import has_another
from storage.queue.queue_record import QueueName, batch_in, is_queued, queue_place
from store_files import pack_record, property_bytes, with_host_bits

V4 = ("127.0.0.1", 10911)
V6 = ("fe80::1", 10911)


def record(topic: str = "T", **more: object) -> memoryview:
    fields: dict[str, object] = {
        "topic_bytes": topic.encode(), "body": b"body", "properties_bytes": b"", "queue_id": 3, "flag": 0,
        "queue_offset": 17, "physical_offset": 4096, "sys_flag": 0, "born_timestamp": 1, "born_host": V4,
        "store_timestamp": 2, "store_host": V4, "reconsume_times": 0, "prepared_transaction_offset": 0,
    }  # fmt: skip
    return memoryview(pack_record(**(fields | more)))  # type: ignore[arg-type]


@pytest.mark.parametrize("magic", [V1_MAGIC, V2_MAGIC])
@pytest.mark.parametrize("born_host", [V4, V6])
@pytest.mark.parametrize("store_host", [V4, V6])
@pytest.mark.parametrize("body", [b"", b"a body"])
def test_a_queue_owns_the_records_of_its_topic_and_id(
    magic: int, born_host: tuple[str, int], store_host: tuple[str, int], body: bytes
) -> None:
    flags = with_host_bits(0, born_host, store_host)
    hosts = {"born_host": born_host, "store_host": store_host, "sys_flag": flags}
    data = record("主题", magic=magic, body=body, **hosts)
    assert QueueName("主题", 3).owns(data)
    assert QueueName("主题", 3).offset_in(data, 4096) == 17
    for topic, queue_id in [("主题", 2), ("主", 3), ("主题主", 3), ("", 3), ("T", 3)]:
        assert not QueueName(topic, queue_id).owns(data)
        assert QueueName(topic, queue_id).offset_in(data, 4096) is None


def test_a_long_topic_is_told_from_its_prefix() -> None:
    long = "%RETRY%" + "x" * 200
    assert QueueName(long, 3).owns(record(long))
    assert not QueueName(long[:-1], 3).owns(record(long))


def test_bytes_from_elsewhere_are_no_message_here() -> None:
    assert QueueName("T", 3).offset_in(record(), 4097) is None


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [("5,9", 9), ("5,", None), ("5", None), ("", None), ("5,x", None), ("5,-3", None), ("5," + "9" * 6000, None)],
)
def test_a_message_of_several_queues_has_an_offset_in_each(offsets: str, expected: int | None) -> None:
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": offsets}
    data = record(properties_bytes=property_bytes(properties))
    assert QueueName("%LMQ%b", 0).offset_in(data, 4096) == expected
    assert QueueName("T", 3).offset_in(data, 4096) == 17
    assert QueueName("%LMQ%c", 0).offset_in(data, 4096) is None


@given(
    st.one_of(
        st.integers(-70_000, 70_000).map(str),
        st.text("+-0123456789٣３𝟑²x ", max_size=24),
        st.tuples(st.sampled_from("019٣"), st.integers(1, 6000)).map(lambda each: each[0] * each[1]),
    ),
    st.integers(0, 1 << 64).map(str),
)
def test_the_number_of_messages_in_a_record_is_read_as_a_broker_reads_it(number: str, base: str) -> None:
    """As `Short.parseShort`, which takes digits of one UTF-16 unit; a queue cannot hold fewer than 0."""
    data = record(properties_bytes=property_bytes({"INNER_NUM": number, "INNER_BASE": base}))
    digits = number.lstrip("0٣")[:6] if len(number) > 10 else number
    is_number = re.fullmatch(r"[+-]?\d+", number) is not None and "𝟑" not in number
    value = int(number) if is_number and len(number) < 4000 else 1 << 20 if digits or "٣" in number else 0
    is_batch = is_number and 0 <= value < 1 << 15 and int(base) < 1 << 63
    assert batch_in(data, 17) == ((int(base), value) if is_batch else (17, 1))


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=12), st.sampled_from([0, 0x10, 0x30]))
def test_what_has_changed_since_it_was_looked_at_is_no_message(changes: list[tuple[int, int]], flags: int) -> None:
    """A broker may write a record anew while it is looked at; what is asked of it then does not raise."""
    names = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "1,2", "INNER_NUM": "3"}
    data = bytearray(record(properties_bytes=property_bytes(names)))
    data[36:40] = flags.to_bytes(4)
    for position, value in changes:
        data[position % len(data)] = value
    changed = memoryview(data)
    for name in (QueueName("T", 3), QueueName("%LMQ%b", 0)):
        assert name.owns(changed) in (True, False)
        name.offset_in(changed, 4096)
    queue_place(changed)
    is_queued(changed)
    batch_in(changed, 17)
    has_another(Path("/proc/none"), changed, 4096)


def test_bytes_that_are_no_record_any_more_belong_nowhere() -> None:
    gone = memoryview(bytes(200))
    name = QueueName("T", 3)
    assert (name.owns(gone), name.offset_in(gone, 0), queue_place(gone), batch_in(gone, 17)) == (
        False, None, None, (17, 1),
    )  # fmt: skip
    assert not has_another(Path("/proc/none"), gone, 0)
