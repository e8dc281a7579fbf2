"""An export of a store in an object store has the files of one of the same store on a disk, whatever goes wrong."""

import json
from pathlib import Path

import pytest

from faulty_proxy import FAULTS, FaultPlan
from object_store import ObjectStore
from spark_jobs.export.export import run_export
from spark_jobs.export.export_request import ExportRequest
from spark_jobs.places import remote_file
from spark_jobs.places.place_names import MANIFEST
from spark_jobs.run._spark_calls import TaskFailed
from spark_jobs.run.progress import Silence
from store_writer import StoreWriter


def export(store: str, out: Path, storage: str = "") -> dict[str, object]:
    """Export a store; the manifest, without what the options say."""
    run_export(ExportRequest(store=store, out=str(out), format="ndjson", storage=storage), Silence())
    manifest: dict[str, object] = json.loads((out / MANIFEST).read_bytes())
    return {name: manifest[name] for name in ("records", "bytes", "problems", "log")}


def parts(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir() if path.name != MANIFEST}


def test_faults_change_no_byte_and_an_endless_one_names_the_segment(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_file, "FIRST_PAUSE_SECONDS", 0)
    writer = StoreWriter(tmp_path / "store", segment_size=2048)
    for number in range(40):
        writer.append("Orders", b"body %d" % number, keys=f"k{number}")
    writer.close()
    expected = export(str(writer.root), tmp_path / "expected")
    url, plan = objects.put(writer.root, "exported"), FaultPlan(2, share=0.4)
    with objects.behind(plan) as faulty:
        found = export(url, tmp_path / "found", faulty.options)
    victim = sorted((writer.root / "commitlog").iterdir())[0].name
    with objects.behind(FaultPlan(0, share=0, never=victim)) as faulty, pytest.raises(TaskFailed) as caught:
        export(url, tmp_path / "failed", faulty.options)
    # Of a log behind a URL only names and sizes are known beforehand: where it ends is not in the manifest.
    assert {**found, "log": None} == {**expected, "log": None}
    assert parts(tmp_path / "found") == parts(tmp_path / "expected") != {}
    assert set(plan.done) <= set(FAULTS)
    assert plan.done.total()
    assert str(caught.value).startswith(f"{url}/commitlog/{victim}: cannot be read at position 0: ")
