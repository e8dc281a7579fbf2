"""A rebuild that is sent to a URL and fetched from there is the rebuild in place, whatever dies on the way."""

import json
import os
import shutil
from pathlib import Path

import pytest

from command_line import rocketlens
from dying import AT_EACH_PLACE, STRIDES, every_death
from killing import Renames, every_kill
from object_store import orphans
from protocol.errors import ConfigError, StoreError
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands import run as run_module
from spark_jobs.commands.run import run_compact, run_fetch, run_rebuild
from spark_jobs.compact.compact_request import CompactRequest
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.places.place_names import MANIFEST, WORK
from spark_jobs.places.placed_run import read_manifest
from spark_jobs.publish.fetch import FetchRequest
from spark_jobs.run.progress import Silence
from store_writer import StoreWriter
from verifying import flip

TREES = ("index", "consumequeue", "checkpoint")
SMALL = {"slots": 20, "entries": 20, "queue_file_size": 400, "zone": "UTC"}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of two segments, with queues and an index that are not what a rebuild makes."""
    with StoreWriter(tmp_path_factory.mktemp("fetch") / "store", segment_size=2048) as writer:
        for number in range(30):
            writer.append("Orders" if number % 2 else "Payments", b"body %d" % number, unique_key=f"U{number}")
    root = writer.root
    assert len(writer.log.segments) > 1
    for path in ("index/20240101000000000", "consumequeue/Old/0/00000000000000000000"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(bytes(2400))
    return root


@pytest.fixture
def store(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "store"))


def rebuild(store, **more):
    options = {"store": str(store), "index": True, "queues": True, **SMALL, **more}
    return run_rebuild(RebuildRequest(**options), Silence())


def send(store, place, work, **more):
    return rebuild(store, out=place.url, out_storage=place.storage, work=str(work), **more)


def fetch(place, store, **more):
    request = FetchRequest(url=place.url, storage=place.storage, store=str(store), **more)
    return run_fetch(request, Silence())


def contents(store):
    """All that a rebuild replaces; None for a directory."""
    paths = (path for tree in TREES for path in (store / tree, *(store / tree).rglob("*")) if path.exists())
    return {str(path.relative_to(store)): path.read_bytes() if path.is_file() else None for path in paths}


@pytest.fixture(scope="module")
def expected(original, tmp_path_factory):
    copy = Path(shutil.copytree(original, tmp_path_factory.mktemp("expected") / "in-place"))
    rebuild(copy)
    found = contents(copy)
    assert found != contents(original)
    assert len([name for name in found if name.startswith("index/")]) > 1
    return found


@AT_EACH_PLACE
def test_a_rebuild_that_is_sent_and_fetched_equals_the_rebuild_in_place(store, expected, new_place, tmp_path) -> None:
    place, before = new_place(), contents(store)
    sent = send(store, place, tmp_path / "work")
    assert (contents(store), orphans(place), (tmp_path / "work").exists()) == (before, set(), False)
    report = fetch(place, store)
    assert contents(store) == expected
    assert not (store / WORK).exists()
    assert (report.command, report.store, report.out) == ("fetch", place.url, str(store))
    assert (report.messages, report.entries, report.units) == (sent.messages, sent.entries, sent.units)
    assert {Path(path).name.split(".")[0] for path in report.details.backups} <= set(TREES)
    assert {"index", "consumequeue"} <= {Path(path).name.split(".")[0] for path in report.details.backups}


@AT_EACH_PLACE
@pytest.mark.parametrize("each", STRIDES)
def test_wherever_sending_dies_the_same_command_ends_the_work(
    store, expected, new_place, tmp_path, monkeypatch, each
) -> None:
    places: list[OutputPlace] = []
    work = tmp_path / "work"

    def begin() -> None:
        places.append(new_place())
        send(store, places[-1], work)

    committed = set()
    for death in every_death(begin, monkeypatch, each):
        place = places[-1]
        committed.add(read_manifest(place) is not None)
        assert send(store, place, work).resumed, death
        manifest = json.loads(place.read(MANIFEST) or b"")
        assert {part["path"] for part in manifest["parts"]} == {name for name in expected if expected[name] is not None}
        assert orphans(place) == set(), death
    assert committed == {True, False}
    fetch(places[-1], store)
    assert contents(store) == expected


@pytest.mark.parametrize("each", [STRIDES[0], 12])
def test_wherever_fetching_dies_the_same_command_ends_the_work(original, store, expected, tmp_path, each) -> None:
    place = OutputPlace(f"file://{tmp_path}/out")
    send(store, place, tmp_path / "work")
    before = contents(store)
    states = set()
    for number in every_kill(fetch, (place, store), Renames.ALL, each=each):
        states.add({True: "old", False: "other"}[contents(store) == before])
        fetch(place, store)
        assert contents(store) == expected, number
        assert not (store / WORK).exists(), number
        assert not [name for name in os.listdir(store) if ".new-" in name], number
        shutil.rmtree(store)
        shutil.copytree(original, store)
    assert states == {"old", "other"}


@pytest.mark.parametrize("change", ["byte", "shorter", "gone"])
def test_an_object_that_is_not_what_the_manifest_says_is_refused_and_nothing_changes(store, tmp_path, change) -> None:
    place, before = OutputPlace(f"file://{tmp_path}/out"), contents(store)
    send(store, place, tmp_path / "work")
    name = json.loads(place.read(MANIFEST) or b"")["parts"][-1]["name"]
    data = place.read(name) or b""
    place.remove([name])
    changed = {"byte": data[:-1] + bytes([data[-1] ^ 1]), "shorter": data[:-1]}
    if change in changed:
        place.create(name, changed[change])
    with pytest.raises(StoreError) as found:
        fetch(place, store)
    assert place.path(name) in str(found.value)
    assert contents(store) == before
    if change in changed:
        place.remove([name])
    place.create(name, data)
    assert fetch(place, store).resumed


def test_what_a_broker_wrote_between_the_scan_and_the_mark_is_not_missed(tmp_path, monkeypatch) -> None:
    with StoreWriter(tmp_path / "store", segment_size=4096) as writer:
        writer.append("Orders", b"scanned", unique_key="U1")
    mark = run_module.mark_log

    def write_and_mark(*given):
        writer.append("Orders", b"late", unique_key="U2")
        writer.close()
        return mark(*given)

    monkeypatch.setattr(run_module, "mark_log", write_and_mark)
    place = OutputPlace(f"file://{tmp_path}/out")
    send(writer.root, place, tmp_path / "work")
    before = contents(writer.root)
    with pytest.raises(StoreError, match="or has been written to since: rebuild again"):
        fetch(place, writer.root)
    assert contents(writer.root) == before


class TestManifests:
    def test_without_one_or_with_that_of_an_export_nothing_is_fetched(self, store: Path, tmp_path: Path) -> None:
        place = OutputPlace(f"file://{tmp_path}/out")
        with pytest.raises(ConfigError, match="no finished rebuild or compaction is there"):
            fetch(place, store)
        place.create(MANIFEST, b'{"command": "export", "parts": []}')
        with pytest.raises(ConfigError, match="it contains a finished export, no rebuild or compact"):
            fetch(place, store)

    @pytest.mark.parametrize(
        ("field", "value", "said"),
        [
            ("version", 99, "was written by another version"),
            ("names", ["index", "config"], "names 'config', which is no file"),
            ("directories", ["index/../../x"], "which is no file of a store"),
            ("log", {}, "is no manifest of a rebuild"),
        ],
    )
    def test_one_that_leads_elsewhere_is_refused(self, store, tmp_path, field, value, said) -> None:
        place, before = OutputPlace(f"file://{tmp_path}/out"), contents(store)
        send(store, place, tmp_path / "work")
        manifest = json.loads(place.read(MANIFEST) or b"") | {field: value}
        place.remove([MANIFEST])
        place.create(MANIFEST, json.dumps(manifest).encode())
        with pytest.raises(StoreError, match=said):
            fetch(place, store)
        assert contents(store) == before


class TestCommands:
    def test_a_recorded_store_that_lost_its_queues_and_index_has_them_again(self, g1_store, tmp_path) -> None:
        store, place = Path(shutil.copytree(g1_store, tmp_path / "store")), OutputPlace(f"file://{tmp_path}/out")
        send(store, place, tmp_path / "work", slots=97, entries=150, queue_file_size=2000)
        for name in ("index", "consumequeue"):
            shutil.rmtree(store / name)
        outcome = rocketlens("rebuild", "fetch", place.url, store, "--drop-backup")
        assert outcome.code == 0, outcome
        assert outcome.text.startswith(f"fetched {place.url} into {store} in ")
        for path in (path for path in (g1_store / "consumequeue" / "TopicTest").rglob("*") if path.is_file()):
            assert (store / path.relative_to(g1_store)).read_bytes() == path.read_bytes()
        assert not [name for name in os.listdir(store) if ".bak-" in name]
        assert rocketlens("rebuild", "fetch", f"file://{tmp_path}/none", store).code == 2

    def test_a_url_needs_a_directory_to_build_in(self, store: Path, tmp_path: Path) -> None:
        for job in (("rebuild", "all"), ("compact", "index")):
            outcome = rocketlens(*job, store, "--out", f"file://{tmp_path}/out")
            assert (outcome.code, "needs --work DIR" in outcome.errors) == (2, True)


def compact(store, **more):
    sizes = {"slots": 50, "entries": 40, "zone": "UTC"}
    return run_compact(CompactRequest(store=str(store), **sizes | more), Silence())


@pytest.fixture
def indexed(store: Path) -> Path:
    rebuild(store, index=True, queues=True, drop_backup=True)
    assert len(list((store / "index").iterdir())) > 1
    return store


class TestCompaction:
    @pytest.mark.parametrize("options", [{}, {"from_log": True}], ids=str)
    def test_one_of_another_index_or_log_is_refused(self, indexed, tmp_path, options) -> None:
        place = OutputPlace(f"file://{tmp_path}/out")
        compact(indexed, out=place.url, work=str(tmp_path / "work"), **options)
        if options:
            changed, position = sorted((indexed / "commitlog").iterdir())[-1], None
            position = json.loads(place.read(MANIFEST) or b"")["log"]["end"] - int(changed.name)
        else:
            changed, position = sorted((indexed / "index").iterdir())[-1], 36  # how many entries the header counts
        flip(changed, position + 3)
        before = contents(indexed)
        said = f"has another {'log' if options else 'index'} than the one that .* compact again"
        with pytest.raises(StoreError, match=said):
            fetch(place, indexed)
        assert contents(indexed) == before


@pytest.mark.parametrize("job", [rebuild, compact])
def test_a_store_behind_a_url_goes_to_another_url(indexed, objects, tmp_path, job) -> None:
    copy = Path(shutil.copytree(indexed, tmp_path / "in-place"))
    job(copy)
    url, place = objects.put(indexed, f"{tmp_path.name}-store"), OutputPlace(f"file://{tmp_path}/out")
    job(url, storage=objects.options, out=place.url, out_storage=place.storage, work=str(tmp_path / "work"))
    assert not (tmp_path / "work").exists()
    fetch(place, indexed)
    assert contents(indexed) == contents(copy)
