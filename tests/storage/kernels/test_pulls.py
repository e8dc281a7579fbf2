"""What the kernel of a pull leaves to Python, and that it keeps to its bounds; what it finds: see `get_message`."""

import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_memory import HeldFile
from oracles import packed
from storage.filter.base import CHOICE_OF_EVERYTHING
from storage.filter.expression import ExpressionFilter
from storage.filter.sql92 import parse
from storage.filter.tag import choice_of_tags
from storage.kernels import pulls as kernel
from storage.kernels.store_view import LogView
from storage.log.commit_log import CommitLog
from store_writer import StoreWriter, Written

Log = tuple[CommitLog, list[Written]]


def written_log(root: Path, count: int = 40) -> Log:
    """Messages of queue 2, whose property `number` counts them."""
    writer = StoreWriter(root)
    for number in range(count):
        writer.append("T", b"body", queue_id=2, properties={"number": str(number)})
    writer.flush()
    return CommitLog.open([root / "commitlog"]), writer.written


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """One log for the tests that only read it."""
    return written_log(tmp_path_factory.mktemp("pulls"))


def unit(written: Written, tags_code: int = 0, size: int | None = None) -> bytes:
    size = written.size if size is None else size
    return packed(written.physical_offset, 8) + packed(size, 4) + packed(tags_code, 8)


def call(
    log: CommitLog,
    units: list[bytes],
    codes: list[int] | None = None,
    *,
    choice: kernel.Choice | None = None,
    maximum: int = 99,
    maximum_bytes: int = 1 << 40,
    name: tuple[str, int] = ("T", 2),
    ahead: int = 0,
    behind: int = 0,
) -> tuple[int, list[int]]:
    """Units gone through or a code, and the physical offsets found."""
    wanted = choice or (CHOICE_OF_EVERYTHING if codes is None else choice_of_tags(codes))
    pulled = kernel.pull(
        log.view, HeldFile(b"".join(units)), 0, 0, len(units), name[1], name[0].encode(), wanted, behind,
        len(units) - ahead - behind, maximum, maximum_bytes, 0,
    )  # fmt: skip
    return pulled.passed, [int.from_bytes(record[28:36]) for record in pulled.records] if pulled.passed >= 0 else []


def offsets(written: list[Written]) -> list[int]:
    return [one.physical_offset for one in written]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return written_log(tmp_path_factory.mktemp("many"), 700)


@given(
    count=st.integers(1, 700),
    codes=st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 40), max_size=60),
    others=st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 40), min_size=1, max_size=5),
    seed=st.integers(0, 2**32),
    share=st.floats(0, 1),
)
def test_however_many_tags_are_wanted_of_however_many_units_none_is_taken_for_another(
    many: Log, count: int, codes: list[int], others: list[int], seed: int, share: float
) -> None:
    (log, written), random = many, Random(seed)
    tags = [random.choice(codes if codes and random.random() < share else others) for _ in range(count)]
    units = [unit(each, tag - (tag >> 31 << 32)) for each, tag in zip(written, tags, strict=False)]
    wanted = [number for number, tag in enumerate(tags) if tag in codes]
    passed = wanted[31] + 1 if len(wanted) >= 32 else count
    expected = offsets([written[number] for number in wanted[:32]])
    assert call(log, units, codes) == (passed, expected)


def test_units_that_do_not_lead_from_one_record_to_the_next_are_for_python(held: Log) -> None:
    log, written = held
    units = list(map(unit, written[:5]))
    for codes in (None, [0], [7]):
        assert call(log, units, codes, ahead=1)[0] == 4
        assert call(log, [*units[:4], bytes(20)], codes, ahead=1)[0] == (4 if codes is None else kernel.ODD)
        for number in range(5):
            elsewhere = unit(written[0 if number > 2 else 4], tags_code=5)
            assert call(log, [*units[:number], elsewhere, *units[number + 1 :]], codes)[0] == kernel.ODD
    back = [units[3], units[1], units[4]]
    assert call(log, back[1:], [7])[0] == 2
    assert call(log, back, [7], behind=1)[0] == kernel.ODD


def test_codes_are_compared_by_their_low_32_bits_and_one_of_an_extension_is_odd(held: Log) -> None:
    log, written = held
    units = [unit(one, code) for one, code in zip(written[:4], [5, -5, 1 << 31, -(1 << 31)], strict=True)]
    assert call(log, units, [1 << 31]) == (4, offsets(written[2:4]))
    assert call(log, units, [(1 << 32) - 5, 5]) == (4, offsets(written[:2]))
    assert call(log, units, []) == (4, [])
    extended = unit(written[0], -(1 << 63))
    assert call(log, [extended], [5])[0] == kernel.ODD
    assert call(log, [extended]) == (1, offsets(written[:1]))


def test_a_message_that_an_expression_wants_must_be_intact(tmp_path: Path) -> None:
    log, written = written_log(tmp_path)
    path = log.segments[0].file.path
    content = bytearray(path.read_bytes())
    content[written[1].physical_offset + written[1].record.index(b"body")] ^= 1
    path.write_bytes(content)
    for text, passed in (("number = 1", kernel.ODD), ("number <> 1", 3)):
        choice = ExpressionFilter(parse(text)).choice
        assert call(CommitLog.open([path.parent]), list(map(unit, written[:3])), choice=choice)[0] == passed
    with pytest.raises(ValueError, match="without one"):
        kernel.Choice(kernel.BY_EXPRESSION)


def test_units_and_records_that_are_not_in_memory_are_told(held: Log) -> None:
    log, written = held
    with tempfile.TemporaryFile() as short:  # as short as it is, every probe comes back short, as over cold pages
        file = HeldFile(b"".join(map(unit, written[:3])), short.fileno())
        arguments = (0, 0, 3, 2, b"T", CHOICE_OF_EVERYTHING, 1, 1, 9, 1 << 40, 1000)
        pulled = kernel.pull(log.view, file, *arguments)
        assert (pulled.passed, pulled.cold_file) == (kernel.UNITS_COLD, file)
        assert (pulled.cold_position, pulled.cold_length) == (0, 60)
        file.heat[:] = 1000
        segment = HeldFile(bytes(log.segments[0].file.view), short.fileno())
        pulled = kernel.pull(LogView([(0, segment, log.end)]), file, *arguments)
        assert (pulled.passed, pulled.cold_file) == (kernel.RECORD_COLD, segment)
        assert (pulled.cold_position, pulled.cold_length) == (written[1].physical_offset, written[1].size)
