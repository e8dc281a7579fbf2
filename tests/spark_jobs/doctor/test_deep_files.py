"""Queues and index files as brokers and a compaction leave them, and wrong ones: what a verification says."""

import shutil
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from compact_oracle import build_compacted, keep_entries, read_entries
from golden_store import GOLDEN, unpack
from job_runs import Rebuilt, compact_in_place
from oracles import index_hash, index_keys, packed
from protocol.errors import ConfigError, NotAStore
from spark_jobs.places import remote_file
from storage.doctor.finding import Kind
from store_writer import StoreWriter
from verifying import assert_clean, findings_of, flip, in_memory, told, verify_here, verify_in_memory

FILE_SIZE = 200
UNITS = FILE_SIZE // 20


@pytest.fixture
def verify(tmp_path):
    return lambda **options: verify_here(tmp_path / "store", tmp_path / "work", **options)


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    return StoreWriter(tmp_path / "store", segment_size=4096, queue_file_size=FILE_SIZE, ext_file_size=256)


def fill(writer, count, topic="T", **more):
    return [writer.append(topic, b"body", keys=f"k{n}", **more).physical_offset for n in range(count)]


def queue_path(writer: StoreWriter, start: int = 0, queue: str = "T/0", tree: str = "consumequeue") -> Path:
    return writer.root / tree / queue / f"{start:020d}"


def edit(path: Path, position: int, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_bytes() if path.exists() else bytes(FILE_SIZE)
    path.write_bytes(before[:position] + data + before[position + len(data) :])


def only(report):
    findings = findings_of(report)
    assert len(findings) == 1, told(report)
    assert report.exit_code == 4
    return findings[0]


def queues(report):
    return {name: value for name, value in msgspec.to_builtins(report.details.queues).items() if value}


def several_queues(writer: StoreWriter) -> None:
    for queue_id in (0, 1, 7):
        fill(writer, 25, queue_id=queue_id)
    (writer.root / "consumequeue" / "T" / "2").mkdir(parents=True)


def other_transaction_states(writer: StoreWriter) -> None:
    for flag in (0, 4, 8, 12, 0):
        fill(writer, 2, sys_flag=flag)


def a_queue_that_began_late(writer: StoreWriter) -> None:
    for offset in range(17, 30):
        writer.append("T", queue_offset=offset)


def a_topic_made_again_with_its_queues_deleted(writer: StoreWriter) -> None:
    fill(writer, 7)
    del writer.queues["T", 0]
    for offset in range(5):
        writer.append("T", queue_offset=offset)


def a_topic_made_again_while_its_queues_survived(writer: StoreWriter) -> None:
    """A broker appends queue offset 0 wherever the queue is, and leaves out what follows until it has caught up."""
    fill(writer, 4)
    for offset in range(7):
        writer.append("T", queue_offset=offset)


def a_deleted_topic(writer: StoreWriter) -> None:
    fill(writer, 4, "Gone")
    fill(writer, 4)
    del writer.topic_attributes["Gone"], writer.queues["Gone", 0]


def light_queues_and_copies_with_old_numbers(writer: StoreWriter) -> None:
    for topic, offset in (("T", 0), ("T", 1), ("T", 2), ("%DLQ%group", 1)):
        light = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": str(offset)}
        writer.append(topic, properties=light)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (several_queues, {"queues": 4, "matched": 75}),
        (other_transaction_states, {"queues": 1, "matched": 6}),
        (a_queue_that_began_late, {"queues": 1, "matched": 13, "fillers": 17 % UNITS}),
        (a_topic_made_again_with_its_queues_deleted, {"queues": 1, "matched": 5, "earlierLife": 7}),
        (a_topic_made_again_while_its_queues_survived, {"queues": 1, "matched": 7, "restarts": 1}),
        (a_deleted_topic, {"queues": 2, "matched": 4, "deletedTopics": 4}),
        (light_queues_and_copies_with_old_numbers, {"queues": 3, "matched": 7}),
    ],
)
def test_what_brokers_leave_is_nothing_wrong(writer, verify, written, expected) -> None:
    written(writer)
    writer.close()
    report = verify()
    assert_clean(report)
    assert queues(report) == expected
    assert any("are not in topics.json: Gone" in note for note in report.notes) == ("deletedTopics" in expected)


@pytest.mark.parametrize("state", ["crash", "live"])
def test_what_is_not_dispatched_yet_is_lag_after_a_crash_and_beside_a_broker(
    writer, verify, state, monkeypatch
) -> None:
    fill(writer, 5)
    writer.append("Other")
    writer.append("T", queue=False, index=False)
    writer.append("New", queue=False, index=False, keys="k")
    writer.crash()
    if state == "live":
        from spark_jobs.scan import source

        real = source.read_store_state
        monkeypatch.setattr(source, "read_store_state", lambda root: type(real(root))(True, True, 1, 1))
    report = verify()
    assert_clean(report)
    assert queues(report)["lag"] == 2
    assert report.details.index.lag == 1
    assert {"crash": report.details.log.crashed, "live": report.details.log.live}[state]


def test_other_delay_levels_are_a_hint_and_a_damaged_delivery_time_is_a_finding(tmp_path, verify) -> None:
    with StoreWriter(tmp_path / "store", delay_levels="7s 8s 9s") as writer:
        for _ in range(4):
            writer.append("SCHEDULE_TOPIC_XXXX", properties={"DELAY": "2"}, queue_id=1)
    report = verify()
    assert_clean(report)
    assert "the delivery times of 4 units of the schedule topic do not follow" in report.notes[0]
    assert verify(delay_levels="7s 8s 9s").notes == []
    path = queue_path(writer, queue="SCHEDULE_TOPIC_XXXX/1")
    edit(path, 2 * 20 + 12, packed(1_700_000_000_000, 8))
    finding = only(verify(delay_levels="7s 8s 9s"))
    assert (finding.kind, finding.place, finding.position) == (Kind.UNIT, "unit 2 tags_code", 52)


@pytest.mark.parametrize(("lost", "start"), [([1, 2, 3], 3), ([0, 50, 89], 17)])
def test_what_a_rebuild_puts_in_the_place_of_lost_messages_is_as_it_should_be(
    writer, tmp_path, verify, lost, start
) -> None:
    for number in range(90):
        writer.append("T", b"body", queue_offset=start + number)
    writer.close()
    for number in lost:
        gone = writer.written[number]
        writer.overwrite(gone.physical_offset + 4, bytes(gone.size - 4))
    rebuilt = Rebuilt(writer.root, tmp_path / "rebuilding", consume_queue_file_size=FILE_SIZE)
    shutil.rmtree(writer.root / "consumequeue")
    shutil.copytree(rebuilt.work.staged / "consumequeue", writer.root / "consumequeue")
    report = verify()
    assert {finding.kind for finding in findings_of(report)} <= {Kind.RECORD}, told(report)
    numbers, built = report.details.queues, rebuilt.details
    assert numbers.matched == built.units == 90 - len(lost)
    assert (numbers.stand_ins, numbers.fillers) == (built.repeated + built.unreadable, built.pre_blank)


def test_a_missing_unit_makes_all_that_follow_stand_elsewhere(writer, verify) -> None:
    fill(writer, 30)
    writer.append("T", queue=False)
    offsets = fill(writer, 5)
    writer.close()
    missing, shifted = findings_of(verify())
    assert missing.kind == Kind.MISSING_UNIT
    assert missing.physical_offset == writer.written[30].physical_offset
    assert (shifted.kind, shifted.place, shifted.physical_offset) == (Kind.SHIFTED_UNIT, "unit 30", offsets[0])
    assert Path(shifted.path) == queue_path(writer, 600)


def test_an_extension_that_is_gone(tmp_path, verify) -> None:
    with StoreWriter(tmp_path / "store", ext_bit_map=b"\1\2", ext_file_size=128) as writer:
        fill(writer, 12)
    assert_clean(verify())
    (writer.root / "consumequeue_ext" / "T" / "0" / f"{128:020d}").unlink()
    findings = findings_of(verify())
    assert {finding.kind for finding in findings} <= {Kind.EXT_UNIT, Kind.FILE}
    assert sum(finding.kind == Kind.EXT_UNIT for finding in findings) >= 5


def test_a_queue_in_the_tree_of_the_other_kind(writer, verify) -> None:
    fill(writer, 3)
    writer.close()
    (writer.root / "batchconsumequeue" / "T" / "0").mkdir(parents=True)
    assert only(verify()).kind == Kind.FILE


def test_queues_of_rocksdb_are_said_not_to_be_compared(tmp_path: Path) -> None:
    report = verify_here(unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-rocksdb"), tmp_path / "work")
    assert report.exit_code == 0
    assert "no queue files: queues of RocksDB are not compared" in report.notes


SLOTS, ENTRIES = 13, 40
FIRST_ENTRY = 40 + 4 * SLOTS


def make_index(tmp_path: Path, count: int = 60) -> StoreWriter:
    with StoreWriter(tmp_path / "store", segment_size=4096, index_slots=SLOTS, index_entries=ENTRIES) as writer:
        fill_index(writer, count)
    return writer


def fill_index(writer, count, **more) -> None:
    start = len(writer.written)
    for n in range(start, start + count):
        stamp = 1_700_000_000_000 + 700 * n
        writer.append("T", b"body", keys=f"k{n}", unique_key=f"u{n}", tags="TagA", store_timestamp=stamp, **more)


def index_numbers(report):
    return {name: value for name, value in msgspec.to_builtins(report.details.index).items() if value}


def kinds(report):
    return Counter(finding.kind for finding in findings_of(report))


def compacted(store, *, drop=lambda _: False) -> None:
    """Put files of a compaction without marks in the place of the index; what `drop` chooses is left out."""
    dropped = {(index_hash(text), r.physical_offset) for r in store.records for text in index_keys(r) if drop(text)}
    paths = store.index_paths()
    entries = {entry for path in paths for entry in read_entries(path.read_bytes(), SLOTS)} - dropped
    end = int.from_bytes(paths[-1].read_bytes()[24:32])
    for path in paths:
        path.unlink()
    made = build_compacted(keep_entries(entries, store.records), SLOTS, ENTRIES, end)
    for path, data in zip(paths, made, strict=False):
        path.write_bytes(data)


def test_what_a_compaction_left_out_is_a_note(tmp_path, verify) -> None:
    writer = make_index(tmp_path)
    compacted(writer, drop=lambda text: text.endswith("3"))
    report = verify()
    assert_clean(report)
    assert index_numbers(report)["dropped"] > 0
    assert report.notes[0].startswith("compacted index files have no entry for up to ")


@pytest.mark.parametrize(
    ("field", "marked"),
    [("key_hash", True), ("physical_offset", False), ("time_difference", True), ("previous", False)],
)
def test_a_damaged_entry_of_a_compacted_file(tmp_path, verify, field, marked) -> None:
    writer = make_index(tmp_path)
    if marked:
        compact_in_place(writer, tmp_path / "compacting")
    else:
        compacted(writer)
    path = sorted((writer.root / "index").iterdir())[2]
    place = FIRST_ENTRY + 20 * 17 + {"key_hash": 3, "physical_offset": 11, "time_difference": 15, "previous": 19}[field]
    flip(path, place, 2)
    finding = only(verify())
    assert (finding.kind, finding.place) == (Kind.ENTRY, f"entry 17 {field}")
    assert finding.position == place - {"physical_offset": 7}.get(field, 3)


@pytest.mark.parametrize("lost", [[0], [1, 2], [0, 1, 2, 3, 4]])
def test_lost_files_are_gaps_with_their_keys_counted(tmp_path, verify, lost) -> None:
    writer = make_index(tmp_path)
    paths = writer.index_paths()
    for number in lost:
        paths[number].unlink()
    finding = only(verify())
    assert finding.kind == Kind.MISSING_ENTRY
    assert finding.count == sum(len(writer.index.files[number].entries) for number in lost)
    first = writer.index.files[lost[0]]
    assert finding.physical_offset == first.entries[0][1]
    assert "rebuild index" in finding.remedy
    assert "--from-offset" not in finding.remedy
    behind = paths[lost[-1] + 1] if lost[-1] < 4 else writer.root / "index"
    assert Path(finding.path) == behind


def test_a_message_that_was_never_indexed(tmp_path, verify) -> None:
    writer = make_index(tmp_path, 20)
    left_out = writer.append("T", keys="x y", index=False)
    fill_index(writer, 20)
    writer.close()
    finding = only(verify())
    assert (finding.kind, finding.count, finding.physical_offset) == (Kind.MISSING_ENTRY, 2, left_out.physical_offset)
    assert "rebuild index --from-offset 0" in finding.remedy


def test_an_index_file_of_another_store(tmp_path, verify) -> None:
    writer = make_index(tmp_path, 30)
    with StoreWriter(tmp_path / "other", index_slots=SLOTS, index_entries=ENTRIES) as other:
        for n in range(13):
            other.append("Other", keys=f"x{n} y{n}", unique_key=f"z{n}", store_timestamp=1_700_000_000_000)
    target = writer.index_paths()[1]
    target.write_bytes(other.index_paths()[0].read_bytes())
    report = verify()
    assert {Path(finding.path) for finding in findings_of(report) if finding.kind == Kind.FILE} == {target}
    assert kinds(report)[Kind.MISSING_ENTRY] == 1


def test_two_files_with_the_same_entries(tmp_path, verify) -> None:
    writer = make_index(tmp_path)
    paths = writer.index_paths()
    copy = paths[4].with_name(str(int(paths[4].name) + 1))
    copy.write_bytes(paths[1].read_bytes())
    report = verify()
    assert kinds(report)[Kind.REPEATED_ENTRY] == 1
    assert Path(findings_of(report)[0].path) == copy


def test_findings_are_listed_up_to_a_limit_and_counted_beyond(tmp_path, verify) -> None:
    writer = make_index(tmp_path)
    path = writer.index_paths()[1]
    for number in range(2, 17):
        flip(path, FIRST_ENTRY + 20 * number + 12, 0x40)
    report = verify(limit=7)
    assert [each.more for each in report.details.findings] == [0] * 7 + [8]
    assert report.details.counts == {Kind.ENTRY: 15}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_file, "FIRST_PAUSE_SECONDS", 0)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("written") / "store"
    with StoreWriter(root, segment_size=4096, queue_file_size=400) as writer:
        for number in range(100):
            topic = ("Orders", "Payments")[number % 2]
            writer.append(topic, b"body %d" % number, keys=f"k{number}", tags="t")
    return root


@pytest.fixture
def store(written, tmp_path):
    shutil.copytree(written, tmp_path / "store")
    return tmp_path / "store"


def facts(report):
    report.seconds = report.steady_seconds = 0
    return msgspec.to_builtins(report)


def files(store, tree):
    return sorted(path for path in (store / tree).rglob("*") if path.is_file())


DAMAGES = {
    "nothing": lambda _store: None,
    "a segment is gone": lambda store: files(store, "commitlog")[1].unlink(),
    "an index entry": lambda store: flip(files(store, "index")[0], 40 + 4 * 13 + 20 * 5 + 3),
    "a queue unit": lambda store: flip(files(store, "consumequeue")[0], 7),
    "a queue is gone": lambda store: shutil.rmtree(store / "consumequeue" / "Orders"),
    "foreign files": lambda store: (store / "commitlog" / "core.1").write_bytes(b"x"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_report_is_that_of_the_same_store_on_a_disk(store, tmp_path, damage) -> None:
    DAMAGES[damage](store)
    expected = verify_here(store, tmp_path / "work")
    found = verify_in_memory(store, tmp_path / "work")
    assert facts(found) == facts(expected), told(found)
    assert (expected.exit_code == 0) == (damage in ("nothing", "foreign files"))


def test_a_url_that_holds_no_store_is_named(store, tmp_path) -> None:
    with in_memory(store) as url:
        with pytest.raises(NotAStore, match=f"^{url}/none is no store that can be served: found nothing there"):
            verify_here(f"{url}/none", tmp_path)
        with pytest.raises(NotAStore, match=f"^{url}/commitlog is no store that can be served: found segments, as if"):
            verify_here(f"{url}/commitlog", tmp_path)
        with pytest.raises(ConfigError, match="the log must lie in the store"):
            verify_here(url, tmp_path, commit_log_directories=("/elsewhere",))
