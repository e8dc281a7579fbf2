"""A rebuild by Spark's own shuffle is the rebuild by files, byte for byte, into a directory and at a URL."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from golden_store import GOLDEN, unpack
from object_store import ObjectStore
from protocol.errors import ConfigError
from queue_runs import files_under
from spark_jobs.build import split_queues
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands import run as run_module
from spark_jobs.commands.run import run_fetch, run_rebuild
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.places.place_names import MANIFEST, WORK
from spark_jobs.publish.fetch import FetchRequest
from spark_jobs.run.progress import Silence
from spark_jobs.run.report import Report
from store_writer import StoreWriter

pytestmark = pytest.mark.usefixtures("spark")

SMALL: dict[str, Any] = {"slots": 97, "entries": 300, "zone": "UTC"}
HOT_UNITS = 20
"""Units of a file of a queue: a queue with more than twice as many is built in parts here."""


def rebuild(store: Path, out: Path | str | None, exchange: str, **options: Any) -> Report:
    kinds = {"index": True, "queues": True} | options
    return run_rebuild(
        RebuildRequest(store=str(store), out=None if out is None else str(out), exchange=exchange, **kinds), Silence()
    )


def assert_same_both_ways(store: Path, tmp_path: Path, **options: Any) -> tuple[dict[str, bytes], Report]:
    """What comes out by files comes out by the shuffle; that, and the report."""
    expected = rebuild(store, tmp_path / "files", "files", **options)
    found = rebuild(store, tmp_path / "shuffle", "shuffle", **options)
    made = files_under(tmp_path / "shuffle")
    assert made == files_under(tmp_path / "files") != {}
    assert (found.damages, found.notes) == (expected.damages, expected.notes)
    assert (found.messages, found.entries, found.units) == (expected.messages, expected.entries, expected.units)
    assert (found.details.index, found.details.queues) == (expected.details.index, expected.details.queues)
    return made, found


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Some segments, of which index files begin and end anywhere; keys, tags, a record with many keys, quiet queues."""
    writer = StoreWriter(tmp_path / "store", segment_size=8192, index_slots=97, index_entries=300, queue_file_size=400)
    for number in range(300):
        keys = " ".join(f"k{number}-{key}" for key in range(40)) if number == 150 else f"k{number} all"
        writer.append("Hot" if number % 4 else "Cold", b"body", keys=keys, tags="t", queue_id=number % 4 == 2)
    writer.close()
    assert len(writer.log.segments) > 4
    return writer.root


@pytest.mark.parametrize("name", ["store", pytest.param("store-crashed", marks=pytest.mark.soak)])
def test_the_recorded_store_comes_out_as_a_broker_wrote_it(name: str, tmp_path: Path) -> None:
    store = unpack(name, tmp_path)
    made, _ = assert_same_both_ways(store, tmp_path, from_offset=0)
    queues = {f"consumequeue/{path}": data for path, data in files_under(store / "consumequeue").items()}
    assert {path: data for path, data in made.items() if path.startswith("consumequeue/")} == queues
    assert len([path for path in made if path.startswith("index/")]) == 10


@pytest.mark.soak  # in each run: by files, test_rebuild_queues.py
def test_batch_light_and_delay_queues_come_out_as_a_broker_wrote_them(tmp_path: Path) -> None:
    recorded = GOLDEN / "g2" / "g2-queues"
    levels = json.loads((recorded / "store.json").read_text())["properties"]["messageDelayLevel"]
    store = unpack("store", tmp_path, archives=recorded)
    made, _ = assert_same_both_ways(store, tmp_path, delay_levels=levels, index=False)
    trees = ("consumequeue", "batchconsumequeue")
    assert made == {f"{tree}/{path}": data for tree in trees for path, data in files_under(store / tree).items()}


def test_index_files_that_begin_inside_blocks_come_out(store: Path, tmp_path: Path) -> None:
    """What is behind the files that stay."""
    made, _ = assert_same_both_ways(store, tmp_path, **SMALL)
    assert len([path for path in made if path.startswith("index/")]) > 2


@pytest.mark.soak  # in each run: by files, test_rebuild_index.py and test_rebuild_queues.py
@pytest.mark.parametrize(
    "options",
    [{"from_offset": 20_000}, {"queues": False}, {"index": False, "topics": ("Hot",)}],
    ids=str,
)
def test_what_is_behind_some_place_or_a_part_of_it_comes_out(
    store: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    assert_same_both_ways(store, tmp_path, **{**SMALL, **options})


@pytest.mark.soak  # in each run: by files, on both engines, test_engines.py
def test_a_damaged_log_comes_out(store: Path, tmp_path: Path) -> None:
    """A record in the middle, a segment that is gone, and a torn end."""
    segments = sorted((store / "commitlog").iterdir())
    for segment in (segments[1], segments[-1]):
        data = bytearray(segment.read_bytes())
        data[data.rindex(b"body")] ^= 1
        segment.write_bytes(data)
    segments[3].unlink()
    _, report = assert_same_both_ways(store, tmp_path, **SMALL)
    assert len(report.damages) >= 2


def test_a_hot_queue_comes_out_in_parts(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_queues, "LEAST_UNITS", HOT_UNITS)
    split: list[int] = []
    parts = split_queues._parts

    def counted(*arguments: Any) -> Any:
        found = list(parts(*arguments))
        split.append(len(found))
        return found

    monkeypatch.setattr(split_queues, "_parts", counted)
    made, _ = assert_same_both_ways(store, tmp_path, queue_file_size=HOT_UNITS * 20, **SMALL)
    assert split[: len(split) // 2] == split[len(split) // 2 :]
    assert max(split) > 1
    whole = files_under(store / "consumequeue")
    assert {path: data for path, data in made.items() if path.startswith("consumequeue/")} == {
        f"consumequeue/{path}": data for path, data in whole.items()
    }


def test_a_store_without_keys_or_messages_comes_out(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "bare", segment_size=4096)
    for _ in range(5):
        writer.append("Bare", b"body", unique_key=None)
    writer.close()
    assert_same_both_ways(writer.root, tmp_path, **SMALL)


def fetched(place: OutputPlace, store: Path, copy: Path) -> dict[str, bytes]:
    """What a fetch makes of a copy of the store."""
    shutil.copytree(store, copy)
    run_fetch(FetchRequest(url=place.url, storage=place.storage, store=str(copy), drop_backup=True), Silence())
    return files_under(copy)


def in_place(store: Path, copy: Path, **options: Any) -> dict[str, bytes]:
    """What a rebuild by files makes of a copy of the store."""
    shutil.copytree(store, copy)
    rebuild(copy, None, "files", drop_backup=True, **options)
    return files_under(copy)


def named(place: OutputPlace) -> dict[str, str]:
    """The objects that a manifest names, by their paths in the store."""
    return {part["path"]: part["name"] for part in json.loads(place.read(MANIFEST) or b"")["parts"]}


class TestAtUrl:
    """Tasks send what they have built themselves, and there is no work directory that anybody sees."""

    @pytest.mark.soak  # in each run: of files, test_fetch.py; of blocks, the next test
    def test_what_is_sent_and_fetched_is_the_rebuild_in_place(
        self, objects: ObjectStore, store: Path, tmp_path: Path
    ) -> None:
        """Though files of the index and queues of other topics stay, and a queue is without messages."""
        (store / "consumequeue" / "Quiet" / "0").mkdir(parents=True)
        (store / "consumequeue" / "Quiet" / "0" / ("0" * 20)).write_bytes(bytes(400))
        options = {**SMALL, "topics": ("Hot",), "queue_file_size": 400}
        before = files_under(store)
        place = OutputPlace("s3://stores/rebuilt", objects.options)
        rebuild(store, place.url, "shuffle", out_storage=place.storage, **options)
        kinds = {path.split("/")[0] for path in named(place)}
        found = fetched(place, store, tmp_path / "fetched")
        assert kinds == {"index", "consumequeue", "checkpoint"}
        assert found == in_place(store, tmp_path / "in-place", **options)
        assert files_under(store) == before

    def test_what_was_finished_is_not_built_again(
        self, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The driver dies when all is built, and again when other options are asked for."""
        place = OutputPlace(f"file://{tmp_path}/out")
        send = run_module.send

        def die(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(run_module, "send", die)
        options = {**SMALL, "from_offset": 0}
        for slots in (97, 89):
            with pytest.raises(KeyboardInterrupt):
                rebuild(store, place.url, "shuffle", **{**options, "slots": slots})
        monkeypatch.setattr(run_module, "send", send)
        left = set(place.objects(""))
        rebuild(store, place.url, "shuffle", **options)
        built = {path: name for path, name in named(place).items() if path != "checkpoint"}
        assert len(built) > 4
        assert set(built.values()) <= left
        assert fetched(place, store, tmp_path / "fetched") == in_place(store, tmp_path / "in-place", **options)


@pytest.mark.soak  # in each run: by files, test_rebuild_in_place.py; at a URL, the test before
def test_a_rebuild_in_place_goes_on_where_a_killed_one_was(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks of building that were finished are not run again, whichever way of exchange they had."""
    options = {**SMALL, "from_offset": 0}
    expected = in_place(store, tmp_path / "in-place", **options)

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    records = []
    for exchange in ("shuffle", "shuffle", "files"):
        with monkeypatch.context() as patched:
            patched.setattr(run_module, "rebuilt_report", die)
            with pytest.raises(KeyboardInterrupt):
                rebuild(store, None, exchange, **options)
        records.append({path.name: path.read_bytes() for path in (store / WORK).glob("run-*/done/build-*")})
    assert len(records[0]) > 4
    assert records[0] == records[1] == records[2]
    report = rebuild(store, None, "shuffle", drop_backup=True, **options)
    assert report.resumed
    assert files_under(store) == expected


def test_an_exchange_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exchange 'post', expected one of files, shuffle"):
        RebuildRequest(store=str(tmp_path), index=True, exchange="post")
