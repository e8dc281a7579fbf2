"""A rebuild and a compaction by Spark's own shuffle make what they make by files, byte for byte, there and at a URL."""

import json
import shutil
from pathlib import Path
from unittest import mock

import pytest

from compact_oracle import take_mark
from queue_runs import files_under
from spark_jobs.build import split_queues
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands import run as run_module
from spark_jobs.commands.run import run_compact, run_fetch, run_rebuild
from spark_jobs.compact.compact_request import CompactRequest
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.places.place_names import MANIFEST
from spark_jobs.publish.fetch import FetchRequest
from spark_jobs.run.progress import Silence
from store_writer import START_TIMESTAMP, StoreWriter
from verifying import flip

pytestmark = pytest.mark.usefixtures("spark")

SLOTS, ENTRIES = 97, 300
SMALL = {"slots": SLOTS, "entries": ENTRIES, "zone": "UTC"}
HOT_UNITS = 20
"""Units of a file of a queue: a queue with more than twice as many is built in parts here."""


def rebuild(store, **options):
    return run_rebuild(RebuildRequest(store=str(store), index=True, queues=True, **options), Silence())


def compact(store, **options):
    return run_compact(CompactRequest(store=str(store), **options), Silence())


def assert_same_both_ways(job, store, tmp_path, **options):
    expected = job(store, out=str(tmp_path / "files"), exchange="files", **options)
    found = job(store, out=str(tmp_path / "shuffle"), exchange="shuffle", **options)
    made = files_under(tmp_path / "shuffle")
    assert made == files_under(tmp_path / "files") != {}
    assert (found.damages, found.notes) == (expected.damages, expected.notes)
    assert (found.messages, found.entries, found.units) == (expected.messages, expected.entries, expected.units)
    assert found.details.index == expected.details.index
    assert getattr(found.details, "queues", None) == getattr(expected.details, "queues", None)
    return made, found


def index_of(made: dict[str, bytes]) -> list[bytes]:
    return [data for path, data in sorted(made.items()) if path.startswith("index/")]


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    """Queues of all kinds over some segments, index files that begin and end anywhere, and a clock that steps back."""
    options = {"segment_size": 8192, "index_slots": SLOTS, "index_entries": ENTRIES, "queue_file_size": HOT_UNITS * 20}
    with StoreWriter(tmp_path / "store", **options) as writer:
        for number in range(300):
            stamp = START_TIMESTAMP + 1000 * (number - (60 if 150 < number < 190 else 0))
            keys = " ".join(f"k{number}-{key}" for key in range(40)) if number == 150 else f"k{number} all"
            topic = "Hot" if number % 4 else "Cold"
            writer.append(topic, b"body", keys=keys, tags="t", queue_id=number % 8 == 2, store_timestamp=stamp)
            if number % 60 == 0:
                writer.append_inner_batch("Batch", [(b"a", {}), (b"b", {})], tags="x", store_timestamp=stamp)
                delayed = {"DELAY": "3", "REAL_TOPIC": "Hot"}
                writer.append("SCHEDULE_TOPIC_XXXX", b"d", queue_id=2, properties=delayed, store_timestamp=stamp)
    assert len(writer.log.segments) > 4
    return writer


@pytest.fixture
def damaged(writer: StoreWriter) -> Path:
    segments = sorted((writer.root / "commitlog").iterdir())
    for segment in (segments[1], segments[-1]):
        flip(segment, segment.read_bytes().rindex(b"body"))
    segments[3].unlink()
    return writer.root


def test_a_damaged_log_comes_out(damaged: Path, tmp_path: Path) -> None:
    made, report = assert_same_both_ways(rebuild, damaged, tmp_path, **SMALL)
    assert len(report.damages) >= 2
    assert len(index_of(made)) > 2
    assert {path.split("/")[1] for path in made if "queue/" in path} == {"Hot", "Cold", "Batch", "SCHEDULE_TOPIC_XXXX"}


@pytest.mark.parametrize("job", [rebuild, pytest.param(compact, marks=pytest.mark.soak)])
def test_what_was_sent_to_a_url_is_not_built_again_and_is_fetched_as_in_place(
    job, writer, tmp_path, monkeypatch
) -> None:
    """The driver dies when all is built; a rebuild makes a hot queue in parts."""
    monkeypatch.setattr(split_queues, "LEAST_UNITS", HOT_UNITS)
    split, parts = [0], split_queues._parts

    def counted(*arguments):
        found = list(parts(*arguments))
        split.append(len(found))
        return found

    monkeypatch.setattr(split_queues, "_parts", counted)
    place = OutputPlace(f"file://{tmp_path}/out")
    options = SMALL | ({"from_offset": 0} if job is rebuild else {})
    with mock.patch.object(run_module, "send", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        job(writer.root, out=place.url, exchange="shuffle", **options)
    left = set(place.objects(""))
    job(writer.root, out=place.url, exchange="shuffle", **options)
    named = {part["path"]: part["name"] for part in json.loads(place.read(MANIFEST) or b"")["parts"]}
    built = {name for path, name in named.items() if path != "checkpoint"}
    assert len(built) > 3
    assert built <= left
    copies = [Path(shutil.copytree(writer.root, tmp_path / name)) for name in ("fetched", "in-place")]
    run_fetch(FetchRequest(url=place.url, store=str(copies[0]), drop_backup=True), Silence())
    job(copies[1], exchange="files", drop_backup=True, **options)
    assert files_under(copies[0]) == files_under(copies[1])
    assert (max(split) > 1) == (job is rebuild)


@pytest.mark.parametrize(
    "options",
    [pytest.param({"topics": ("Cold",)}, marks=pytest.mark.soak), {"from_log": True, "drop_tags": True}],
    ids=str,
)
def test_a_compaction_of_a_damaged_log_comes_out(damaged, tmp_path, options) -> None:
    made, _ = assert_same_both_ways(compact, damaged, tmp_path, **SMALL, **options)
    assert len(index_of(made)) > 1


def test_compacted_files_say_as_rightly_that_they_are_complete(writer: StoreWriter, tmp_path: Path) -> None:
    """Some share a stretch of the log where the clock stepped back, which a block that was cut does not show."""
    made, _ = assert_same_both_ways(compact, writer.root, tmp_path, **SMALL)
    marks = [take_mark(data, SLOTS)[1] for data in index_of(made)]
    assert {mark is not None and mark.complete for mark in marks} == {False, True}
