"""The examination of stores that a real broker left, and of logs, files and times with a fault."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import golden_store
import oracles
from doctoring import NOW, SEGMENT, findings_of, held_lock, make_store, only, put
from golden_frames import parse_java_json
from golden_store import CASES, GOLDEN, unpack
from oracles import packed
from protocol.system_topics import SCHEDULE_TOPIC
from spark_jobs.publish._new_checkpoint import write_checkpoint
from storage.doctor._config_files import OLDER_USED
from storage.doctor._next_start import NO_START, RIGHT_NAMES
from storage.doctor._rescue_line import WHILE_LIVE
from storage.doctor._sampling import sample_log
from storage.doctor.examine import examine
from storage.doctor.finding import (
    ADVICE,
    CLEARED_BY_A_START,
    Finding,
    Findings,
    FoundAt,
    Kind,
    Known,
    Severity,
    capped,
    counts_of,
    grouped,
)
from storage.log.commit_log import CommitLog


def test_a_store_that_a_broker_left_cleanly_is_clean(g1_store) -> None:
    diagnosis = examine(g1_store)
    assert diagnosis.findings == ()
    assert diagnosis.is_clean
    assert (diagnosis.state, diagnosis.minimum, diagnosis.end) == ("stopped", 0, 156014)
    assert (diagnosis.queues_end, diagnosis.unindexed_messages) == (156014, 0)
    coverage = diagnosis.coverage
    assert (coverage.log, coverage.index) == (((0, 156014),), ((0, 156014),))
    assert coverage.times == tuple(sorted(coverage.times))


def test_a_crashed_store_is_told_from_a_clean_one_by_one_finding(g1_crashed_store) -> None:
    diagnosis = examine(g1_crashed_store)
    (finding,) = diagnosis.findings
    assert (finding.severity, finding.check) == (Severity.WARNING, "liveness")
    assert finding.path == str(g1_crashed_store / "abort")
    assert "deletes 1 of 10 index files" in finding.meaning
    assert not diagnosis.is_clean


@pytest.mark.parametrize("name", ["g2-ext", "g2-hosts", "g2-queues-5.5.1", "g2-dledger"])
def test_other_recorded_stores_are_clean(name, tmp_path) -> None:
    root = golden_store.unpack("store", tmp_path, archives=golden_store.GOLDEN / "g2" / name)
    assert examine(root, tuple(sorted(root.glob("commitlog-*")))).is_clean


def test_samples_of_a_large_log_are_spread_over_it(tmp_path) -> None:
    writer, written = make_store(tmp_path / "store", 700)
    writer.close()
    samples = sample_log(CommitLog.open([tmp_path / "store" / "commitlog"]))
    known = {record.physical_offset: record for record in written}
    assert [sample.physical_offset for sample in samples] == sorted(known)  # all of it is the tail
    for sample in samples:
        record = known[sample.physical_offset]
        for field in ("size", "queue_offset", "queue_id", "store_timestamp"):
            assert getattr(sample, field) == getattr(record, field), field
    coverage = examine(tmp_path / "store").coverage
    assert coverage.log == coverage.queues == coverage.index == ((0, written[-1].physical_offset + written[-1].size),)
    assert coverage.times[0] == (0, written[0].store_timestamp)
    assert 60 <= len(coverage.times) <= 70


def test_a_store_of_nothing_but_a_log_is_examined(tmp_path, g1_store) -> None:
    shutil.copytree(g1_store / "commitlog", tmp_path / "store" / "commitlog")
    diagnosis = examine(tmp_path / "store")
    assert {finding.check for finding in diagnosis.findings} == {"queues", "index-reach", "checkpoint", "config"}
    keyed = [record for record in oracles.read_log(g1_store / "commitlog") if oracles.index_keys(record)]
    assert diagnosis.unindexed_messages == len(keyed)
    assert (diagnosis.coverage.index, diagnosis.coverage.queues) == ((), ())


def test_a_crash_is_told_by_abort_without_a_lock_and_one_that_cost_nothing_is_none_to_mend(tmp_path) -> None:
    writer, written = make_store(tmp_path)
    writer.crash()
    finding = only(tmp_path, "liveness")
    assert (finding.severity, finding.path) == (Severity.WARNING, str(tmp_path / "abort"))
    assert finding.remedy == f"rocketlens rebuild index {tmp_path}"
    # A rebuild of the index leaves such a store: its checkpoint keeps a broker from deleting index files.
    newest = max(each.store_timestamp for each in written)
    write_checkpoint(tmp_path / "checkpoint", tmp_path / "new", index_msg_timestamp=newest)
    (tmp_path / "new").rename(tmp_path / "checkpoint")
    diagnosis = examine(tmp_path)
    (finding,) = diagnosis.findings
    assert (finding.severity, finding.check, finding.remedy) == (Severity.INFO, "liveness", CLEARED_BY_A_START)
    assert diagnosis.is_clean


def test_while_a_broker_runs_nothing_is_to_be_typed_that_it_would_refuse(tmp_path) -> None:
    writer, _ = make_store(tmp_path / "store")
    writer.close()
    shutil.rmtree(writer.root / "consumequeue" / "T" / "1")
    (writer.root / "consumequeue" / "T" / "0" / "notes").write_text("x")
    (writer.root / "index" / "20990101000000001").mkdir()
    (writer.root / "checkpoint").write_bytes(b"")
    with held_lock(writer.root):
        live = examine(writer.root)
    checks = {"queues", "queue-reach", "index-files", "checkpoint"}
    assert {each.check for each in live.findings if each.remedy == WHILE_LIVE} >= checks
    assert {each.remedy for each in live.findings} <= {WHILE_LIVE, "no fix is needed", "nothing while a broker runs"}
    (line,) = {each.remedy for each in examine(writer.root).findings}
    assert line == f"rm {writer.root}/checkpoint && rocketlens rebuild all {writer.root}"


MOMENT = 1_767_323_045.9
"""The same moment in seconds, at the end of its second."""


@pytest.fixture
def rebuilt(tmp_path):
    """A store whose queue file is too short, and which a rebuild left so: all its files are older than the backup."""
    writer, _ = make_store(tmp_path, 400)
    writer.close()
    with (tmp_path / "consumequeue" / "T" / "1" / f"{1000:020d}").open("r+b") as file:
        file.truncate(980)
    (tmp_path / "consumequeue.bak-20260102030405").mkdir()
    for path in tmp_path.rglob("*"):
        os.utime(path, (MOMENT, MOMENT))
    return tmp_path


def remedies(rebuilt):
    found = findings_of(examine(rebuilt), "queues")
    assert found
    return {finding.remedy for finding in found}


def test_what_a_rebuild_left_is_not_to_be_rebuilt_again(rebuilt) -> None:
    (remedy,) = remedies(rebuilt)
    assert remedy.startswith(f"`rocketlens rebuild queues {rebuilt}` was run at 2026-01-02 03:04:05 UTC and left this")


@pytest.mark.parametrize("name", ["abort", f"consumequeue/T/1/{1000:020d}"])
def test_once_something_was_written_a_rebuild_is_advised_again(rebuilt, name) -> None:
    (rebuilt / name).touch()
    os.utime(rebuilt / name, (time.time(), time.time()))
    whole = name == "abort"  # then the index lacks messages too, and one command does both
    assert remedies(rebuilt) == {f"rocketlens rebuild {'all' if whole else 'queues'} {rebuilt}"}


@pytest.mark.parametrize(("position", "value"), [(0, 2**60), (8, -1), (32, -1), (40, 2**60)])
def test_a_number_that_cannot_be_is_named(root, position, value) -> None:
    put(root / "checkpoint", position, packed(value, 8))
    finding = only(root, "checkpoint")
    assert (finding.severity, finding.path) == (Severity.WARNING, str(root / "checkpoint"))
    assert finding.position == position
    if position == 0:
        assert finding.remedy == f"rm {root}/checkpoint && rocketlens rebuild index {root}"


@pytest.mark.parametrize("size", [0, 47])
def test_a_checkpoint_that_is_too_short_is_named(root, size) -> None:
    os.truncate(root / "checkpoint", size)
    assert f"only {size} are there" in only(root, "checkpoint").found


@pytest.mark.parametrize("case", ["copied", "crashed", "delayed"])
def test_a_missing_directory_is_a_fault_where_a_broker_ran_or_something_waits(case, tmp_path) -> None:
    writer, _ = make_store(tmp_path)
    if case == "delayed":
        writer.append(SCHEDULE_TOPIC, b"later", queue_id=2)
    (writer.crash if case == "crashed" else writer.close)()
    shutil.rmtree(tmp_path / "config")
    finding = only(tmp_path, "config")
    assert finding.path == str(tmp_path / "config")
    assert finding.severity is (Severity.INFO if case == "copied" else Severity.WARNING)
    assert finding.remedy.endswith("copy it from a slave or a backup")
    assert (SCHEDULE_TOPIC in finding.meaning) == (case == "delayed")


@pytest.mark.parametrize("content", ["", "[1]"])
def test_a_file_that_cannot_be_read_is_named(root, content) -> None:
    path = root / "config" / "topics.json"
    path.write_text(content)
    found = findings_of(examine(root), "config", Severity.WARNING)
    assert {finding.path for finding in found} == {str(path)}
    assert {finding.remedy.startswith("rocketlens rescue ") for finding in found} == {True}  # there is no .bak
    path.with_name("topics.json.bak").write_text("{}")
    found = findings_of(examine(root), "config", Severity.WARNING)
    assert {finding.remedy for finding in found} == {f"cp -p {path} {path}.damaged && cp -p {path}.bak {path}"}
    assert OLDER_USED in {finding.meaning for finding in found}


@pytest.mark.parametrize("was_there", [False, True])
def test_a_whole_object_before_the_end_of_an_older_file_is_kept_and_the_file_too(was_there, tmp_path) -> None:
    committed = unpack("store", tmp_path, archives=CASES / "B13-stale-tail-json")
    path = committed / "config" / "consumerOffset.json"
    damaged = path.read_bytes()
    if was_there:
        path.with_name(f"{path.name}.damaged").write_bytes(b"of before")
    (line,) = {finding.remedy for finding in findings_of(examine(committed), "config", Severity.WARNING)}
    subprocess.run(["sh", "-ec", line], check=True)
    assert parse_java_json(path.read_text())["offsetTable"] == {"orders@g": {"0": 10}}
    assert path.with_name(f"{path.name}.damaged{'-2' * was_there}").read_bytes() == damaged
    assert findings_of(examine(committed), "config") == []


def test_an_offset_beyond_its_queue_is_named(tmp_path) -> None:
    writer, _ = make_store(tmp_path)
    writer.consumer_offsets = {"T@g": {0: 101}}
    writer.close()
    finding = only(tmp_path, "config")
    assert finding.path == str(tmp_path / "config" / "consumerOffset.json")
    assert finding.found == "group g is at offset 101 of T 0, which ends at 100"


@pytest.mark.parametrize("has_bits", [True, False])
def test_filters_that_a_start_throws_away_are_warned_of(has_bits, tmp_path) -> None:
    committed = unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-filters")
    path = committed / "config" / "consumerFilter.json"
    saved = parse_java_json(path.read_text())
    filters = [each for topic in saved["filterDataByTopic"].values() for each in topic["groupFilterData"].values()]
    assert len(filters) > 3
    if not has_bits:
        del filters[0]["bloomFilterData"]  # as a broker 5.5.1 saves all of them by default
        path.write_text(json.dumps(saved))
    found = [each for each in findings_of(examine(committed), "config") if each.path == str(path)]
    assert [each.severity for each in found] == ([] if has_bits else [Severity.WARNING])
    assert all("heartbeats" in each.meaning and "enableCalcFilterBitMap=true" in each.remedy for each in found)
    assert all(f"1 filter of {len(filters)} without bloomFilterData" in each.found for each in found)


def test_what_one_remedy_mends_makes_one_group() -> None:
    findings = Findings("x")
    for number in range(21):
        findings.add(Kind.FILE, Severity.WARNING, f"/a{number}", f"{number} bytes", "it is short", "rebuild")
        findings.add(Kind.UNIT, Severity.WARNING, f"/b{number}", f"{number} are lost", "it is short", "rebuild")
    findings.add(Kind.FILE, Severity.WARNING, "/d", "1 byte", "it is empty", "rm /d")
    findings.add(Kind.FILE, Severity.WARNING, "/e", "1 byte", "it is empty", "rm /e")
    findings.add(Kind.FILE, Severity.ERROR, "/c", "f", "it is short", "rebuild")
    groups = grouped(findings.listed())
    shape = [(group.findings[0].severity.value, group.findings[0].path, group.count) for group in groups]
    assert shape == [
        ("warning", "/a0", 21), ("warning", "/b0", 21), ("warning", "/d", 1), ("warning", "/e", 1), ("error", "/c", 1),
    ]  # fmt: skip
    assert [len(group.findings) for group in groups] == [20, 20, 1, 1, 1]


@given(st.lists(st.sampled_from(sorted(ADVICE["queues"]))), st.integers(1, 5), st.integers(0, 20))
def test_what_is_not_listed_is_counted(kinds: list[Kind], limit: int, in_all: int) -> None:
    findings = Findings("queues", Known.READ, limit)
    for number, kind in enumerate(kinds):
        findings.note(kind, FoundAt("/q", f"unit {number}"), "a", "b")
        findings.more(kind, number % 3)
    expected = Counter(kinds)
    for number, kind in enumerate(kinds):
        expected[kind] += number % 3
    assert findings.counts == counts_of(capped(findings.listed(), in_all)) == expected
    kept = capped(findings.listed(), in_all)
    assert sum(not each.more for each in kept) <= in_all
    assert all(sum(each.kind == kind and not each.more for each in kept) <= limit for kind in kinds)


def test_every_advice_has_its_words_and_a_place_says_what_is_known_of_it() -> None:
    # Every advice where everything is read has its words and a packed finding is the same.
    for check, kinds in ADVICE.items():
        findings = Findings(check, Known.READ)
        for kind, (severity, meaning, remedy) in kinds.items():
            assert (severity is not Severity.INFO, bool(meaning), bool(remedy)) == (True, True, True)
            findings.note(kind, FoundAt("/p"), "a", "b")
        packed = msgspec.msgpack.encode(findings.listed())
        assert msgspec.msgpack.decode(packed, type=list[Finding]) == findings.listed()
    # A place says what is known of it.
    findings = Findings("x")
    findings.add(Kind.FILE, Severity.INFO, FoundAt("/s/a", "unit 3", 12, 4096), "found", "meaning", "")
    assert findings.listed()[0].where == "/s/a, unit 3, byte 12, physical offset 4096"


def damage(root, record, position=90):
    base = record.physical_offset // SEGMENT * SEGMENT
    path = root / "commitlog" / f"{base:020d}"
    put(path, record.physical_offset - base + position, b"\xff\xff")
    return path


def test_a_damaged_record_in_an_earlier_segment_is_named_where_it_starts(tmp_path: Path) -> None:
    writer, written = make_store(tmp_path)
    writer.close()
    path = damage(tmp_path, written[10])
    finding = only(tmp_path, "log-end")
    assert (finding.severity, finding.path) == (Severity.ERROR, str(path))
    assert finding.position == finding.physical_offset == written[10].physical_offset
    said = "expected an intact record, found a damaged record: its body does not match its CRC"
    line = f"rocketlens find {tmp_path} {written[10].physical_offset} --as physical-offset --full"
    look = f"what is left of the first: {line}"
    assert finding.what == f"{said} ({written[10].size} bytes passed over; {look})"
    assert finding.remedy.startswith(f"rocketlens rescue {tmp_path} --out ")
    (left, right) = examine(tmp_path).coverage.log
    assert (left[1], right[0]) == (written[10].physical_offset, written[11].physical_offset)


def test_segments_that_have_each_others_names_are_no_end_that_a_broker_may_write_over(tmp_path: Path) -> None:
    writer, _ = make_store(tmp_path, 400)
    writer.close()
    log = tmp_path / "commitlog"
    first, other = (log / f"{number * SEGMENT:020d}" for number in (0, 2))
    for each in sorted(log.iterdir())[3:]:
        each.unlink()
    swapped = first.read_bytes(), other.read_bytes()
    other.write_bytes(swapped[0])
    first.write_bytes(swapped[1])
    (log / f"{SEGMENT:020d}").write_bytes(swapped[1])
    found = findings_of(examine(tmp_path), "log-end")
    assert [each.path for each in found] == [str(path) for path in sorted(log.iterdir())]
    for each, stated in zip(found, (other, other, first), strict=True):
        assert f"its records are those of {stated.name}: do not start a broker here" in each.meaning
        assert each.remedy == RIGHT_NAMES


def other_content(data: st.DataObject, log: Path, own: bytes) -> tuple[str, bytes]:
    kind = data.draw(st.sampled_from(["junk", "another", "half", "zeros"]))
    if kind == "junk":
        return kind, data.draw(st.binary(min_size=1, max_size=300).filter(lambda each: any(each[:8]))).ljust(300, b"x")
    if kind == "another":
        return kind, (log / f"{data.draw(st.integers(0, 1)) * SEGMENT:020d}").read_bytes()
    return kind, own[: data.draw(st.integers(4, 80))].ljust(SEGMENT, b"\0") if kind == "half" else bytes(SEGMENT)


@settings(max_examples=settings.default.max_examples // 8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), crashed=st.booleans())
def test_a_last_segment_that_is_none_is_named_and_so_is_one_of_zeros_that_had_messages(data, crashed) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "store"
        writer, written = make_store(root, 400)
        (writer.crash if crashed else writer.close)()
        last = root / "commitlog" / f"{written[-1].physical_offset // SEGMENT * SEGMENT:020d}"
        kind, content = other_content(data, root / "commitlog", last.read_bytes())
        last.write_bytes(content[:SEGMENT])
        if kind == "junk":
            os.truncate(last, SEGMENT)
        found = [each for each in findings_of(examine(root), "log-end") if each.path == str(last)]
        assert len(found) == 1
        for each in found:
            assert (each.severity, each.position, each.physical_offset) == (Severity.ERROR, 0, int(last.name))
            assert NO_START in each.meaning
            is_rescue = each.remedy.startswith("rocketlens rescue ")
            assert (is_rescue, each.remedy == RIGHT_NAMES) == (kind != "another", kind == "another")
            assert ("there is nothing, and queues lead to messages" in each.found) == (kind == "zeros")
        assert not [each for each in examine(root).findings if "nothing to do" in each.remedy]


def segment(root: Path, number: int) -> Path:
    return root / "commitlog" / f"{number * SEGMENT:020d}"


@pytest.mark.parametrize(("harm", "severity", "position", "found"), [
    pytest.param(lambda path: path.unlink(), Severity.ERROR, -1, f"{SEGMENT} to {2 * SEGMENT}", id="missing"),
    pytest.param(lambda path: put(path, 0, bytes(4096)), Severity.ERROR, 0, "starts with zeros", id="zeros"),
    pytest.param(lambda path: put(path, 4, b"\xff"), Severity.ERROR, 0, "magic", id="a damaged first record"),
])  # fmt: skip
def test_a_damaged_segment_is_named(root, harm, severity, position, found) -> None:
    harm(segment(root, 1))
    finding = only(root, "segments")
    assert (finding.severity, finding.position, finding.physical_offset) == (severity, position, SEGMENT)
    assert found in finding.found


def test_a_segment_that_lies_twice_or_overlaps_is_named(root) -> None:
    # A segment that lies twice is named where it is not used.
    other = root / "other"
    other.mkdir()
    (other / segment(root, 1).name).write_bytes(segment(root, 1).read_bytes())
    finding = only(root, "segments", directories=[root / "commitlog", other])
    assert finding.path == str(other / segment(root, 1).name)
    assert str(segment(root, 1)) in finding.found
    # An overlap is named at the byte where it begins.
    put(segment(root, 1), SEGMENT, bytes(100))
    findings = [finding for finding in findings_of(examine(root), "segments") if "reaches" in finding.found]
    assert [(finding.path, finding.position) for finding in findings] == [(str(segment(root, 1)), SEGMENT)]


@pytest.mark.parametrize(("timestamp", "found"), [
    pytest.param(NOW - 60_000, ["stepped back by 60100 ms"], id="a step back"),
    pytest.param(NOW + 100 - 900, [], id="a step of less than a second"),
    pytest.param(int(time.time() * 1000) + 10**9, ["is in the future"], id="a time that has not come"),
])  # fmt: skip
def test_times_that_clocks_do_not_show_are_named(tmp_path: Path, timestamp: int, found: list[str]) -> None:
    writer, _ = make_store(tmp_path, 100)
    stepped = writer.append("T", b"x", store_timestamp=timestamp)
    writer.append("T", b"x", store_timestamp=max(timestamp, NOW))
    writer.close()
    findings = findings_of(examine(tmp_path), "clock")
    assert [finding.physical_offset for finding in findings] == [stepped.physical_offset] * len(found)
    assert all(said in finding.found for said, finding in zip(found, findings, strict=True))


def test_an_empty_segment_is_named_unless_it_is_the_last_which_a_start_deletes(root: Path) -> None:
    segment(root, 1).write_bytes(b"")
    segment(root, 9).write_bytes(b"")
    findings = findings_of(examine(root), "segments", Severity.WARNING)
    assert [finding.path for finding in findings if finding.found == "is empty"] == [str(segment(root, 1))]
