"""Every job reads and writes `gs://` and, in `make soak`, `hdfs://` as it does a directory; of drivers one commits.

What may go wrong on the way is tried with `s3://`, in the tests of each job.
"""

import itertools
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

from command_line import Outcome, rocketlens
from object_store import ObjectStore
from protocol.errors import ConfigError, StoreError
from queue_runs import files_under
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.places.place_names import MANIFEST
from spark_jobs.places.placed_run import Driver, read_manifest, run_placed
from spark_jobs.places.remote_tree import list_tree
from store_writer import StoreWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = itertools.count()
SMALL = ("--tz", "UTC", "--slots", 97, "--entries", 100, "--queue-file-size", 400)
DRIVERS = 4


@pytest.fixture(scope="module", params=["google", pytest.param("hadoop", marks=pytest.mark.soak)])
def objects(request: pytest.FixtureRequest) -> Iterator[ObjectStore]:
    """One after the other. A file system of hdfs-native may not be left: fsspec would close it in every forked child,
    which waits for ever for threads that a fork does not copy.
    """
    found: ObjectStore = request.getfixturevalue(request.param)
    yield found
    fsspec.get_filesystem_class(found.root.partition("://")[0]).clear_instance_cache()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some segments, index files and queues of two topics."""
    root = tmp_path_factory.mktemp("schemes") / "store"
    writer = StoreWriter(root, segment_size=4096, queue_file_size=400, index_slots=97, index_entries=100)
    for number in range(100):
        writer.append(("Orders", "Payments")[number % 2], b"body %d" % number, keys=f"k{number}", tags="t")
    writer.close()
    assert [len(list((root / name).iterdir())) > 1 for name in ("commitlog", "index", "consumequeue")] == [True] * 3
    return root


@pytest.fixture(scope="module")
def url(objects: ObjectStore, store: Path) -> str:
    """The store there."""
    return objects.put(store, f"store-{next(NUMBERS)}")


@pytest.fixture
def place(objects: ObjectStore) -> OutputPlace:
    """An empty place."""
    return OutputPlace(f"{objects.root}/out-{next(NUMBERS)}", objects.options)


def successful(*arguments: object) -> Outcome:
    outcome = rocketlens(*arguments)
    assert outcome.code == 0, outcome
    return outcome


def parts(place: OutputPlace) -> dict[str, bytes | None]:
    """What the manifest names, by the last part of its name."""
    found = json.loads(place.read(MANIFEST) or b"")["parts"]
    return {Path(each.get("path") or each["name"]).name: place.read(each["name"]) for each in found}


def orphans(place: OutputPlace) -> set[str]:
    committed = read_manifest(place)
    return (
        set(place.objects("")) - {each.name for each in committed.parts if committed} - {MANIFEST}
        if committed
        else set()
    )


class TestJobs:
    """What is not for `make soak` reads, lists, writes and commits there; the rest of each job goes the same ways."""

    @pytest.mark.soak
    def test_a_verification_finds_what_it_finds_in_a_directory(
        self, objects: ObjectStore, store: Path, tmp_path: Path
    ) -> None:
        damaged = Path(shutil.copytree(store, tmp_path / "store"))
        path = min((damaged / "index").iterdir())
        path.write_bytes(path.read_bytes()[:43] + b"\1" + path.read_bytes()[44:])
        there = objects.put(damaged, f"store-{next(NUMBERS)}")
        here, found = (
            rocketlens("doctor", where, "--deep", "--json", "--work", tmp_path / "work", *more)
            for where, more in ((damaged, ()), (there, ("--storage-options", objects.options)))
        )
        assert (here.code, found.code) == (4, 4), found
        reports = [json.loads(each.output.decode().replace(there, str(damaged))) for each in (here, found)]
        same = ("kind", "path", "place", "position", "physicalOffset", "expected", "found", "count")
        read = [
            [[each[name] for name in same] for each in report["findings"] if each["known"] == "read"]
            for report in reports
        ]
        assert read[0] == read[1] != []

    @pytest.mark.soak
    def test_a_search_and_a_look_up_find_what_they_find_in_a_directory(
        self, objects: ObjectStore, store: Path, url: str, tmp_path: Path
    ) -> None:
        ids, options = tmp_path / "ids", ("--storage-options", objects.options)
        ids.write_text("k7\nk42\nnone")
        for name, *arguments in (
            ("search", "--topic", "Orders", "--contains", "body 4", "--json"),
            ("find", "-f", ids),
        ):
            here, found = rocketlens(name, store, *arguments), rocketlens(name, url, *arguments, *options)
            assert (found.code, found.output) == (here.code, here.output)
            assert len(here.messages) > 2

    def test_an_export_from_there_to_there_has_the_parts_of_one_from_directory_to_directory(
        self, objects: ObjectStore, store: Path, url: str, place: OutputPlace, tmp_path: Path
    ) -> None:
        arguments = ("--format", "parquet", "--out")
        successful("export", store, *arguments, tmp_path / "out")
        successful("export", url, *arguments, place.url, "--storage-options", objects.options)
        assert parts(place) == {path.name: path.read_bytes() for path in (tmp_path / "out").glob("part-*")} != {}
        assert orphans(place) == set()

    @pytest.mark.soak  # in each run: an export, above; a rebuild at S3, test_fetch.py
    def test_a_rebuild_from_there_to_there_that_is_fetched_is_one_in_place(
        self, objects: ObjectStore, store: Path, url: str, place: OutputPlace, tmp_path: Path
    ) -> None:
        here, fetched = (Path(shutil.copytree(store, tmp_path / name)) for name in ("here", "fetched"))
        successful("rebuild", "all", here, *SMALL, "--drop-backup")
        options = ("--storage-options", objects.options)
        out = ("--out", place.url, "--out-storage-options", objects.options, "--work", tmp_path / "work")
        successful("rebuild", "all", url, *SMALL, *options, *out)
        assert orphans(place) == set()
        successful("rebuild", "fetch", place.url, fetched, *options, "--drop-backup")
        assert files_under(fetched) == files_under(here)
        assert files_under(here) != files_under(store)

    @pytest.mark.soak
    @pytest.mark.usefixtures("spark")
    def test_a_rebuild_by_the_shuffle_to_there_is_one_by_files(
        self, objects: ObjectStore, store: Path, place: OutputPlace, tmp_path: Path
    ) -> None:
        successful("rebuild", "all", store, *SMALL, "--out", tmp_path / "out")
        options = ("--out-storage-options", objects.options, "--exchange", "shuffle")
        successful("rebuild", "all", store, *SMALL, "--out", place.url, *options)
        fetched = Path(shutil.copytree(store, tmp_path / "fetched"))
        successful("rebuild", "fetch", place.url, fetched, "--storage-options", objects.options, "--drop-backup")
        made = files_under(tmp_path / "out")
        assert {name: data for name, data in files_under(fetched).items() if name in made} == made != {}

    @pytest.mark.soak
    def test_a_compaction_from_there_to_there_is_one_of_a_directory(
        self, objects: ObjectStore, store: Path, url: str, place: OutputPlace, tmp_path: Path
    ) -> None:
        successful("compact", "index", store, "--tz", "UTC", "--out", tmp_path / "out")
        options = ("--storage-options", objects.options, "--out-storage-options", objects.options)
        successful("compact", "index", url, "--tz", "UTC", "--out", place.url, *options, "--work", tmp_path / "work")
        made = {path.name: path.read_bytes() for path in (tmp_path / "out" / "index").iterdir()}
        found = parts(place)
        assert {name: found[name] for name in made} == made != {}

    @pytest.mark.soak
    def test_the_data_source_reads_there_what_it_reads_in_a_directory(
        self, session: "SparkSession", objects: ObjectStore, store: Path, url: str
    ) -> None:
        columns = "physical_offset,topic,keys,body"
        here = session.read.format("rocketlens").option("columns", columns).load(str(store))
        source = session.read.format("rocketlens").option("columns", columns).option("storage_options", objects.options)
        expected = here.orderBy("physical_offset").collect()
        assert source.load(url).orderBy("physical_offset").collect() == expected
        assert len(expected) == 100


class TestPlaces:
    """What the commands do there without Spark."""

    def test_what_is_created_stays_what_it_is(self, place: OutputPlace) -> None:
        place.create("name", b"first")
        with pytest.raises(StoreError, match="cannot be used") as refused:
            place.create("name", b"second")
        assert "\n" not in str(refused.value)
        assert (place.read("name"), set(place.objects(""))) == (b"first", {"name"})

    def test_of_drivers_that_commit_at_once_one_wins_and_the_others_name_it(self, place: OutputPlace) -> None:
        drivers = [Driver.start(place.url, place.storage, "export") for _ in range(DRIVERS)]
        made = [run_placed(each.run, "task", (), _written(each.run.token)) for each in drivers]
        together = threading.Barrier(DRIVERS)
        lost: list[str] = []

        def commit(driver: Driver, record: dict[str, Any]) -> None:
            together.wait(60)
            try:
                driver.commit({"parts": record["objects"]})
            except StoreError as error:
                lost.append(str(error))

        threads = [threading.Thread(target=commit, args=each) for each in zip(drivers, made, strict=True)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        winner = read_manifest(place)
        assert winner is not None
        assert [f"is that of another run: {winner.run} of" in each for each in lost] == [True] * (DRIVERS - 1)
        assert parts(place) == {"part": winner.run.encode()}
        assert orphans(place) == set()
        with pytest.raises(ConfigError, match="it contains a finished export"):
            Driver.start(place.url, place.storage, "export")

    def test_what_a_run_that_died_has_left_is_found_and_removed(self, objects: ObjectStore, place: OutputPlace) -> None:
        dead, whole = (Driver.start(place.url, place.storage, "export") for _ in range(2))
        run_placed(dead.run, "task", (), _written("dead"))
        whole.commit({"parts": run_placed(whole.run, "other", (), _written("whole"))["objects"]})
        command = ("rebuild", "clean", place.url, "--storage-options", objects.options, "--json", "--older-than")
        assert json.loads(successful(*command, "1h").output)["orphans"] == []
        found = json.loads(successful(*command, "0s", "--delete").output)
        assert {each["name"].split("/")[1] for each in found["orphans"]} == {dead.run.token}
        assert len(found["orphans"]) == 3
        assert parts(place) == {"part": b"whole"}
        assert orphans(place) == set()

    def test_a_place_where_nothing_is_has_no_store(self, objects: ObjectStore) -> None:
        assert list_tree(f"{objects.root}/none", objects.options).files == ()
        outcome = rocketlens("verify", f"{objects.root}/none", "--storage-options", objects.options)
        assert (outcome.code, outcome.errors.count("\n")) == (3, 1)
        assert f"{objects.root}/none is no store" in outcome.errors


def _written(text: str) -> Any:
    def make(attempt: Any) -> dict[str, Any]:
        with attempt.writing("part") as (file, commit):
            file.write(text.encode())
            commit()
        return {}

    return make
