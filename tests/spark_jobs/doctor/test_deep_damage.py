"""One bit of a store the other way round: it is found and its place is named, and nothing else is reported.

What no other byte of a store repeats cannot be held against anything. So of the log those bits may go unnoticed with
which the store is still, byte for byte, what a broker would have made of it; that is decided here by writing it anew.
Of queues and index every bit that means anything is found.
"""

import filecmp
import itertools
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import Record, property_crc_holds, read_log, read_record, signed
from storage.doctor.finding import Finding, Kind
from store_writer import StoreWriter
from verifying import assert_clean, damaged, findings_of, flipped, told, verify_here

OPTIONS = {"segment_size": 8192, "index_slots": 13, "index_entries": 25, "queue_file_size": 200, "ext_file_size": 256}
START = 1_700_000_000_000
TREES = ("index", "consumequeue", "batchconsumequeue", "consumequeue_ext")

RECORD_FIELDS = {
    "total_size": 4, "magic": 4, "body_crc": 4, "queue_id": 4, "flag": 4, "queue_offset": 8, "physical_offset": 8,
    "sys_flag": 4, "born_timestamp": 8, "born_host": 8, "store_timestamp": 8, "store_host": 8, "reconsume_times": 4,
    "prepared_transaction_offset": 8, "body_length": 4,
}  # fmt: skip
NOT_REPEATED = {"flag", "born_timestamp", "born_host", "store_host", "reconsume_times", "prepared_transaction_offset"}
"""Fields of a record that nothing else in a store says, unless its property CRC covers them."""

HEADER_FIELDS = {
    "begin_timestamp": 8, "end_timestamp": 8, "begin_physical_offset": 8, "end_physical_offset": 8, "slot_count": 4,
    "index_count": 4,
}  # fmt: skip
ENTRY_FIELDS = {"key_hash": 4, "physical_offset": 8, "time_difference": 4, "previous": 4}
UNIT_FIELDS = {"physical_offset": 8, "size": 4, "tags_code": 8}
BATCH_FIELDS = UNIT_FIELDS | {
    "store_timestamp": 8, "base_offset": 8, "batch_size": 2, "compacted_offset": 4, "reserved": 4,
}  # fmt: skip
EXT_FIELDS = {"size": 2, "tags_code": 8, "store_timestamp": 8, "bitmap_size": 2}


def some_bits(count: int, step: int) -> list[Any]:
    """So many bits, of which one in `step` is not left to `make soak`."""
    return [bit if bit % step == 0 else pytest.param(bit, marks=pytest.mark.soak) for bit in range(count)]


def some(*values: int) -> list[Any]:
    """Values of which the first alone is not left to `make soak`, since drawn bits are anywhere."""
    return [pytest.param(each, marks=pytest.mark.soak if each != values[0] else []) for each in values]


@dataclass(frozen=True)
class Made:
    """A store, and where verifications of it may work."""

    writer: StoreWriter
    work: Path

    @property
    def root(self) -> Path:
        return self.writer.root

    def findings(self) -> list[Finding]:
        report = verify_here(self.root, self.work)
        assert report.details.clean == (report.exit_code == 0) == (report.details.findings == [])
        return findings_of(report)


def write(root: Path, *, ext: bool = False, property_crc: bool = False) -> StoreWriter:
    """Messages of several topics and queues, with and without keys, tags and bodies, batches and delay levels."""
    writer = StoreWriter(root, **OPTIONS, ext_bit_map=b"\x11\x22" if ext else None)  # type: ignore[arg-type]
    for n in range(36):
        stamp = START + 1700 * n
        hosts = {"born_host": ("2001:db8::1", 7), "store_host": ("2001:db8::2", 10911)} if n == 15 else {}
        writer.append(
            ["A", "B", "Topic-é"][n % 3], b"body%d" % n * (n % 5), queue_id=n % 2, store_timestamp=stamp,
            keys=f"k{n} common" if n % 4 else None, unique_key=f"u{n}" if n % 5 else None,
            tags=["T1", "T2", None][n % 3 if n % 2 else 0], property_crc=property_crc, **hosts,
        )  # fmt: skip
        if n in (10, 11, 12, 20, 26):
            level = {"DELAY": "3", "REAL_TOPIC": "A"}
            writer.append(
                "SCHEDULE_TOPIC_XXXX", b"d", properties=level, tags="T1", queue_id=2, store_timestamp=stamp + 5,
                property_crc=property_crc,
            )  # fmt: skip
        if n in (5, 9, 22) and not ext:
            messages = [(b"x%d" % n, {"a": "b"}), (b"yy", {})]
            writer.append_inner_batch("Bat", messages, store_timestamp=stamp + 6, property_crc=property_crc)
    writer.close()
    return writer


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    root = tmp_path_factory.mktemp("damage")
    return Made(write(root / "store"), root / "work")


@pytest.fixture(scope="module")
def made_with_ext(tmp_path_factory: pytest.TempPathFactory) -> Made:
    root = tmp_path_factory.mktemp("damage-ext")
    return Made(write(root / "store", ext=True), root / "work")


@pytest.fixture(scope="module")
def made_with_crc(tmp_path_factory: pytest.TempPathFactory) -> Made:
    root = tmp_path_factory.mktemp("damage-crc")
    return Made(write(root / "store", property_crc=True), root / "work")


@pytest.mark.parametrize("name", ["made", "made_with_ext", "made_with_crc"])
def test_the_stores_are_clean(name: str, request: pytest.FixtureRequest) -> None:
    made = request.getfixturevalue(name)
    assert_clean(verify_here(made.root, made.work))


# --- the log ----------------------------------------------------------------------------------------------------------


def segment_of(made: Made) -> Path:
    (segment,) = made.writer.log.segments.values()
    return segment


def is_what_a_broker_makes(made: Made, scratch: Path) -> bool:
    """Whether the log is whole, and index and queues are those that follow from its records as they are now."""
    data = segment_of(made).read_bytes()
    records = read_log(made.root / "commitlog")
    sound = all(property_crc_holds(data[r.physical_offset : r.physical_offset + r.total_size]) for r in records)
    if len(records) != len(made.writer.written) or not sound or not are_numbered(records):
        return False
    shutil.rmtree(scratch, ignore_errors=True)
    again = StoreWriter(scratch, **OPTIONS, ext_bit_map=made.writer.ext_bit_map)  # type: ignore[arg-type]
    for topic, attributes in made.writer.topic_attributes.items():
        again.set_topic(topic, attributes)
    try:
        for record in records:
            again.append_record(record)
        again.close()
    except (ValueError, OverflowError):  # what it says of itself cannot be: no record to a broker
        return False
    return all(same_trees(made.root / tree, scratch / tree) for tree in TREES)


def are_numbered(records: list[Record]) -> bool:
    """Whether the messages of each queue have the numbers 0, 1, 2 and so on; a broker would not mind."""
    following: dict[tuple[str, int], int] = {}
    for record in records:
        numbers = [record.properties.get(name, "0") for name in ("INNER_BASE", "INNER_NUM")]
        if not all(number.isascii() and number.isdigit() for number in numbers):
            return False
        number = int(record.properties.get("INNER_BASE", record.queue_offset))
        if record.sys_flag & 0xC in (0, 8) and number != following.setdefault((record.topic, record.queue_id), 0):
            return False
        following[record.topic, record.queue_id] = number + int(record.properties.get("INNER_NUM", 1))
    return True


def same_trees(left: Path, right: Path) -> bool:
    names = {path.relative_to(left) for path in left.rglob("*") if path.is_file()}
    others = {path.relative_to(right) for path in right.rglob("*") if path.is_file()}
    return names == others and all(filecmp.cmp(left / name, right / name, shallow=False) for name in names)


def record_at(made: Made, position: int) -> Record:
    """The record as it was written that holds a byte."""
    (found,) = (
        written for written in made.writer.written
        if written.physical_offset <= position < written.physical_offset + written.size
    )  # fmt: skip
    record = read_record(found.record, 0)
    assert record is not None
    return record


def check_record_flip(made: Made, position: int, bit: int) -> None:
    """A flipped bit of a record is found, and only that record named, unless the store is still what it should be.

    Where its queue lacks it then, or the index an entry, a neighbour may be named for what is missing before it.
    """
    record = record_at(made, position)
    with flipped(segment_of(made), position, bit):
        findings = made.findings()
        if is_what_a_broker_makes(made, made.work / "again"):
            assert findings == []
        else:
            assert findings
        for finding in findings:
            assert finding.physical_offset in may_be_named(made, record, finding), findings


def may_be_named(made: Made, record: Record, finding: Finding) -> set[int]:
    """The record itself; for its number who follows in its queue; for an entry too few or too many who is beside it."""
    offset = record.physical_offset
    if finding.kind == "queue-offset":
        return {offset, *next_of_queue(made, record)}
    if Path(finding.path).parent.name == "index":
        places = [each.physical_offset for each in made.writer.written]
        number = places.index(offset)
        return set(places[max(number - 1, 0) : number + 2])
    return {offset}


def next_of_queue(made: Made, record: Record) -> list[int]:
    """Where the message behind a record's in its queue lies, if there is one."""
    queue = record.topic, record.queue_id
    written = [record_at(made, each.physical_offset) for each in made.writer.written]
    return [
        each.physical_offset for each in written
        if (each.topic, each.queue_id) == queue and each.physical_offset > record.physical_offset
    ][:1]  # fmt: skip


def record_bytes(made: Made) -> Iterator[int]:
    return itertools.chain.from_iterable(
        range(written.physical_offset, written.physical_offset + written.size) for written in made.writer.written
    )


def test_a_batch_that_is_none_any_more_leaves_a_gap_before_the_next(made: Made) -> None:
    check_record_flip(made, 910, 0)


@settings(max_examples=settings.default.max_examples)
@given(data=st.data())
def test_any_bit_of_any_record(made: Made, data: st.DataObject) -> None:
    check_record_flip(made, data.draw(st.sampled_from(list(record_bytes(made)))), data.draw(st.integers(0, 7)))


@settings(max_examples=settings.default.max_examples // 2)
@given(data=st.data())
def test_any_bit_of_records_with_a_property_crc(made_with_crc: Made, data: st.DataObject) -> None:
    position = data.draw(st.sampled_from(list(record_bytes(made_with_crc))))
    check_record_flip(made_with_crc, position, data.draw(st.integers(0, 7)))


@pytest.mark.parametrize("number", some(7, 12, 13), ids=["plain", "scheduled", "of a batch"])
@pytest.mark.parametrize("field", RECORD_FIELDS)
def test_every_field_of_a_record(made: Made, field: str, number: int) -> None:
    written = made.writer.written[number]
    position = written.physical_offset
    for name, size in RECORD_FIELDS.items():
        if name == field:
            for byte, bit in ((0, 6), (size - 1, 0)):
                check_record_flip(made, position + byte, bit)
            return
        position += size


@pytest.mark.parametrize("field", sorted(NOT_REPEATED))
def test_a_property_crc_covers_what_nothing_else_repeats(made: Made, made_with_crc: Made, field: str) -> None:
    names = list(RECORD_FIELDS)
    inside = sum(RECORD_FIELDS[name] for name in names[: names.index(field)])
    for store, found in ((made, False), (made_with_crc, True)):
        written = store.writer.written[3]
        with flipped(segment_of(store), written.physical_offset + inside, 5):
            kinds = [finding.kind for finding in store.findings()]
        assert kinds == ([Kind.RECORD] if found else [])


def test_a_flipped_name_of_a_checksum_makes_a_record_without_one(made_with_crc: Made) -> None:
    """It covers itself no more than a missing one; all that it covered is as it was."""
    written = made_with_crc.writer.written[3]
    with flipped(segment_of(made_with_crc), written.physical_offset + written.size - 20, 0):
        assert made_with_crc.findings() == []


@pytest.mark.parametrize("bit", some_bits(8, 3))
@pytest.mark.parametrize("behind", [0, 7, 8])
def test_bytes_behind_the_end_of_the_log_matter_where_the_next_record_starts(made: Made, behind: int, bit: int) -> None:
    end = made.writer.log.end
    with flipped(segment_of(made), end + behind, bit):
        assert [(finding.kind, finding.physical_offset) for finding in made.findings()] == (
            [(Kind.RECORD, end)] if behind < 8 else []
        )


# --- queues -----------------------------------------------------------------------------------------------------------


def unit_files(made: Made, tree: str) -> list[Path]:
    return sorted(path for path in (made.root / tree).rglob("*") if path.is_file())


def place_of(position: int, fields: dict[str, int]) -> tuple[int, str, int]:
    """Number of the unit or entry, name of the field, and where the field starts."""
    number, inside = divmod(position, sum(fields.values()))
    start = number * sum(fields.values())
    for name, size in fields.items():
        if inside < size:
            return number, name, start
        inside -= size
        start += size
    raise AssertionError(fields)


def check_unit_flip(made: Made, path: Path, position: int, bit: int, fields: dict[str, int]) -> None:
    number, name, start = place_of(position, fields)
    first = int(path.name) // sum(fields.values())
    was_written = any(path.read_bytes()[number * sum(fields.values()) :][: sum(fields.values())])
    with flipped(path, position, bit):
        (finding,) = made.findings()
    assert Path(finding.path) == path
    if was_written:
        assert (finding.kind, finding.place, finding.position) == (Kind.UNIT, f"unit {first + number} {name}", start)
    else:
        unit = number * sum(fields.values())
        assert (finding.kind, finding.place, finding.position) == (Kind.STRAY_UNIT, f"unit {first + number}", unit)


@settings(max_examples=settings.default.max_examples // 2)
@given(data=st.data())
def test_any_bit_of_any_queue_file(made: Made, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(unit_files(made, "consumequeue")))
    check_unit_flip(made, path, data.draw(st.integers(0, 199)), data.draw(st.integers(0, 7)), UNIT_FIELDS)


@pytest.mark.parametrize("field", BATCH_FIELDS)
def test_every_field_of_a_batch_unit(made: Made, field: str) -> None:
    (path,) = unit_files(made, "batchconsumequeue")
    names = list(BATCH_FIELDS)
    inside = sum(BATCH_FIELDS[name] for name in names[: names.index(field)])
    for number, byte, bit in ((0, 0, 7), (1, BATCH_FIELDS[field] - 1, 0), (5, 0, 3)):
        check_unit_flip(made, path, 46 * number + inside + byte, bit, BATCH_FIELDS)


@pytest.mark.parametrize("field", EXT_FIELDS)
@pytest.mark.parametrize("number", some(2, 0, 5))
def test_every_field_of_an_extension_unit(made_with_ext: Made, field: str, number: int) -> None:
    path = made_with_ext.root / "consumequeue_ext" / "A" / "0" / f"{0:020d}"
    names = list(EXT_FIELDS)
    position = 22 * number + sum(EXT_FIELDS[name] for name in names[: names.index(field)])
    # The sizes of the unit and of its bitmap say the same.
    told_as = "size" if field == "bitmap_size" else field
    for byte, bit in ((0, 7 if field != "bitmap_size" else 6), (EXT_FIELDS[field] - 1, 2)):
        with flipped(path, position + byte, bit):
            (finding,) = made_with_ext.findings()
        assert (finding.kind, finding.place) == (Kind.EXT_UNIT, f"of unit {number}, {told_as}")
        assert Path(finding.path) == path
        assert finding.position == 22 * number + (0 if told_as == "size" else position - 22 * number)


def test_bitmaps_say_what_filters_there_were_which_nobody_knows(made_with_ext: Made) -> None:
    path = made_with_ext.root / "consumequeue_ext" / "A" / "0" / f"{0:020d}"
    with damaged(path, 20, b"\xff\xff"):
        assert made_with_ext.findings() == []


def test_the_end_marker_of_an_extension_file(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", **{**OPTIONS, "ext_file_size": 100}, ext_bit_map=b"\1\2")  # type: ignore[arg-type]
    for n in range(9):
        writer.append("T", keys=f"k{n}")
    writer.close()
    made = Made(writer, tmp_path / "work")
    path = writer.root / "consumequeue_ext" / "T" / "0" / f"{0:020d}"
    assert path.read_bytes()[88:90] == b"\xff\xff"
    with flipped(path, 89, 0):
        (finding,) = made.findings()
    assert (finding.kind, finding.position, finding.place) == (Kind.EXT_UNIT, 88, "of unit 4, end marker before it")


@settings(max_examples=settings.default.max_examples // 2)
@given(data=st.data())
def test_any_bit_of_a_unit_that_has_an_extension(made_with_ext: Made, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(unit_files(made_with_ext, "consumequeue")))
    written = len(path.read_bytes().rstrip(b"\0")) // 20
    position = data.draw(st.integers(0, 20 * written - 1))
    check_unit_flip(made_with_ext, path, position, data.draw(st.integers(0, 7)), UNIT_FIELDS)


# --- the index --------------------------------------------------------------------------------------------------------


def check_index_flip(made: Made, path: Path, position: int, bit: int) -> None:
    """Exactly one finding, in the field that the bit is of.

    None where a first entry's time counts from the begin of its own file then: it does where there is none before.
    """
    slots = OPTIONS["index_slots"]
    first_entry = 40 + 4 * slots
    entries = signed(path.read_bytes(), 36, 4) - 1
    with flipped(path, position, bit):
        findings = made.findings()
        counts_from_itself = signed(path.read_bytes(), first_entry + 20 + 12, 4) == 0
    if first_entry + 20 + 12 <= position < first_entry + 20 + 16 and counts_from_itself:
        assert findings == []
        return
    assert len(findings) == 1, findings
    (finding,) = findings
    assert Path(finding.path) == path
    if position < 40:
        _, name, start = place_of(position, HEADER_FIELDS)
        expected = Kind.HEADER, f"header {name}", start
    elif position < first_entry:
        slot = (position - 40) // 4
        expected = Kind.SLOT, f"slot {slot}", 40 + 4 * slot
    else:
        number, name, start = place_of(position - first_entry, ENTRY_FIELDS)
        expected = Kind.ENTRY, f"entry {number} {name}", first_entry + start
        if number == 0 or number > entries:
            expected = Kind.ENTRY, "entry 0" if number == 0 else "behind the last entry", position
    assert (finding.kind, finding.place, finding.position) == expected


@settings(max_examples=settings.default.max_examples)
@given(data=st.data())
def test_any_bit_of_any_index_file(made: Made, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(unit_files(made, "index")))
    position = data.draw(st.integers(0, path.stat().st_size - 1))
    check_index_flip(made, path, position, data.draw(st.integers(0, 7)))


@pytest.mark.parametrize("number", some(4, 0, 2))
@pytest.mark.parametrize("field", HEADER_FIELDS)
def test_every_field_of_a_header(made: Made, field: str, number: int) -> None:
    names = list(HEADER_FIELDS)
    position = sum(HEADER_FIELDS[name] for name in names[: names.index(field)])
    path = unit_files(made, "index")[number]
    for byte, bit in ((0, 7), (HEADER_FIELDS[field] - 1, 0)):
        check_index_flip(made, path, position + byte, bit)


@pytest.mark.parametrize("entry", some(1, 2, 13, 23, 24))
@pytest.mark.parametrize("field", ENTRY_FIELDS)
def test_every_field_of_entries_at_both_ends_and_in_between(made: Made, field: str, entry: int) -> None:
    names = list(ENTRY_FIELDS)
    inside = sum(ENTRY_FIELDS[name] for name in names[: names.index(field)])
    path = unit_files(made, "index")[1]
    position = 40 + 4 * OPTIONS["index_slots"] + 20 * entry + inside
    for byte, bit in ((0, 7), (0, 0), (ENTRY_FIELDS[field] - 1, 0), (ENTRY_FIELDS[field] - 1, 7)):
        check_index_flip(made, path, position + byte, bit)


# --- more than a bit --------------------------------------------------------------------------------------------------


@settings(max_examples=settings.default.max_examples // 2)
@given(data=st.data())
def test_any_bytes_anywhere_are_survived(made: Made, data: st.DataObject) -> None:
    files = [path for tree in ("commitlog", *TREES) for path in unit_files(made, tree)]
    path = data.draw(st.sampled_from(files))
    position = data.draw(st.integers(0, path.stat().st_size - 1))
    content = data.draw(st.binary(min_size=1, max_size=64) | st.sampled_from([b"\xff" * 256, bytes(256)]))
    content = content[: path.stat().st_size - position]
    with damaged(path, position, content):
        changed = path.read_bytes()
        findings = made.findings()
    if path.parent.parent.name == "index" and changed != path.read_bytes():
        assert findings, told(verify_here(made.root, made.work))


@pytest.mark.parametrize("bit", some_bits(64, 9))
def test_any_bit_of_the_queue_offset_of_the_logs_first_record(made: Made, bit: int) -> None:
    """Zeros where no units are point to physical offset 0, too; that record is nowhere that a wrong number names."""
    names = list(RECORD_FIELDS)
    position = sum(RECORD_FIELDS[name] for name in names[: names.index("queue_offset")])
    check_record_flip(made, position + 7 - bit // 8, bit % 8)
