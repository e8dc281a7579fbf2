"""In which order a job does what it has to do: what can be refused is refused before Spark is started."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from object_store import object_store
from protocol.errors import ConfigError
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands import run as run_module
from spark_jobs.commands.run import run_compact, run_rebuild
from spark_jobs.compact.compact_request import CompactRequest
from spark_jobs.export import export as export_module
from spark_jobs.export.export import run_export
from spark_jobs.export.export_request import ExportRequest
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.run.progress import Silence
from store_writer import StoreWriter

JOBS: dict[str, Callable[..., object]] = {
    "rebuild": lambda **where: run_rebuild(RebuildRequest(index=True, exchange="shuffle", **where), Silence()),
    "compact": lambda **where: run_compact(CompactRequest(exchange="shuffle", **where), Silence()),
    "export": lambda **where: run_export(ExportRequest(format="ndjson", **where), Silence()),
}


@pytest.mark.parametrize("job", JOBS)
def test_an_object_store_without_conditional_writes_is_refused_before_spark_starts(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = StoreWriter(tmp_path / "store", index_slots=97, index_entries=150)
    writer.append("Topic", keys="k")
    writer.close()

    def create(self: OutputPlace, name: str, data: bytes) -> None:
        with contextlib.closing(self.new_object(name)) as new:
            new.write(data)
            new.commit()

    def start(*_: Any, **__: Any) -> None:
        raise AssertionError("an engine was started")

    monkeypatch.setattr(OutputPlace, "create", create)
    for module in (run_module, export_module):
        monkeypatch.setattr(module, "opened_engine", start)
    with object_store() as objects:
        place = OutputPlace(f"s3://stores/{job}", objects.options)
        with pytest.raises(ConfigError, match="this object store ignores If-None-Match"):
            JOBS[job](store=str(writer.root), out=place.url, out_storage=place.storage)
        assert place.objects("") == {}
