"""A compaction by Spark's own shuffle is the compaction by files, byte for byte, into a directory and at a URL."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from compact_oracle import build_compacted, keep_entries, read_entries, take_mark
from golden_store import unpack
from object_store import ObjectStore
from oracles import read_log
from queue_runs import files_under
from spark_jobs.commands import run as run_module
from spark_jobs.commands.run import run_compact, run_fetch
from spark_jobs.compact.compact_request import CompactRequest
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.places.place_names import MANIFEST
from spark_jobs.publish.fetch import FetchRequest
from spark_jobs.run.progress import Silence
from spark_jobs.run.report import Report
from store_writer import START_TIMESTAMP, StoreWriter

pytestmark = pytest.mark.usefixtures("spark")

SLOTS, ENTRIES = 97, 300
SMALL: dict[str, Any] = {"slots": SLOTS, "entries": ENTRIES, "zone": "UTC"}


def compact(store: Path, out: Path | str | None, exchange: str, **options: Any) -> Report:
    request = CompactRequest(store=str(store), out=None if out is None else str(out), exchange=exchange, **options)
    return run_compact(request, Silence())


def assert_same_both_ways(store: Path, tmp_path: Path, **options: Any) -> list[bytes]:
    """What comes out by files comes out by the shuffle; the index files, in order."""
    expected = compact(store, tmp_path / "files", "files", **SMALL, **options)
    found = compact(store, tmp_path / "shuffle", "shuffle", **SMALL, **options)
    made = files_under(tmp_path / "shuffle")
    assert made == files_under(tmp_path / "files") != {}
    assert (found.damages, found.notes, found.entries) == (expected.damages, expected.notes, expected.entries)
    assert found.details.index == expected.details.index
    return [data for path, data in sorted(made.items()) if path.startswith("index/")]


def written(root: Path, seconds: Callable[[int], int] = lambda number: number) -> Path:
    """A store of several segments; `seconds` says when each message was stored."""
    writer = StoreWriter(root, segment_size=8192, index_slots=SLOTS, index_entries=ENTRIES)
    for number in range(300):
        stamp = START_TIMESTAMP + 1000 * seconds(number)
        topic = "Hot" if number % 4 else "Cold"
        writer.append(topic, b"body", keys=f"k{number} all", tags="t", unique_key=f"u{number}", store_timestamp=stamp)
    writer.close()
    assert len(writer.log.segments) > 4
    return writer.root


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return written(tmp_path / "store")


STEPS_BACK: dict[str, Callable[[int], int]] = {
    "inside a segment": lambda number: number - (8 if number % 50 > 40 else 0),
    "for good": lambda number: number + (1000 if number < 170 else 0),
}


@pytest.mark.parametrize(
    "options", [{}, pytest.param({"from_log": True, "profile": "5.5"}, marks=pytest.mark.soak)], ids=["index", "log"]
)
def test_the_recorded_store_comes_out_as_the_oracle_says(options: dict[str, Any], tmp_path: Path) -> None:
    store = unpack("store", tmp_path)
    before = [path.read_bytes() for path in sorted((store / "index").iterdir())]
    entries = [entry for data in before for entry in read_entries(data, SLOTS)]
    kept = keep_entries(entries, read_log(store / "commitlog"))
    files = assert_same_both_ways(store, tmp_path, **options)
    end = int.from_bytes(before[-1][24:32], "big")
    assert [take_mark(data, SLOTS)[0] for data in files] == build_compacted(kept, SLOTS, ENTRIES, end)


@pytest.mark.soak  # in each run: a stretch where the clock stepped back, in the next test
@pytest.mark.parametrize("seconds", STEPS_BACK.values(), ids=STEPS_BACK.keys())
def test_what_was_stored_while_the_clock_stepped_back_comes_out(seconds: Callable[[int], int], tmp_path: Path) -> None:
    files = assert_same_both_ways(written(tmp_path / "store", seconds), tmp_path)
    assert len(files) > 3


def completes(files: Sequence[bytes]) -> set[bool]:
    return {mark is not None and mark.complete for mark in (take_mark(data, SLOTS)[1] for data in files)}


@pytest.mark.soak  # in each run: of files that share a stretch, in the next test
def test_all_files_say_as_rightly_that_they_are_complete(store: Path, tmp_path: Path) -> None:
    assert completes(assert_same_both_ways(store, tmp_path)) == {True}


@pytest.mark.soak  # in each run: by files, test_complete_index.py
def test_files_say_as_rightly_that_they_are_complete(tmp_path: Path) -> None:
    """Some share a stretch of the log where the clock stepped back, which a block that was cut does not show."""
    shared = written(tmp_path / "shared", lambda number: number - (60 if 150 < number < 190 else 0))
    assert completes(assert_same_both_ways(shared, tmp_path)) == {False, True}


@pytest.mark.soak  # in each run: by files, test_compact.py
def test_a_log_with_damage_and_an_index_with_a_topic_left_out_come_out(store: Path, tmp_path: Path) -> None:
    segments = sorted((store / "commitlog").iterdir())
    data = bytearray(segments[1].read_bytes())
    data[data.rindex(b"body")] ^= 1
    segments[1].write_bytes(data)
    segments[3].unlink()
    for number, options in enumerate(({"topics": ("Cold",)}, {"from_log": True, "drop_tags": True})):
        assert len(assert_same_both_ways(store, tmp_path / str(number), **options)) > 2


def test_an_index_without_a_living_entry_comes_out(store: Path, tmp_path: Path) -> None:
    assert len(assert_same_both_ways(store, tmp_path, topics=("Hot", "Cold"))) == 1


@pytest.mark.soak  # in each run: by files, TestCompaction in test_fetch.py
def test_what_is_sent_and_fetched_is_the_compaction_in_place(objects: ObjectStore, store: Path, tmp_path: Path) -> None:
    """Tasks send what they have built themselves, and there is no work directory that anybody sees."""
    before = files_under(store)
    place = OutputPlace("s3://stores/compacted", objects.options)
    compact(store, place.url, "shuffle", out_storage=place.storage, **SMALL)
    paths = {part["path"] for part in json.loads(place.read(MANIFEST) or b"")["parts"]}
    copy = Path(shutil.copytree(store, tmp_path / "fetched"))
    run_fetch(FetchRequest(url=place.url, storage=place.storage, store=str(copy), drop_backup=True), Silence())
    assert {path.split("/")[0] for path in paths} == {"index", "checkpoint"}
    assert files_under(store) == before
    shutil.copytree(store, tmp_path / "in-place")
    compact(tmp_path / "in-place", None, "files", drop_backup=True, **SMALL)
    assert files_under(tmp_path / "fetched") == files_under(tmp_path / "in-place")


@pytest.mark.soak  # in each run: a rebuild, test_shuffle_exchange.py
def test_what_was_sent_is_not_built_again(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver dies when all is built."""
    place = OutputPlace(f"file://{tmp_path}/out")
    send = run_module.send

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "send", die)
    with pytest.raises(KeyboardInterrupt):
        compact(store, place.url, "shuffle", **SMALL)
    left = set(place.objects(""))
    monkeypatch.setattr(run_module, "send", send)
    compact(store, place.url, "shuffle", **SMALL)
    named = {part["path"]: part["name"] for part in json.loads(place.read(MANIFEST) or b"")["parts"]}
    built = {name for path, name in named.items() if path.startswith("index/")}
    assert len(built) > 3
    assert built <= left
