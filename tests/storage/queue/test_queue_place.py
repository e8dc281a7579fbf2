"""One unit says whether a queue has another record in a record's place."""

from pathlib import Path

import pytest

from doctoring import make_store, put
from oracles import packed
from storage.queue.queue_place import has_another
from store_writer import StoreWriter, Written


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


def test_every_record_stands_in_its_own_place(made: tuple[StoreWriter, list[Written]]) -> None:
    writer, written = made
    assert not any(judge(writer, each) for each in written)


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


def test_a_queue_that_is_not_there_says_nothing(tmp_path: Path, made: tuple[StoreWriter, list[Written]]) -> None:
    _, written = made
    assert not has_another(tmp_path / "nowhere", memoryview(written[3].record), written[3].physical_offset)


@pytest.mark.parametrize("topic", ["../../etc", "..", ".", "a/b", "a\0b", "x" * 120])
def test_names_that_lead_elsewhere_are_not_followed(tmp_path: Path, topic: str) -> None:
    writer = StoreWriter(tmp_path)
    each = writer.append(topic, b"x", queue=False)
    (tmp_path / "consumequeue").mkdir()
    assert not has_another(tmp_path, memoryview(each.record), each.physical_offset)


@pytest.mark.parametrize("queue_offset", [1 << 58, 1 << 59, (1 << 63) - 1])
def test_an_impossible_queue_offset_has_no_place(made: tuple[StoreWriter, list[Written]], queue_offset: int) -> None:
    writer, _ = made
    each = writer.append("T", b"x", queue_offset=queue_offset, queue=False)
    assert not judge(writer, each)


def test_half_messages_have_no_place(made: tuple[StoreWriter, list[Written]]) -> None:
    writer, _ = made
    each = writer.append("T", b"half", sys_flag=4)
    assert not judge(writer, each)
