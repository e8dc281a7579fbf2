"""A broker that runs, one that crashed, one that stopped."""

import shutil
from pathlib import Path

from doctoring import findings_of, held_lock, make_store, only
from spark_jobs.publish._new_checkpoint import write_checkpoint
from storage.doctor._rescue_line import WHILE_LIVE
from storage.doctor.examine import examine
from storage.doctor.finding import CLEARED_BY_A_START, Severity


def test_a_crash_is_told_by_abort_without_a_lock(tmp_path: Path) -> None:
    writer, _ = make_store(tmp_path)
    writer.crash()
    finding = only(tmp_path, "liveness")
    assert (finding.severity, finding.path) == (Severity.WARNING, str(tmp_path / "abort"))
    assert finding.remedy == f"rocketlens rebuild index {tmp_path}"


def test_after_a_crash_that_cost_nothing_there_is_nothing_to_do(tmp_path: Path) -> None:
    """A rebuild of the index leaves such a store: its checkpoint keeps a broker from deleting index files."""
    writer, written = make_store(tmp_path)
    writer.crash()
    newest = max(each.store_timestamp for each in written)
    write_checkpoint(tmp_path / "checkpoint", tmp_path / "new", index_msg_timestamp=newest)
    (tmp_path / "new").rename(tmp_path / "checkpoint")
    diagnosis = examine(tmp_path)
    (finding,) = diagnosis.findings
    assert (finding.severity, finding.check, finding.remedy) == (Severity.INFO, "liveness", CLEARED_BY_A_START)
    assert diagnosis.is_clean


def test_after_a_crash_messages_without_entries_want_a_rebuild(tmp_path: Path) -> None:
    writer, written = make_store(tmp_path)
    newest = max(each.store_timestamp for each in written)
    for number in range(10):
        writer.append("T", b"late", keys=f"late{number}", index=False)
    writer.crash()
    write_checkpoint(tmp_path / "checkpoint", tmp_path / "new", index_msg_timestamp=newest)
    (tmp_path / "new").rename(tmp_path / "checkpoint")
    assert only(tmp_path, "liveness").remedy == f"rocketlens rebuild index {tmp_path}"


def test_while_a_broker_runs_nothing_is_to_be_typed_that_it_would_refuse(tmp_path: Path) -> None:
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


def test_a_broker_that_runs_is_good_to_know_and_no_fault(tmp_path: Path) -> None:
    writer, _ = make_store(tmp_path)
    writer.flush()
    with held_lock(tmp_path) as process:
        diagnosis = examine(tmp_path)
    assert diagnosis.state == "live"
    assert diagnosis.is_clean
    (finding,) = findings_of(diagnosis, "liveness")
    assert f"process {process}" in finding.found
    assert finding.remedy == "no fix is needed"
