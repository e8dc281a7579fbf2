"""What is at `gs://` and, in `make soak`, at `hdfs://` is listed, read, written and committed as in a directory."""

import itertools
import json
import threading
from pathlib import Path

import fsspec
import pytest

from command_line import rocketlens
from object_store import orphans
from protocol.errors import ConfigError, StoreError
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.places.place_names import MANIFEST
from spark_jobs.places.placed_run import Driver, read_manifest, run_placed
from store_writer import StoreWriter

NUMBERS = itertools.count()
DRIVERS = 4


@pytest.fixture(scope="module", params=["google", pytest.param("hadoop", marks=pytest.mark.soak)])
def objects(request):
    """One after the other. A file system of hdfs-native may not be left: fsspec would close it in every forked child,
    which waits for ever for threads that a fork does not copy.
    """
    found = request.getfixturevalue(request.param)
    yield found
    fsspec.get_filesystem_class(found.root.partition("://")[0]).clear_instance_cache()


@pytest.fixture
def place(objects):
    return OutputPlace(f"{objects.root}/out-{next(NUMBERS)}", objects.options)


def successful(*arguments):
    outcome = rocketlens(*arguments)
    assert outcome.code == 0, outcome
    return outcome


def parts(place: OutputPlace) -> dict[str, bytes | None]:
    """What the manifest names, by the last part of its name."""
    found = json.loads(place.read(MANIFEST) or b"")["parts"]
    return {Path(each.get("path") or each["name"]).name: place.read(each["name"]) for each in found}


def test_an_export_from_there_to_there_has_the_parts_of_one_from_directory_to_directory(
    objects, tmp_path, place
) -> None:
    with StoreWriter(tmp_path / "store", segment_size=4096) as writer:
        for number in range(100):
            writer.append("Orders", b"body %d" % number, keys=f"k{number}", tags="t")
    store, url = writer.root, objects.put(writer.root, f"store-{next(NUMBERS)}")
    arguments = ("--format", "parquet", "--out")
    successful("export", store, *arguments, tmp_path / "out")
    successful("export", url, *arguments, place.url, "--storage-options", objects.options)
    assert parts(place) == {path.name: path.read_bytes() for path in (tmp_path / "out").glob("part-*")} != {}
    assert orphans(place) == set()


def test_of_drivers_that_commit_at_once_one_wins_and_the_others_name_it(place: OutputPlace) -> None:
    drivers = [Driver.start(place.url, place.storage, "export") for _ in range(DRIVERS)]
    made = [run_placed(each.run, "task", (), _written(each.run.token)) for each in drivers]
    together = threading.Barrier(DRIVERS)
    lost: list[str] = []

    def commit(driver, record) -> None:
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
    assert [f"is that of another run: {winner.run} of" in each for each in lost] == [True] * (DRIVERS - 1)
    assert parts(place) == {"part": winner.run.encode()}
    assert orphans(place) == set()
    with pytest.raises(ConfigError, match="it contains a finished export"):
        Driver.start(place.url, place.storage, "export")


def _written(text):
    def make(attempt):
        with attempt.writing("part") as (file, commit):
            file.write(text.encode())
            commit()
        return {}

    return make
