"""The doctor on the files of `config/`."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from doctoring import findings_of, make_store, only
from golden_frames import parse_java_json
from golden_store import CASES, GOLDEN, unpack
from protocol.system_topics import SCHEDULE_TOPIC
from storage.doctor._config_files import OLDER_USED
from storage.doctor.examine import examine
from storage.doctor.finding import Kind, Severity
from storage.extras import install_line
from storage.layout.rocksdb_config import EXTRA


@pytest.fixture
def root(tmp_path: Path) -> Path:
    writer, _ = make_store(tmp_path)
    writer.consumer_offsets = {"T@g": {0: 100, 1: 3}}
    writer.close()
    return tmp_path


@pytest.mark.parametrize("case", ["copied", "crashed", "delayed"])
def test_a_missing_directory_is_a_fault_where_a_broker_ran_or_something_waits(case: str, tmp_path: Path) -> None:
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
def test_a_file_that_cannot_be_read_is_named(root: Path, content: str) -> None:
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
def test_a_whole_object_before_the_end_of_an_older_file_is_kept_and_the_file_too(
    was_there: bool, tmp_path: Path
) -> None:
    root = unpack("store", tmp_path, archives=CASES / "B13-stale-tail-json")
    path = root / "config" / "consumerOffset.json"
    damaged = path.read_bytes()
    if was_there:
        path.with_name(f"{path.name}.damaged").write_bytes(b"of before")
    (line,) = {finding.remedy for finding in findings_of(examine(root), "config", Severity.WARNING)}
    subprocess.run(["sh", "-ec", line], check=True)
    assert parse_java_json(path.read_text())["offsetTable"] == {"orders@g": {"0": 10}}
    assert path.with_name(f"{path.name}.damaged{'-2' * was_there}").read_bytes() == damaged
    assert findings_of(examine(root), "config") == []


def test_what_only_a_missing_extra_hides_is_no_damage(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("topics", "consumerOffsets"):
        (root / "config" / name).mkdir()
        (root / "config" / name / "CURRENT").write_text("MANIFEST-000001\n")
    (root / "config" / "consumerOffset.json").unlink()
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    monkeypatch.setattr("storage.layout.store_config.can_read_databases", lambda: False)
    found = findings_of(examine(root), "config")
    line = install_line(EXTRA)
    assert {(each.kind, each.severity, each.remedy) for each in found} == {(Kind.NOT_COMPARED, Severity.INFO, line)}
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


@pytest.mark.parametrize("has_bits", [True, False])
def test_filters_that_a_start_throws_away_are_warned_of(has_bits: bool, tmp_path: Path) -> None:
    root = unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-filters")
    path = root / "config" / "consumerFilter.json"
    saved = parse_java_json(path.read_text())
    filters = [each for topic in saved["filterDataByTopic"].values() for each in topic["groupFilterData"].values()]
    assert len(filters) > 3
    if not has_bits:
        del filters[0]["bloomFilterData"]  # as a broker 5.5.1 saves all of them by default
        path.write_text(json.dumps(saved))
    found = [each for each in findings_of(examine(root), "config") if each.path == str(path)]
    assert [each.severity for each in found] == ([] if has_bits else [Severity.WARNING])
    assert all("heartbeats" in each.meaning and "enableCalcFilterBitMap=true" in each.remedy for each in found)
    assert all(f"1 filter of {len(filters)} without bloomFilterData" in each.found for each in found)
