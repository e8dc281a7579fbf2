"""The doctor on messages that no queue has."""

import shutil
from pathlib import Path

import pytest

from doctoring import findings_of, make_store, only
from golden_store import GOLDEN, unpack
from storage.doctor.examine import examine
from storage.doctor.finding import Kind, Severity
from store_writer import StoreWriter

QUEUE_OFFSET = 20
"""Where a record has it."""


def test_messages_behind_the_last_dispatched_one_are_lag(tmp_path: Path) -> None:
    writer, written = make_store(tmp_path, 100)
    late = [writer.append("T", b"late", queue=False) for _ in range(5)]
    writer.close()
    finding = only(tmp_path, "queue-reach")
    assert (finding.severity, finding.physical_offset) == (Severity.WARNING, late[0].physical_offset)
    assert finding.place == "T 0"  # whose messages they are
    end = written[-1].physical_offset + written[-1].size
    assert f"the last {late[-1].physical_offset + late[-1].size - end} bytes" in finding.found
    diagnosis = examine(tmp_path)
    assert diagnosis.queues_end == end
    assert diagnosis.coverage.queues == ((0, end),)


@pytest.mark.parametrize("keeps_own", [False, True])
def test_queues_whose_units_lead_to_messages_of_others_are_no_lag_that_a_start_clears(
    tmp_path: Path, keeps_own: bool
) -> None:
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


@pytest.mark.parametrize("topics", ["T", "TV"])
def test_of_a_topic_whose_directory_has_another_name_no_start_clears_anything(tmp_path: Path, topics: str) -> None:
    """To a broker its units are those of another topic, and say that the log is dispatched."""
    writer = StoreWriter(tmp_path)
    for number in range(100):
        writer.append(topics[number % len(topics)], b"x")
    writer.close()
    (tmp_path / "consumequeue" / "T").rename(tmp_path / "consumequeue" / "U")
    findings = [each for each in examine(tmp_path).findings if each.severity is not Severity.INFO]
    assert {each.check for each in findings} >= {"queues", "queue-reach"}
    assert {each.remedy for each in findings} == {f"rocketlens rebuild queues {tmp_path}"}


def test_a_queue_that_is_gone_is_named_by_its_first_message(tmp_path: Path) -> None:
    writer, written = make_store(tmp_path, 100)
    writer.close()
    shutil.rmtree(tmp_path / "consumequeue" / "T" / "0")
    finding = only(tmp_path, "queue-reach")
    assert (finding.severity, finding.path) == (Severity.ERROR, str(tmp_path / "consumequeue" / "T" / "0"))
    assert finding.physical_offset == written[0].physical_offset
    assert finding.found == "50 sampled messages of T 0 without a unit, first: 0"


def test_a_deleted_topic_is_no_fault(tmp_path: Path) -> None:
    writer, _ = make_store(tmp_path, 50)
    gone = writer.append("Gone", b"x", queue=False)
    writer.append("T", b"x")
    del writer.topic_attributes["Gone"]
    writer.close()
    finding = only(tmp_path, "queue-reach")
    assert (finding.severity, finding.physical_offset) == (Severity.INFO, gone.physical_offset)


def test_a_light_queue_that_is_gone_is_named(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    writer.set_topic("%LMQ%a")
    for number in range(3):
        dispatched = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": str(number)}
        written = writer.append("T", b"body", properties=dispatched)
    writer.close()
    assert findings_of(examine(tmp_path), "queue-reach") == []
    shutil.rmtree(tmp_path / "consumequeue" / "%LMQ%a")
    finding = only(tmp_path, "queue-reach")
    assert (finding.severity, finding.path) == (Severity.ERROR, str(tmp_path / "consumequeue" / "%LMQ%a" / "0"))
    assert "3 sampled messages of %LMQ%a 0 without a unit, first: 0" in finding.found
    assert written.queue_offset == 2


def test_light_queues_that_a_broker_keeps_in_rocksdb_alone_are_no_fault(tmp_path: Path) -> None:
    root = unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-rocksdb-double")
    assert not findings_of(examine(root), "queue-reach")
    shutil.rmtree(root / "consumequeue" / "LedgerTopic" / "0")
    assert "of LedgerTopic 0 without a unit" in only(root, "queue-reach").found


def test_a_record_that_bears_another_place_than_its_unit_has_is_mended_by_no_rebuild(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    written = [writer.append("T", b"x") for _ in range(30)]
    writer.overwrite(written[11].physical_offset + QUEUE_OFFSET, (1000).to_bytes(8))
    writer.close()
    (finding,) = findings_of(examine(tmp_path), "queue-reach")
    assert (finding.kind, finding.physical_offset) == (Kind.QUEUE_OFFSET, written[11].physical_offset)
    assert finding.found == "1 sampled message of T 0 in another place than they bear, first: 1000"
    assert finding.remedy == "no command fixes this: it is a record of the log"
