"""One bit of a store the other way round: it is found and its place is named, and nothing else is reported.

What no other byte of a store repeats cannot be held against anything. So of the log those bits may go unnoticed with
which the store is still, byte for byte, what a broker would have made of it; that is decided here by writing it anew.
Of queues and index every bit that means anything is found.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oracles import property_crc_holds, read_log, read_record, signed
from queue_runs import files_under
from storage.doctor.finding import Kind
from store_writer import StoreWriter
from verifying import assert_clean, findings_of, flipped, verify_here

OPTIONS = {"segment_size": 8192, "index_slots": 13, "index_entries": 25, "queue_file_size": 200, "ext_file_size": 256}
START = 1_700_000_000_000
TREES = ("index", "consumequeue", "batchconsumequeue", "consumequeue_ext")


HEADER_FIELDS = {"begin_timestamp": 8, "end_timestamp": 8, "begin_physical_offset": 8, "end_physical_offset": 8}
HEADER_FIELDS |= {"slot_count": 4, "index_count": 4}
ENTRY_FIELDS = {"key_hash": 4, "physical_offset": 8, "time_difference": 4, "previous": 4}
UNIT_FIELDS = {"physical_offset": 8, "size": 4, "tags_code": 8}
BATCH_FIELDS = UNIT_FIELDS | {"store_timestamp": 8, "base_offset": 8, "batch_size": 2}
BATCH_FIELDS |= {"compacted_offset": 4, "reserved": 4}


@dataclass(frozen=True)
class Made:
    writer: StoreWriter
    work: Path

    @property
    def root(self) -> Path:
        return self.writer.root

    def findings(self):
        report = verify_here(self.root, self.work)
        assert report.details.clean == (report.exit_code == 0) == (report.details.findings == [])
        return findings_of(report)


def write(root: Path, *, ext: bool = False, property_crc: bool = False) -> StoreWriter:
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
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    kinds: dict[str, dict[str, bool]] = {"plain": {}, "ext": {"ext": True}, "crc": {"property_crc": True}}
    found = {}
    for kind, options in kinds.items():
        root = tmp_path_factory.mktemp(f"damage-{kind}")
        found[kind] = Made(write(root / "store", **options), root / "work")
        assert_clean(verify_here(found[kind].root, found[kind].work))
    return found


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


def are_numbered(records):
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
    return files_under(left) == files_under(right)


def record_at(made, position):
    ends = ((each.physical_offset, each.physical_offset + each.size, each) for each in made.writer.written)
    (found,) = (each for start, stop, each in ends if start <= position < stop)
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


def may_be_named(made, record, finding):
    """The record itself; for its number who follows in its queue; for an entry too few or too many who is beside it."""
    offset = record.physical_offset
    if finding.kind == "queue-offset":
        return {offset, *next_of_queue(made, record)}
    if Path(finding.path).parent.name == "index":
        places = [each.physical_offset for each in made.writer.written]
        number = places.index(offset)
        return set(places[max(number - 1, 0) : number + 2])
    return {offset}


def next_of_queue(made, record):
    queue = record.topic, record.queue_id
    written = [record_at(made, each.physical_offset) for each in made.writer.written]
    behind = (each for each in written if each.physical_offset > record.physical_offset)
    return [each.physical_offset for each in behind if (each.topic, each.queue_id) == queue][:1]


@example(kind="plain", record=0, byte=20, bit=7)
@example(kind="plain", record=0, byte=27, bit=0)  # zeros where no units are point to physical offset 0, too
@example(kind="plain", record=5, byte=36, bit=0)
@example(kind="crc", record=3, byte=-20, bit=0)  # the name of its checksum, which covers itself as a missing one does
@settings(max_examples=settings.default.max_examples // 4)
@given(
    kind=st.sampled_from(["plain", "crc"]),
    record=st.integers(0, 43),
    byte=st.integers(0, 87) | st.integers(88, 400),
    bit=st.integers(0, 7),
)
def test_any_bit_of_any_record(stores: dict[str, Made], kind: str, record: int, byte: int, bit: int) -> None:
    made = stores[kind]
    written = made.writer.written[record]
    check_record_flip(made, written.physical_offset + byte % written.size, bit)


def unit_files(made: Made, tree: str) -> list[Path]:
    return sorted(path for path in (made.root / tree).rglob("*") if path.is_file())


def place_of(position: int, fields: dict[str, int]) -> tuple[int, str, int]:
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


QUEUES = {
    ("plain", "consumequeue"): UNIT_FIELDS,
    ("plain", "batchconsumequeue"): BATCH_FIELDS,
    ("ext", "consumequeue"): UNIT_FIELDS,
}


@settings(max_examples=settings.default.max_examples // 4)
@given(queue=st.sampled_from(sorted(QUEUES)), data=st.data())
def test_any_bit_of_any_unit(stores: dict[str, Made], queue: tuple[str, str], data: st.DataObject) -> None:
    """Of those that were written, and where there is no extension of two behind them."""
    (kind, tree), fields = queue, QUEUES[queue]
    path = data.draw(st.sampled_from(unit_files(stores[kind], tree)))
    size = sum(fields.values())
    written = -(-len(path.read_bytes().rstrip(b"\0")) // size)
    most = min((written + 2 * (kind == "plain")) * size, path.stat().st_size)
    position = data.draw(st.integers(0, most - 1))
    check_unit_flip(stores[kind], path, position, data.draw(st.integers(0, 7)), fields)


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


@settings(max_examples=settings.default.max_examples // 3)
@given(
    number=st.integers(0, 9),
    position=st.integers(0, 39) | st.integers(92, 92 + 20 * 25 - 1) | st.integers(0, 92 + 20 * 25 - 1),
    bit=st.integers(0, 7),
)
def test_any_bit_of_any_index_file(stores: dict[str, Made], number: int, position: int, bit: int) -> None:
    paths = unit_files(stores["plain"], "index")
    check_index_flip(stores["plain"], paths[number % len(paths)], position, bit)
