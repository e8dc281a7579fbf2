"""What the kernel of a pull leaves to Python, and that it keeps to its bounds; what it finds: see `get_message`."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from kernel_memory import HeldFile
from oracles import packed
from storage.filter.base import CHOICE_OF_EVERYTHING
from storage.filter.expression import ExpressionFilter
from storage.filter.sql92 import parse
from storage.filter.tag import choice_of_tags
from storage.kernels import pulls as kernel
from storage.kernels.store_view import LogView
from storage.log.commit_log import CommitLog
from storage.queue.queue_record import QueueName
from store_writer import StoreWriter, Written


def written_store(root: Path, count: int = 40) -> tuple[CommitLog, list[Written]]:
    writer = StoreWriter(root)
    for number in range(count):
        writer.append("T", b"%d" % number, queue_id=2)
    writer.flush()
    return CommitLog.open([root / "commitlog"]), writer.written


def unit(written: Written, tags_code: int = 0, size: int | None = None) -> bytes:
    size = written.size if size is None else size
    return packed(written.physical_offset, 8) + packed(size, 4) + packed(tags_code, 8)


def call(
    log: CommitLog,
    units: list[bytes],
    codes: list[int] | None = None,
    maximum: int = 99,
    maximum_bytes: int = 1 << 40,
    name: QueueName | None = None,
    ahead: int = 0,
    behind: int = 0,
) -> tuple[int, list[int]]:
    """Units gone through or a code, and the physical offsets found."""
    name = name or QueueName("T", 2)
    choice = CHOICE_OF_EVERYTHING if codes is None else choice_of_tags(codes)
    count = len(units) - ahead - behind
    pulled = kernel.pull(
        log.view, HeldFile(b"".join(units)), 0, 0, len(units), name.queue_id, name.topic_bytes, choice, behind, count,
        maximum, maximum_bytes, 0,
    )  # fmt: skip
    return pulled.passed, [offset_of(record) for record in pulled.records] if pulled.passed >= 0 else []


def offset_of(record: memoryview) -> int:
    """The physical offset that a record says."""
    return int.from_bytes(record[28:36], "big")


def test_more_units_than_room_are_left(tmp_path: Path) -> None:
    log, written = written_store(tmp_path)
    passed, found = call(log, [unit(one) for one in written])
    assert (passed, found) == (32, [one.physical_offset for one in written[:32]])


def test_damage_right_behind_a_pull_by_tags_is_for_python(tmp_path: Path) -> None:
    log, written = written_store(tmp_path, 4)
    units = [unit(one) for one in written]
    for codes, passed in ((None, 3), ([0], 3), ([7], 3)):
        assert call(log, units, codes, ahead=1)[0] == passed
    torn = [*units[:3], bytes(20)]
    for codes, passed in ((None, 3), ([0], kernel.ODD), ([7], kernel.ODD)):
        assert call(log, torn, codes, ahead=1)[0] == passed


@pytest.mark.parametrize("codes", [None, [0], [7]])
@pytest.mark.parametrize("number", range(5))
def test_a_unit_that_leads_elsewhere_than_between_its_neighbours_is_for_python(
    number: int, codes: list[int] | None, tmp_path: Path
) -> None:
    log, written = written_store(tmp_path, 5)
    units = [unit(one) for one in written]
    units[number] = unit(written[0 if number > 2 else 4], tags_code=5)
    assert call(log, units, codes)[0] == kernel.ODD


def test_a_pull_that_begins_at_a_unit_that_leads_back_is_for_python(tmp_path: Path) -> None:
    log, written = written_store(tmp_path, 5)
    units = [unit(one) for one in (written[3], written[1], written[4])]
    assert call(log, units[1:], [7])[0] == 2
    assert call(log, units, [7], behind=1)[0] == kernel.ODD


def test_a_unit_that_points_outside_the_log_is_for_python_whatever_its_tag(tmp_path: Path) -> None:
    log, written = written_store(tmp_path, 4)
    for damage in (packed(log.end, 8) + packed(99, 4) + packed(5, 8), b"\x7f" * 20):
        assert call(log, [unit(written[0]), damage, unit(written[2])], [7])[0] == kernel.ODD


def test_no_units_are_none_found(tmp_path: Path) -> None:
    assert call(written_store(tmp_path)[0], []) == (0, [])


@pytest.mark.parametrize("maximum", [-1, 0, 1, 2, 3])
def test_one_message_always_goes_through(maximum: int, tmp_path: Path) -> None:
    log, written = written_store(tmp_path, 4)
    assert call(log, [unit(one) for one in written], maximum=maximum)[0] == max(maximum, 1)
    assert call(log, [unit(one) for one in written], maximum_bytes=maximum)[0] == 1


def test_codes_are_compared_by_their_low_32_bits(tmp_path: Path) -> None:
    log, written = written_store(tmp_path, 4)
    codes = [5, -5, 1 << 31, -(1 << 31)]
    units = [unit(one, code) for one, code in zip(written, codes, strict=True)]
    assert call(log, units, [1 << 31]) == (4, [one.physical_offset for one in written[2:]])
    assert call(log, units, [(1 << 32) - 5, 5]) == (4, [one.physical_offset for one in written[:2]])
    assert call(log, units, []) == (4, [])


@pytest.mark.parametrize(
    "odd",
    [packed(0, 8) + packed(0x7FFFFFFF, 4) + bytes(8), bytes(20), packed(1 << 62, 8) + packed(100, 4) + bytes(8),
     packed(-1, 8) + packed(100, 4) + bytes(8), packed(1, 8) + packed(100, 4) + bytes(8)],
)  # fmt: skip
def test_a_unit_without_its_record_is_odd(odd: bytes, tmp_path: Path) -> None:
    log, written = written_store(tmp_path, 2)
    assert call(log, [unit(written[0]), odd])[0] == kernel.ODD


def test_a_record_of_another_size_queue_or_topic_is_odd(tmp_path: Path) -> None:
    log, written = written_store(tmp_path, 2)
    assert call(log, [unit(written[0], size=written[0].size + 1)])[0] == kernel.ODD
    for other in (QueueName("T", 1), QueueName("U", 2), QueueName("TT", 2), QueueName("", 2)):
        assert call(log, [unit(written[0])], name=other)[0] == kernel.ODD


def test_an_extension_is_odd_only_where_tags_are_compared(tmp_path: Path) -> None:
    log, written = written_store(tmp_path, 1)
    extended = unit(written[0], -(1 << 63))
    assert call(log, [extended], [5])[0] == kernel.ODD
    assert call(log, [extended]) == (1, [written[0].physical_offset])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("number > 17", range(18, 40)), ("number BETWEEN 3 AND 5", range(3, 6)), ("number = 'x'", ()), ("FALSE", ())],
)
def test_expressions_are_decided_by_properties(text: str, wanted: Iterable[int], tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    for number in range(40):
        writer.append("T", b"", queue_id=2, properties={"number": str(number)})
    writer.flush()
    log, choice = CommitLog.open([tmp_path / "commitlog"]), ExpressionFilter(parse(text)).choice
    units = b"".join(unit(one) for one in writer.written)
    pulled = kernel.pull(log.view, HeldFile(units), 0, 0, 40, 2, b"T", choice, 0, 40, 99, 1 << 40, 0)
    expected = [writer.written[number].physical_offset for number in wanted]
    assert (pulled.passed, pulled.decided) == (40, 40)
    assert [offset_of(record) for record in pulled.records] == expected


def test_a_message_that_an_expression_wants_must_be_intact(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    for number in range(3):
        writer.append("T", b"body", queue_id=2, properties={"number": str(number)})
    body = writer.written[1].record.index(b"body")
    writer.overwrite(writer.written[1].physical_offset + body, b"x")
    log = CommitLog.open([tmp_path / "commitlog"])
    units = b"".join(unit(one) for one in writer.written)
    for text, passed in (("number = 1", kernel.ODD), ("number <> 1", 3)):
        choice = ExpressionFilter(parse(text)).choice
        pulled = kernel.pull(log.view, HeldFile(units), 0, 0, 3, 2, b"T", choice, 0, 3, 99, 1 << 40, 0)
        assert pulled.passed == passed


def test_a_choice_by_an_expression_has_one() -> None:
    with pytest.raises(ValueError, match="without one"):
        kernel.Choice(kernel.BY_EXPRESSION)


@pytest.mark.parametrize(
    ("position", "first", "stop"), [(0, 0, 4), (-1, 0, 1), (61, 0, 0), (0, -1, 1), (0, 2, 1), (1, 0, 3)]
)
def test_units_lie_in_their_file(position: int, first: int, stop: int, tmp_path: Path) -> None:
    log, written = written_store(tmp_path, 3)
    file = HeldFile(b"".join(map(unit, written)))
    with pytest.raises(ValueError, match="units"):
        kernel.pull(log.view, file, position, first, stop, 2, b"T", CHOICE_OF_EVERYTHING, first, 1, 1, 100, 0)


@pytest.mark.parametrize(
    ("queue_offset", "passed"), [(-(2**63), kernel.ODD), (-1, kernel.ODD), (3, 0), (4, kernel.ODD)]
)
def test_a_pull_begins_at_a_unit_that_is_seen(queue_offset: int, passed: int, tmp_path: Path) -> None:
    log, written = written_store(tmp_path, 3)
    file = HeldFile(b"".join(map(unit, written)))
    pulled = kernel.pull(log.view, file, 0, 0, 3, 2, b"T", CHOICE_OF_EVERYTHING, queue_offset, 9, 9, 1 << 40, 0)
    assert pulled.passed == passed


def test_units_and_records_that_are_not_in_memory_are_told(tmp_path: Path) -> None:
    log, written = written_store(tmp_path, 3)
    with tempfile.TemporaryFile() as short:  # as short as it is, every probe comes back short, as over cold pages
        file = HeldFile(b"".join(map(unit, written)), short.fileno())
        arguments = (0, 0, 3, 2, b"T", CHOICE_OF_EVERYTHING, 1, 1, 9, 1 << 40, 1000)
        pulled = kernel.pull(log.view, file, *arguments)
        assert (pulled.passed, pulled.cold_file) == (kernel.UNITS_COLD, file)
        assert (pulled.cold_position, pulled.cold_length) == (0, 60)
        file.heat[:] = 1000
        segment = HeldFile(bytes(log.segments[0].file.view), short.fileno())
        pulled = kernel.pull(LogView([(0, segment, log.end)]), file, *arguments)
        assert (pulled.passed, pulled.cold_file) == (kernel.RECORD_COLD, segment)
        assert (pulled.cold_position, pulled.cold_length) == (written[1].physical_offset, written[1].size)
