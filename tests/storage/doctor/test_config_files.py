"""The doctor on the files of `config/`."""

import shutil
import sys
from pathlib import Path

import pytest

from doctoring import findings_of, make_store, only
from storage.doctor.examine import examine
from storage.doctor.finding import Kind, Severity
from storage.layout.rocksdb_config import EXTRA


@pytest.fixture
def root(tmp_path: Path) -> Path:
    writer, _ = make_store(tmp_path)
    writer.consumer_offsets = {"T@g": {0: 100, 1: 3}}
    writer.close()
    return tmp_path


def test_a_missing_directory_is_named(root: Path) -> None:
    shutil.rmtree(root / "config")
    assert only(root, "config").path == str(root / "config")


@pytest.mark.parametrize("content", ["", "{", "[1]", "\0\0"])
def test_a_file_that_cannot_be_read_is_named(root: Path, content: str) -> None:
    path = root / "config" / "topics.json"
    path.write_text(content)
    found = findings_of(examine(root), "config", Severity.WARNING)
    assert {finding.path for finding in found} == {str(path)}


def test_what_only_a_missing_extra_hides_is_no_damage(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("topics", "consumerOffsets"):
        (root / "config" / name).mkdir()
        (root / "config" / name / "CURRENT").write_text("MANIFEST-000001\n")
    (root / "config" / "consumerOffset.json").unlink()
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    monkeypatch.setattr("storage.layout.store_config.can_read_databases", lambda: False)
    found = findings_of(examine(root), "config")
    assert {(each.kind, each.severity, each.remedy) for each in found} == {(Kind.NOT_COMPARED, Severity.INFO, EXTRA)}
    assert len(found) == 2


def test_an_offset_beyond_its_queue_is_named(tmp_path: Path) -> None:
    writer, _ = make_store(tmp_path)
    writer.consumer_offsets = {"T@g": {0: 101}}
    writer.close()
    finding = only(tmp_path, "config")
    assert finding.path == str(tmp_path / "config" / "consumerOffset.json")
    assert finding.found == "group g is at offset 101 of T 0, which ends at 100"


def test_topics_without_an_entry_are_good_to_know(tmp_path: Path) -> None:
    writer, _ = make_store(tmp_path)
    del writer.topic_attributes["T"]
    writer.close()
    finding = only(tmp_path, "config")
    assert (finding.severity, finding.found) == (Severity.INFO, "1 topic has queues but no entry: T")


def test_offsets_within_their_queues_are_as_they_should_be(root: Path) -> None:
    assert examine(root).findings == ()
