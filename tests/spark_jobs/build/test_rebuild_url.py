"""Rebuilds and compactions of a store behind a URL: byte for byte what is made of the same store on a disk."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from protocol.errors import RocketLensError
from queue_runs import files_under
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands.run import run_compact, run_rebuild
from spark_jobs.compact.compact_request import CompactRequest
from spark_jobs.run.progress import Silence
from spark_jobs.run.report import Report
from store_writer import StoreWriter
from verifying import upload

URL = "memory://rocketlens-rebuild-url"

Job = Callable[..., Report]


def rebuild(store: str, out: Path, **options: Any) -> Report:
    kinds = {"index": True, "queues": True} | options
    return run_rebuild(RebuildRequest(store=store, out=str(out), zone="+08:00", **kinds), Silence())


def compact(store: str, out: Path, **options: Any) -> Report:
    return run_compact(CompactRequest(store=store, out=str(out), zone="+08:00", **options), Silence())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with index files to be kept, a queue without messages, and a damaged record."""
    writer = StoreWriter(tmp_path / "store", segment_size=4096, queue_file_size=400, ext_file_size=1024)
    for number in range(100):
        writer.append(("Orders", "Payments")[number % 2], b"body %d" % number, keys=f"k{number}", tags="t")
    writer.close()
    victim = sorted((writer.root / "commitlog").iterdir())[2]
    data = bytearray(victim.read_bytes())
    data[data.index(b"body")] ^= 1
    victim.write_bytes(data)
    return writer.root


@pytest.fixture
def url(store: Path) -> Iterator[str]:
    upload(store, URL)
    yield URL
    fsspec.filesystem("memory").rm(URL, recursive=True)


@pytest.mark.parametrize(
    ("job", "options"),
    [
        (rebuild, {}),
        (rebuild, {"index": False, "work": "work"}),
        (rebuild, {"from_offset": 0, "topics": ("Orders",)}),
        (compact, {}),
        (compact, {"from_log": True}),
        (compact, {"drop_tags": True, "topics": ("Orders",)}),
    ],
)
def test_the_files_are_those_of_the_same_store_on_a_disk(
    store: Path, url: str, tmp_path: Path, job: Job, options: dict[str, Any]
) -> None:
    work = {"work": str(tmp_path / options.pop("work"))} if "work" in options else {}
    expected = job(str(store), tmp_path / "expected", **options)
    found = job(url, tmp_path / "found", **options, **work)
    assert not (tmp_path / "work").exists(), "copies may lie there, and are gone afterwards"
    assert files_under(tmp_path / "found") == files_under(tmp_path / "expected") != {}
    assert found.messages == expected.messages
    assert [each.path.replace(url, str(store)) for each in found.damages] == [each.path for each in expected.damages]
    assert [each.replace(url, str(store)) for each in found.notes] == expected.notes
    assert [path.name for path in (tmp_path / "found").iterdir() if path.name.startswith(".")] == []


def test_an_error_names_the_file_behind_the_url(store: Path, tmp_path: Path) -> None:
    for path in (store / "index").iterdir():
        path.unlink()
    upload(store, f"{URL}-bare")
    with pytest.raises(RocketLensError, match=f"^{URL}-bare/index: has no index file"):
        compact(f"{URL}-bare", tmp_path / "out")
    fsspec.filesystem("memory").rm(f"{URL}-bare", recursive=True)
