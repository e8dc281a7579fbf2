"""The whole examination, of stores that a real broker left and of stores with a fault."""

import shutil
from pathlib import Path

import pytest

import golden_store
import oracles
from doctoring import findings_of, make_store
from storage.doctor import _sampling
from storage.doctor._sampling import sample_log
from storage.doctor.examine import examine
from storage.doctor.finding import Severity
from storage.log.commit_log import CommitLog
from store_writer import StoreWriter


def test_a_store_that_a_broker_left_cleanly_is_clean(g1_store: Path) -> None:
    diagnosis = examine(g1_store)
    assert diagnosis.findings == ()
    assert diagnosis.is_clean
    assert (diagnosis.state, diagnosis.minimum, diagnosis.end) == ("stopped", 0, 156014)
    assert (diagnosis.queues_end, diagnosis.unindexed_messages) == (156014, 0)
    coverage = diagnosis.coverage
    assert (coverage.log, coverage.index) == (((0, 156014),), ((0, 156014),))
    assert coverage.times == tuple(sorted(coverage.times))


def test_a_crashed_store_is_told_from_a_clean_one_by_one_finding(g1_crashed_store: Path) -> None:
    diagnosis = examine(g1_crashed_store)
    (finding,) = diagnosis.findings
    assert (finding.severity, finding.check) == (Severity.WARNING, "liveness")
    assert finding.path == str(g1_crashed_store / "abort")
    assert "deletes 1 of 10 index files" in finding.meaning
    assert not diagnosis.is_clean


@pytest.mark.parametrize("name", ["g2-ext", "g2-hosts", "g2-queues-5.5.1", "g2-dledger"])
def test_other_recorded_stores_are_clean(name: str, tmp_path: Path) -> None:
    root = golden_store.unpack("store", tmp_path, archives=golden_store.GOLDEN / "g2" / name)
    assert examine(root, tuple(sorted(root.glob("commitlog-*")))).is_clean


def test_entries_that_a_group_had_not_agreed_on_are_named_and_no_fault(tmp_path: Path) -> None:
    root = golden_store.unpack("store", tmp_path, archives=golden_store.GOLDEN / "g2" / "g2-dledger")
    checkpoint = root / "dledger-n0" / "checkpoint"
    checkpoint.write_text("committedIndex=70\n")
    diagnosis = examine(root)
    (finding,) = diagnosis.findings
    assert (finding.severity, finding.path) == (Severity.INFO, str(checkpoint))
    assert diagnosis.is_clean
    assert f"entries from physical offset {finding.physical_offset} on lie behind its committedIndex" == finding.found
    assert diagnosis.coverage.queues == ((0, diagnosis.end),)


def test_entries_without_a_message_at_both_ends_of_a_log_are_no_fault(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=4096, is_ledger=True)
    writer.log.write_empty_entry()
    for number in range(40):
        writer.append("T", b"x" * 100, keys=f"k{number}", unique_key=f"u{number}", tags="A")
    writer.log.write_empty_entry()
    writer.log.write_empty_entry(3, b"n0-127.0.0.1:40911")
    writer.close()
    assert examine(tmp_path / "store").findings == ()


def test_samples_of_a_large_log_are_spread_over_it(tmp_path: Path) -> None:
    writer, written = make_store(tmp_path / "store", 700)
    writer.close()
    samples = sample_log(CommitLog.open([tmp_path / "store" / "commitlog"]))
    known = {record.physical_offset: record for record in written}
    assert [sample.physical_offset for sample in samples] == sorted(known)  # all of it is the tail
    for sample in samples:
        record = known[sample.physical_offset]
        assert (sample.size, sample.queue_offset, sample.queue_id) == (
            record.size,
            record.queue_offset,
            record.queue_id,
        )
        assert sample.store_timestamp == record.store_timestamp
    coverage = examine(tmp_path / "store").coverage
    assert coverage.log == coverage.queues == coverage.index == ((0, written[-1].physical_offset + written[-1].size),)
    assert coverage.times[0] == (0, written[0].store_timestamp)
    assert 60 <= len(coverage.times) <= 70


def test_records_behind_damage_of_any_length_are_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where places are farther apart than such damage is long; here there is one, at the beginning."""
    monkeypatch.setattr(_sampling, "PLACES", 1)
    monkeypatch.setattr(_sampling, "TAIL_BYTES", 0)
    writer = StoreWriter(tmp_path / "store", segment_size=1 << 21)
    written = [writer.append("T", bytes(100_000)) for _ in range(140)]
    for record in written[:135]:
        writer.overwrite(record.physical_offset, bytes(record.size))
    writer.close()
    samples = sample_log(CommitLog.open([tmp_path / "store" / "commitlog"]))
    assert [sample.physical_offset for sample in samples] == [each.physical_offset for each in written[135:139]]


def test_a_store_of_nothing_but_a_log_is_examined(tmp_path: Path, g1_store: Path) -> None:
    shutil.copytree(g1_store / "commitlog", tmp_path / "store" / "commitlog")
    diagnosis = examine(tmp_path / "store")
    assert {finding.check for finding in diagnosis.findings} == {"queues", "index-reach", "checkpoint", "config"}
    keyed = [record for record in oracles.read_log(g1_store / "commitlog") if oracles.index_keys(record)]
    assert diagnosis.unindexed_messages == len(keyed)
    assert (diagnosis.coverage.index, diagnosis.coverage.queues) == ((), ())


def test_an_empty_log_is_examined(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    diagnosis = examine(tmp_path)
    assert (diagnosis.minimum, diagnosis.end) == (0, 0)
    assert findings_of(diagnosis, "log-end") == []


def test_many_findings_of_one_kind_are_counted(tmp_path: Path) -> None:
    writer, _ = make_store(tmp_path / "store")
    writer.close()
    for number in range(30):
        (tmp_path / "store" / "commitlog" / f"notes-{number}").write_text("x")
    found = findings_of(examine(tmp_path / "store"), "segments")
    assert len(found) == 21
    assert found[-1].found == "10 more like these"
