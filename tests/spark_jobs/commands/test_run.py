"""In which order a job does what it has to do: places are looked at before an engine is started, whatever the job."""

import pytest

from object_store import create_in_any_case
from protocol.errors import ConfigError, StoreError
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands import run as run_module
from spark_jobs.commands.run import run_compact, run_rebuild
from spark_jobs.compact.compact_request import CompactRequest
from spark_jobs.export import export as export_module
from spark_jobs.export.export import run_export
from spark_jobs.export.export_request import ExportRequest
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.run.progress import Silence
from spark_jobs.tables import append as append_module
from spark_jobs.tables.append import run_append
from spark_jobs.tables.table_request import TableRequest
from store_writer import StoreWriter

CATALOGS = {"iceberg": {"uri": "sqlite:///:memory:"}}
JOBS = {
    "rebuild": lambda **where: run_rebuild(RebuildRequest(index=True, exchange="shuffle", **where), Silence()),
    "compact": lambda **where: run_compact(CompactRequest(exchange="shuffle", **where), Silence()),
    "export": lambda **where: run_export(ExportRequest(format="ndjson", **where), Silence()),
    **{
        format_: lambda out, format_=format_, **where: run_append(
            TableRequest(table=out, format=format_, catalog=CATALOGS.get(format_, {}), **where), Silence()
        )
        for format_ in ("csv", "iceberg", "delta")
    },
}


def one_message(root):
    with StoreWriter(root, index_slots=97, index_entries=150) as writer:
        writer.append("Topic", keys="k")
    return writer


@pytest.mark.parametrize("job", sorted(JOBS.keys() - {"delta"}))  # it waits with the lock that the server needs
def test_an_object_store_without_conditional_writes_is_refused_before_an_engine_starts(
    job, objects, tmp_path, monkeypatch
) -> None:
    writer = one_message(tmp_path / "store")
    monkeypatch.setattr(OutputPlace, "create", create_in_any_case)
    _let_no_engine_start(monkeypatch)
    place = OutputPlace(f"s3://stores/{job}", objects.options)
    with pytest.raises(ConfigError, match="this object store ignores If-None-Match"):
        JOBS[job](store=str(writer.root), out=place.url, out_storage=place.storage)
    assert not [name for name in place.objects("") if "_rocketlens" in name or "_attempts" in name]


@pytest.mark.parametrize("job", ["rebuild", "compact", "export", "csv", "delta"])
def test_a_directory_that_takes_no_files_is_refused_before_an_engine_starts(job, tmp_path, monkeypatch) -> None:
    writer = one_message(tmp_path / "store")
    (tmp_path / "file").write_bytes(b"")
    _let_no_engine_start(monkeypatch)
    for out in (f"{tmp_path}/file/out", f"file://{tmp_path}/file/out"):
        with pytest.raises((ConfigError, StoreError, OSError), match="file"):
            JOBS[job](store=str(writer.root), out=out)


def _let_no_engine_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_, **__) -> None:
        raise AssertionError("an engine was started")

    for module in (run_module, export_module, append_module):
        monkeypatch.setattr(module, "opened_engine", start)


@pytest.mark.parametrize("run", [run_rebuild, run_compact])
def test_no_job_goes_without_a_segment_behind_a_broken_link(run, tmp_path) -> None:
    with StoreWriter(tmp_path / "store", segment_size=1024, index_slots=97, index_entries=150) as writer:
        for _ in range(20):
            writer.append("Topic", keys="k")
    segment = writer.root / "commitlog" / f"{1024:020d}"
    segment.unlink()
    segment.symlink_to("/mnt/gone/segment")
    before = {path: path.stat().st_ino for path in writer.root.rglob("*") if path.is_file()}
    store = str(writer.root)
    rebuild = RebuildRequest(store=store, index=True, queues=True)
    request = rebuild if run is run_rebuild else CompactRequest(store=store)
    with pytest.raises(StoreError, match=r"is a link, or below one, to /mnt/gone/segment, which is not there"):
        run(request, Silence())
    assert {path: path.stat().st_ino for path in writer.root.rglob("*") if path.is_file()} == before
