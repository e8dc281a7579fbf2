"""The doctor on queues and index files: each fault at its byte, and what the log has that they lack."""

import shutil
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from doctoring import findings_of, make_store, only, put
from golden_store import GOLDEN, unpack
from job_runs import compact_in_place
from protocol.errors import StoreError
from storage.doctor.examine import examine
from storage.doctor.finding import Findings, Kind, Severity
from storage.doctor.log.scanned_log import ScannedLog
from storage.doctor.queues import _numbering as module
from storage.doctor.queues import unit_files
from storage.doctor.queues._numbering import check_batches, check_numbers
from storage.doctor.queues.unit_files import KINDS, UnitFiles
from storage.queue import queue_holes
from storage.queue.batch_consume_queue import UNIT_DTYPE as BATCH_DTYPE
from storage.queue.batch_consume_queue import UNIT_DTYPE as BATCH_UNIT_DTYPE
from storage.queue.consume_queue import UNIT_DTYPE
from store_files import pack_batch
from store_writer import StoreWriter

UNIT = 20
FILE = 1000


@pytest.fixture
def queue(root):
    return root / "consumequeue" / "T" / "1"


@pytest.mark.parametrize("size", [0, 39, 980])
def test_a_file_of_another_size_is_named_where_it_ends(root, queue, size) -> None:
    with (queue / f"{FILE:020d}").open("r+b") as file:
        file.truncate(size)
    findings = findings_of(examine(root), "queues", Severity.WARNING)
    assert [(finding.path, finding.position) for finding in findings] == [(str(queue / f"{FILE:020d}"), size)]


@pytest.mark.parametrize("data", [b"\xff" * UNIT, bytes(UNIT * 3)])
def test_units_that_are_lost_inside_the_queue_are_named(root, queue, data) -> None:
    put(queue / f"{3 * FILE:020d}", 10 * UNIT, data)
    finding = only(root, "queues")
    assert finding.severity is Severity.ERROR
    assert (finding.path, finding.position) == (str(queue / f"{3 * FILE:020d}"), 10 * UNIT)
    count = len(data) // UNIT
    assert (finding.kind, finding.count, finding.found) == (Kind.UNIT, count, "bytes that are no units")
    units = ("unit 160", "units of 1 message") if count == 1 else ("units 160 to 162", "units of 3 messages")
    assert (finding.place, finding.expected) == units


def test_a_damaged_end_is_named_though_much_of_the_log_would_have_to_be_read(root, queue, monkeypatch) -> None:
    monkeypatch.setattr(queue_holes, "SEARCHED_AT_ONCE", 1)
    units = (queue / f"{3 * FILE:020d}").read_bytes().rstrip(b"\0")
    last = (len(units) - 1) // UNIT
    put(queue / f"{3 * FILE:020d}", last * UNIT, b"\xff" * UNIT)
    found = {each.kind: each for each in findings_of(examine(root), "queues") if each.path.startswith(str(queue))}
    assert found.keys() == {Kind.UNIT, Kind.NOT_COMPARED}
    assert (found[Kind.UNIT].position, found[Kind.UNIT].count) == (last * UNIT, 1)
    assert found[Kind.NOT_COMPARED].remedy == f"rocketlens doctor --deep {root}"


def test_a_foreign_file_is_moved_out_of_the_store_by_what_is_advised(root, queue) -> None:
    (queue / "notes").write_text("x")
    finding = only(root, "queues")
    subprocess.run(["bash", "-c", finding.remedy], check=True)
    assert (root.with_name("store-set-aside") / "consumequeue" / "T" / "1" / "notes").read_text() == "x"
    assert examine(root).findings == ()
    (queue / "notes").write_text("another")
    subprocess.run(["bash", "-c", only(root, "queues").remedy], check=True)
    assert examine(root).findings == ()


@pytest.mark.parametrize(
    ("field", "number"), [("physical_offset", 0), ("size", 7), ("base_offset", 19), ("batch_size", 8)]
)
def test_a_unit_of_a_batch_that_cannot_be_right_is_named(tmp_path, field, number) -> None:
    with StoreWriter(tmp_path, batch_queue_file_size=46 * 8) as writer:
        for _ in range(20):
            writer.append_inner_batch("B", [(b"one", {}), (b"two", {})])
    assert findings_of(examine(tmp_path), "queues") == []
    path = tmp_path / "batchconsumequeue" / "B" / "0" / f"{46 * 8 * (number // 8):020d}"
    position = 46 * (number % 8)
    content = np.frombuffer(bytearray(path.read_bytes()), BATCH_UNIT_DTYPE)
    content[field][number % 8] = -3
    path.write_bytes(content.tobytes())
    finding = only(tmp_path, "queues")
    assert (finding.kind, finding.severity, finding.path) == (Kind.UNIT, Severity.ERROR, str(path))
    assert (finding.place, finding.position) == (f"unit {number}", position)
    assert finding.remedy == f"rocketlens rebuild queues {tmp_path}"


QUEUE_OFFSET = 20


def test_messages_behind_the_last_dispatched_one_are_lag(tmp_path) -> None:
    writer, written = make_store(tmp_path, 100)
    late = [writer.append("T", b"late", queue=False) for _ in range(5)]
    writer.close()
    finding = only(tmp_path, "queue-reach")
    assert (finding.severity, finding.physical_offset) == (Severity.WARNING, late[0].physical_offset)
    assert finding.place == "T 0"  # whose messages they are
    end = written[-1].physical_offset + written[-1].size
    assert f"the last {late[-1].physical_offset + late[-1].size - end} bytes" in finding.found
    diagnosis = examine(tmp_path)
    assert (diagnosis.queues_end, diagnosis.coverage.queues) == (end, ((0, end),))


@pytest.mark.parametrize("keeps_own", [False, True])
def test_queues_whose_units_lead_to_messages_of_others_are_no_lag_that_a_start_clears(tmp_path, keeps_own) -> None:
    """Two that were exchanged, or one that was copied over another: a broker takes the log for dispatched."""
    writer, written = make_store(tmp_path / "store", 100)
    writer.close()
    queues, kept = writer.root / "consumequeue" / "T", tmp_path / "kept"
    (queues / "1").rename(kept)
    shutil.copytree(queues / "0", queues / "1")
    if not keeps_own:
        shutil.rmtree(queues / "0")
        kept.rename(queues / "0")
    findings = examine(writer.root).findings
    wrong = [1] if keeps_own else [0, 1]
    assert [each.path for each in findings] == [str(queues / str(queue_id)) for queue_id in wrong]
    assert {(each.severity, each.kind) for each in findings} == {(Severity.ERROR, Kind.MISSING_UNIT)}
    assert {each.remedy for each in findings} == {f"rocketlens rebuild queues {writer.root}"}
    assert examine(writer.root).queues_end == written[-1].physical_offset + written[-1].size


def test_a_queue_that_is_gone_is_named_by_its_first_message(tmp_path) -> None:
    writer, written = make_store(tmp_path, 100)
    writer.close()
    shutil.rmtree(tmp_path / "consumequeue" / "T" / "0")
    finding = only(tmp_path, "queue-reach")
    assert (finding.severity, finding.path) == (Severity.ERROR, str(tmp_path / "consumequeue" / "T" / "0"))
    assert finding.physical_offset == written[0].physical_offset
    assert finding.found == "50 sampled messages of T 0 without a unit, first: 0"


def test_light_queues_that_a_broker_keeps_in_rocksdb_alone_are_no_fault(tmp_path) -> None:
    root = unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-rocksdb-double")
    assert not findings_of(examine(root), "queue-reach")
    shutil.rmtree(root / "consumequeue" / "LedgerTopic" / "0")
    assert "of LedgerTopic 0 without a unit" in only(root, "queue-reach").found


def test_a_record_that_bears_another_place_than_its_unit_has_is_mended_by_no_rebuild(tmp_path) -> None:
    with StoreWriter(tmp_path) as writer:
        written = [writer.append("T", b"x") for _ in range(30)]
        writer.overwrite(written[11].physical_offset + QUEUE_OFFSET, (1000).to_bytes(8))
    (finding,) = findings_of(examine(tmp_path), "queue-reach")
    assert (finding.kind, finding.physical_offset) == (Kind.QUEUE_OFFSET, written[11].physical_offset)
    assert finding.found == "1 sampled message of T 0 in another place than they bear, first: 1000"
    assert finding.remedy == "no command fixes this: it is a record of the log"


UNITS = {"valid": (5, 10, 0), "lost": (-1, 3, 7), "zeros": (0, 0, 0)}
IN_A_FILE = 10


def write_units(directory, kinds):
    units = np.array([UNITS[kind] for kind in kinds], UNIT_DTYPE)
    for first in range(0, len(units), IN_A_FILE):
        part = units[first : first + IN_A_FILE].tobytes()
        with (directory / f"{first * np.dtype(UNIT_DTYPE).itemsize:020d}").open("wb") as file:
            file.write(part.rstrip(b"\0"))
            file.truncate(len(part))
    return UnitFiles(directory, *KINDS["consumequeue"])


@pytest.mark.parametrize("piece", [3, 1 << 16])
@given(kinds=st.lists(st.sampled_from(sorted(UNITS)), min_size=1, max_size=35), place=st.integers(0, 40))
def test_lost_units_and_the_first_written_one_are_those_of_a_loop(tmp_path_factory, piece, kinds, place) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(unit_files, "_PIECE", piece)
        files = write_units(tmp_path_factory.mktemp("queue"), kinds)
        lost = [number for first, count in files.lost_before(place) for number in range(first, first + count)]
        assert lost == [number for number, kind in enumerate(kinds[:place]) if kind != "valid"]
        written = [number for number, kind in enumerate(kinds) if kind != "zeros" and number >= place]
        found = files.first_written(place)
        assert ([] if found is None else [found[0]]) == written[:1]
        assert found is None or found[1].tolist() == [UNITS[kinds[written[0]]]]
    assert files.problems == {}


def test_a_file_that_cannot_be_read_is_named_and_its_units_are_not_called_lost(tmp_path, monkeypatch) -> None:
    files = write_units(tmp_path, ["valid"] * 3)

    def refuse(path):
        raise StoreError(path, what="cannot be opened")

    monkeypatch.setattr(unit_files, "open_read_only", refuse)
    assert list(files.lost_before(3)) == []
    assert [(path.name, expected) for path, expected in files.problems] == [(f"{0:020d}", "a file that can be read")]


DISTANCE = 100


def log_of(lost=(), minimum=0):
    """A log in which bytes are lost right in front of these messages."""
    ranges = tuple((DISTANCE * number - 10, DISTANCE * number) for number in lost)
    return ScannedLog(minimum=minimum, end=10**6, lost=ranges, segment_size=10**6, is_live=False, may_lag=False,
                      segments=((0, "segment"),))  # fmt: skip


def said(numbers, *, lost=(), minimum=0):
    """What is said of a queue: (place of the message, expected, found)."""
    findings, log = Findings("queues"), log_of(lost, minimum)
    offsets = DISTANCE * np.arange(len(numbers))
    for wrong in check_numbers(np.array(numbers, np.int64), offsets, -1, log.minimum, log):
        wrong.note(log, findings)
    assert all((finding.kind, finding.place) == (Kind.QUEUE_OFFSET, "record") for finding in findings.listed())
    return [(each.physical_offset // DISTANCE, each.expected, int(each.found)) for each in findings.listed()]


@given(st.integers(0, 2**40), st.integers(1, 50))
def test_numbers_without_gap_or_repeat_are_right_wherever_the_log_begins(first: int, count: int) -> None:
    assert said(range(first, first + count)) == []


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_a_topic_that_was_made_again_starts_over(counts: list[int]) -> None:
    numbers = [number for count in counts for number in range(count)]
    assert said(numbers) == []


def test_it_is_the_odd_number_that_is_named_unless_messages_are_lost() -> None:
    # Where messages are lost their numbers are too.
    assert said([0, 1, 5, 6], lost=[2]) == []
    assert said([0, 1, 5, 6], lost=[1]) == [(2, "queue offset 2", 5)]
    # A log that begins anywhere explains its first number.
    assert said([7, 8, 9], minimum=DISTANCE) == []
    assert said([7]) == []
    # It is the odd one that is named.
    for numbers, told in [
        ([0, 1, 9, 3, 4], [(2, "queue offset 2", 9)]),
        ([0, 1, 9, 2, 3], [(2, "queue offset 2", 9)]),  # one that does not belong here, and takes no number
        ([5, 6, 0, 8, 9], [(2, "queue offset 7", 0)]),
        ([0, 1, 5, 6], [(2, "queue offset 2", 5)]),
        ([0, 1, 1, 2], [(2, "queue offset 2", 1)]),
        ([4, 5, 3, 4], [(2, "queue offset 6", 3)]),
        ([9, 3, 4], [(0, "queue offset 2", 9)]),  # the first one, as those behind it show
        ([0, 1, 2, 7], [(3, "queue offset 3", 7)]),
        ([0, 1, 9, 3, 8, 5], [(2, "queue offset 2", 9), (4, "queue offset 4", 8)]),
    ]:
        assert said(numbers) == told


def said_of_batches(batches, lost=()):
    findings, log = Findings("queues"), log_of(lost)
    messages = np.zeros(len(batches), [("unit", BATCH_DTYPE)])
    messages["unit"]["physical_offset"] = DISTANCE * np.arange(len(batches))
    messages["unit"]["base_offset"], messages["unit"]["batch_size"] = zip(*batches, strict=True)
    check_batches(lambda at, count: messages[at : at + count], len(batches), -1, log.minimum, (), log, findings)
    return [(each.physical_offset // DISTANCE, each.expected, int(each.found)) for each in findings.listed()]


@pytest.fixture(params=[1, 2, 1 << 16])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", request.param)


@pytest.mark.usefixtures("piece")
def test_each_begins_where_the_one_before_it_ends() -> None:
    assert said_of_batches([(5, 3), (8, 1), (9, 10), (19, 1), (20, 4)]) == []


@pytest.mark.usefixtures("piece")
def test_a_gap_is_told_unless_the_log_has_one() -> None:
    assert said_of_batches([(0, 2), (5, 1)]) == [(1, "queue offset 2", 5)]
    assert said_of_batches([(0, 2), (5, 1)], lost=[1]) == []


def test_a_unit_that_stands_in_for_a_lost_batch_is_none_that_is_wrong(tmp_path) -> None:
    with StoreWriter(tmp_path) as writer:
        writer.append("T", b"plain")
        written = [writer.append_inner_batch("B", [(b"one", {}), (b"two", {})]) for _ in range(5)]
    writer.overwrite(written[2].physical_offset, bytes(written[2].size))
    (path,) = (tmp_path / "batchconsumequeue" / "B" / "0").iterdir()
    units = np.frombuffer(bytearray(path.read_bytes()), BATCH_UNIT_DTYPE)
    for field in ("physical_offset", "size", "tags_code", "store_timestamp"):
        units[field][2] = units[field][3]  # as a rebuild does it: the base offset is that of the lost batch
    path.write_bytes(units.tobytes())
    assert findings_of(examine(tmp_path), "queues") == []


SLOTS, ENTRIES = 13, 100
FIRST_ENTRY = 40 + 4 * SLOTS


@pytest.fixture
def small(tmp_path: Path) -> Path:
    make_store(tmp_path)[0].close()
    return tmp_path


def file(small: Path, number: int) -> Path:
    return sorted((small / "index").iterdir())[number]


@pytest.mark.parametrize(
    ("entry", "field", "data", "found_at"),
    [(7, 0, b"\xff\xff\xff\xff", 7), (7, 16, (7).to_bytes(4, "big"), 7), (98, 16, (99).to_bytes(4, "big"), 98)],
)
def test_a_damaged_entry_is_named_at_its_byte(small: Path, entry: int, field: int, data: bytes, found_at: int) -> None:
    path = file(small, 1)
    put(path, FIRST_ENTRY + 20 * entry + field, data)
    finding = only(small, "index-files")
    assert (finding.severity, finding.path) == (Severity.ERROR, str(path))
    assert (finding.position, finding.remedy) == (FIRST_ENTRY + 20 * found_at, f"rocketlens rebuild index {small}")


@pytest.mark.parametrize(("position", "size", "field"),
    [(16, 8, "begin_physical_offset"), (24, 8, "end_physical_offset"), (32, 4, "slot_count")])  # fmt: skip
def test_a_header_that_lies_is_named(small: Path, position: int, size: int, field: str) -> None:
    put(file(small, 1), position, oracles.packed(3, size))
    finding = only(small, "index-files")
    assert (finding.severity, finding.path, finding.position) == (Severity.WARNING, str(file(small, 1)), position)
    assert (finding.kind, finding.place, finding.found) == (Kind.HEADER, f"header {field}", "3")
    assert finding.expected.isdecimal()


def test_compacted_files_without_a_topic_are_named_with_what_makes_them_whole(tmp_path: Path) -> None:
    writer, _ = make_store(tmp_path, 0)
    for number in range(40):
        writer.append("T" if number % 2 else "Another", keys=f"k{number}")
    writer.close()
    compact_in_place(writer, tmp_path / "work", topics=("T",))
    shutil.rmtree(tmp_path / "work")
    finding = only(tmp_path, "index-files")
    assert (finding.severity, finding.path) == (Severity.WARNING, str(file(tmp_path, 0)))
    assert "keys left out" in finding.found
    assert finding.remedy == f"rocketlens compact index --from-log {tmp_path}"


def test_numbers_of_sound_files_are_those_of_the_oracle(small: Path) -> None:
    healths = examine(small).index_files
    assert len(healths) == len(list((small / "index").iterdir())) > 0
    for health in healths:
        content = Path(health.path).read_bytes()
        hashes = [oracles.signed(content, FIRST_ENTRY + 20 * n, 4) for n in range(1, health.entries + 1)]
        chains = [sum(value % SLOTS == slot for value in hashes) for slot in range(SLOTS)]
        assert (health.slots, health.capacity) == (SLOTS, ENTRIES - 1)
        assert health.longest_chain in (max(chains), -1)
        assert health.used_slots in (SLOTS - chains.count(0), -1)


def test_a_lagging_index_is_named_where_it_ends(tmp_path: Path) -> None:
    writer, written = make_store(tmp_path)
    late = [writer.append("T", b"x", keys=f"late{n}", unique_key=f"l{n}", index=False) for n in range(10)]
    writer.close()
    finding = only(tmp_path, "index-reach")
    assert (finding.severity, finding.physical_offset) == (Severity.WARNING, late[0].physical_offset)
    assert f"{late[0].physical_offset} to {late[-1].physical_offset + late[-1].size}" in finding.found
    diagnosis = examine(tmp_path)
    assert (diagnosis.unindexed_messages, diagnosis.coverage.index) == (10, ((0, late[0].physical_offset),))
    assert written[-1].physical_offset < late[0].physical_offset


@pytest.mark.parametrize("number", [0, -1])
def test_a_lost_file_is_named_by_the_first_message_that_lacks_a_key(tmp_path: Path, number: int) -> None:
    writer, written = make_store(tmp_path)
    writer.close()
    lost = writer.index.files[number]
    sorted((tmp_path / "index").iterdir())[number].unlink()
    finding = only(tmp_path, "index-reach")
    first, last = lost.begin_physical_offset, lost.end_physical_offset
    assert (finding.physical_offset, finding.remedy) == (first, f"rocketlens rebuild index {tmp_path}")
    assert ("behind the last index file" in finding.found) == (number == -1)
    assert examine(tmp_path).unindexed_messages == sum(first <= record.physical_offset <= last for record in written)


@pytest.mark.parametrize(("sys_flag", "has_entries"), [(0xC0, True), (0xC1, False)], ids=["plain", "packed"])
def test_of_a_batch_its_own_keys_need_entries_and_not_those_of_its_messages(tmp_path, sys_flag, has_entries) -> None:
    writer, _ = make_store(tmp_path)
    messages = [(b"a", {"KEYS": "inner", "UNIQ_KEY": "i"}), (b"b", {"TAGS": "t"})]
    packed = zlib.compress(pack_batch(messages)) if sys_flag & 1 else None
    for _ in range(3):
        writer.append_inner_batch("B", messages, packed=packed, sys_flag=sys_flag)
    batch = writer.append_inner_batch("B", messages, keys="own", packed=packed, sys_flag=sys_flag, index=has_entries)
    for _ in range(3):
        writer.append_inner_batch("B", messages, packed=packed, sys_flag=sys_flag)
    writer.close()
    lacking = [each.physical_offset for each in findings_of(examine(tmp_path), "index-reach")]
    assert lacking == ([] if has_entries else [batch.physical_offset])


def test_what_lacks_keys_inside_a_file_is_indexed_from_0(tmp_path: Path) -> None:
    writer, _ = make_store(tmp_path, 15)
    left_out = writer.append("T", b"x", keys="left", index=False)
    for number in range(15):
        writer.append("T", b"x", keys=f"more{number}")
    writer.close()
    finding = only(tmp_path, "index-reach")
    assert (finding.physical_offset, "inside an index file" in finding.found) == (left_out.physical_offset, True)
    assert finding.remedy == f"rocketlens rebuild index --from-offset 0 {tmp_path}"
