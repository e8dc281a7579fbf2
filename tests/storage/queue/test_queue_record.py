"""Whether a record is a message of a queue, which of its messages, and whether the queue has another in its place."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctoring import make_store, put
from oracles import V1_MAGIC, V2_MAGIC, packed
from storage.queue.queue_place import has_another
from storage.queue.queue_record import QueueName, batch_in, is_queued, queue_place
from store_files import pack_record, property_bytes, with_host_bits
from store_writer import StoreWriter, Written

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
    assert QueueName("主题", 3).offset_in(data, 4097) is None, "bytes from elsewhere"
    for topic, queue_id in [("主题", 2), ("主", 3), ("主题主", 3), ("", 3), ("T", 3)]:
        assert not QueueName(topic, queue_id).owns(data)
        assert QueueName(topic, queue_id).offset_in(data, 4096) is None


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


@pytest.fixture
def made(tmp_path: Path) -> tuple[StoreWriter, list[Written]]:
    writer, written = make_store(tmp_path, 120)
    writer.close()
    return writer, written


def unit(writer: StoreWriter, each: Written) -> tuple[Path, int]:
    position = each.queue_offset * 20
    start = position // 1000 * 1000
    return writer.root / "consumequeue" / "T" / str(each.queue_id) / f"{start:020d}", position - start


def judge(writer: StoreWriter, each: Written) -> bool:
    return has_another(writer.root, memoryview(each.record), each.physical_offset)


def test_an_earlier_record_in_its_place_is_another(made: tuple[StoreWriter, list[Written]]) -> None:
    writer, written = made
    path, position = unit(writer, written[101])
    put(path, position, packed(written[3].physical_offset, 8))
    assert judge(writer, written[101])
    assert not judge(writer, written[99])


@pytest.mark.parametrize(
    "data", [bytes(20), b"\xff" * 20, packed(10**9, 8), packed(0, 8) + packed(0x7FFFFFFF, 4) + bytes(8)]
)
def test_a_unit_that_points_nowhere_or_further_on_says_nothing(
    made: tuple[StoreWriter, list[Written]], data: bytes
) -> None:
    writer, written = made
    path, position = unit(writer, written[101])
    put(path, position, data)
    assert not judge(writer, written[101])


@pytest.mark.parametrize("topic", ["../../etc", "..", ".", "a/b", "a\0b", "x" * 120])
def test_names_that_lead_elsewhere_are_not_followed(tmp_path: Path, topic: str) -> None:
    writer = StoreWriter(tmp_path)
    each = writer.append(topic, b"x", queue=False)
    (tmp_path / "consumequeue").mkdir()
    assert not has_another(tmp_path, memoryview(each.record), each.physical_offset)


def test_half_messages_and_impossible_queue_offsets_have_no_place(made: tuple[StoreWriter, list[Written]]) -> None:
    writer, _ = made
    for queue_offset in (1 << 58, 1 << 59, (1 << 63) - 1):
        assert not judge(writer, writer.append("T", b"x", queue_offset=queue_offset, queue=False))
    assert not judge(writer, writer.append("T", b"half", sys_flag=4))
