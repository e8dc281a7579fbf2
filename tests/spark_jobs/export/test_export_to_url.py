"""Exports behind a URL: the manifest leads to every message once, whatever died and whatever other runs there were."""

import hashlib
import json
from pathlib import Path

import pytest

from command_line import rocketlens
from object_store import FAULTS, FaultPlan, orphans
from spark_jobs.export.export import run_export
from spark_jobs.export.export_request import ExportRequest
from spark_jobs.places import remote_file
from spark_jobs.places.place_names import MANIFEST
from spark_jobs.run._spark_calls import TaskFailed
from spark_jobs.run.progress import Silence
from store_writer import StoreWriter


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> StoreWriter:
    """Two segments."""
    with StoreWriter(tmp_path_factory.mktemp("export") / "store", segment_size=4096) as writer:
        for number in range(40):
            writer.append("Orders" if number % 2 else "Payments", b"body %d" % number, unique_key=f"U{number}")
    assert len(writer.log.segments) == 2
    return writer


def export(store, place, format_="ndjson", **more):
    request = ExportRequest(store=str(store.root), out=place.url, out_storage=place.storage, format=format_, **more)
    return run_export(request, Silence())


def parts_of(place):
    """Names and bytes of the parts that the manifest names, each held against what it says."""
    manifest = json.loads(place.read(MANIFEST) or b"")
    for part in manifest["parts"]:
        data = place.read(part["name"])
        assert data is not None
        assert (len(data), hashlib.sha256(data).hexdigest()) == (part["bytes"], part["sha256"])
        yield part["name"], data
    assert manifest["records"] == sum(part["records"] for part in manifest["parts"])


@pytest.mark.parametrize(("format_", "new_place"), [("parquet", "s3"), ("ndjson", "file")], indirect=["new_place"])
def test_the_parts_are_those_of_an_export_into_a_directory(store, new_place, tmp_path, format_) -> None:
    place = new_place()
    report = export(store, place, format_)
    local = tmp_path / "local"
    request = ExportRequest(store=str(store.root), out=str(local), format=format_)
    run_export(request, Silence())
    found = {Path(name).name: data for name, data in parts_of(place)}
    assert found == {path.name: path.read_bytes() for path in local.glob("part-*")}
    assert (report.messages, report.details.parts, report.out) == (40, 2, place.url)
    assert orphans(place) == set()
    manifests = [json.loads(each) for each in (place.read(MANIFEST) or b"", (local / MANIFEST).read_bytes())]
    for manifest in manifests:
        manifest["parts"] = [each | {"name": Path(each["name"]).name} for each in manifest["parts"]]
        for name in ("run", "host", "written"):
            manifest.pop(name, None)
    assert manifests[0] == manifests[1]


def test_faults_of_a_store_behind_a_url_change_no_byte_and_an_endless_one_names_the_segment(
    store, objects, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(remote_file, "FIRST_PAUSE_SECONDS", 0)
    url, plan = objects.put(store.root, "exported"), FaultPlan(2, share=0.4)

    def export_into(name, source, storage=""):
        out = tmp_path / name
        run_export(ExportRequest(store=source, out=str(out), format="ndjson", storage=storage), Silence())
        manifest = json.loads((out / MANIFEST).read_bytes())
        # Of a log behind a URL only names and sizes are known beforehand: where it ends is not in the manifest.
        parts = {path.name: path.read_bytes() for path in out.glob("part-*")}
        return {name: manifest[name] for name in ("records", "bytes", "problems")} | parts

    expected = export_into("expected", str(store.root))
    with objects.behind(plan) as faulty:
        assert export_into("found", url, faulty.options) == expected
    assert set(plan.done) <= set(FAULTS)
    assert plan.done.total()
    victim = min((store.root / "commitlog").iterdir()).name
    with objects.behind(FaultPlan(0, share=0, never=victim)) as faulty, pytest.raises(TaskFailed) as caught:
        export_into("failed", url, faulty.options)
    assert str(caught.value).startswith(f"{url}/commitlog/{victim}: cannot be read at position 0: ")


class TestCommand:
    @pytest.mark.parametrize(
        ("store", "out", "said"),
        [
            ("s3://b/store", "s3://b/store/out", "--out s3://b/store/out lies inside the store"),
            ("s3://b/store/", "s3://b/store", "--out s3://b/store lies inside the store"),
            ("/b/store", "file:///b/store/out", "--out /b/store/out lies inside the store"),
            ("/b/store", "memory://b/out", "memory://b/out: nothing can be written there"),
            ("/b/store", "nothing://b/out", "nothing://b/out: Protocol not known"),
        ],
    )
    def test_places_that_cannot_be_are_refused(self, store: str, out: str, said: str) -> None:
        outcome = rocketlens("export", store, "--format", "csv", "--out", out)
        assert outcome.code == 2
        assert outcome.errors.startswith(f"rocketlens: {said}")
