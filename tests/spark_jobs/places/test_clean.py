"""`rocketlens clean`: finds what no manifest names and is old enough, and nothing else."""

import fcntl
import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from command_line import rocketlens
from object_store import Fresh, ObjectStore
from protocol.errors import ConfigError
from spark_jobs.places import clean as module
from spark_jobs.places.clean import Leftovers, clean
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.places.place_names import MANIFEST, WORK
from spark_jobs.places.placed_run import Driver, read_manifest, run_placed

HOUR = 3600.0


@pytest.fixture
def place(tmp_path: Path) -> OutputPlace:
    return OutputPlace(f"file://{tmp_path}/out")


def attempt(driver: Driver, text: str) -> dict[str, Any]:
    def make(attempt: Any) -> dict[str, Any]:
        with attempt.writing("part") as (file, commit):
            file.write(text.encode())
            commit()
        return {}

    return run_placed(driver.run, "export-1", (), make)


def place_with_orphans(place: OutputPlace) -> tuple[set[str], float]:
    """A committed run, a killed one; the names of what the latter left, and when the last of all was written."""
    killed, whole = (Driver.start(place.url, place.storage, "export") for _ in range(2))
    attempt(killed, "killed")
    whole.commit({"parts": attempt(whole, "whole")["objects"]})
    there = place.objects("")
    orphans = {name for name in there if f"/{killed.run.token}/" in name}
    assert len(orphans) == 3
    return orphans, max(each.written or 0 for each in there.values())


def cleaned(place: OutputPlace, now: float, *, delete: bool = False) -> Leftovers:
    return clean(place.url, place.storage, HOUR, now, delete=delete)


def test_what_the_manifest_names_stays_and_the_rest_goes(new_place: Fresh) -> None:
    place = new_place()
    orphans, written = place_with_orphans(place)
    before = set(place.objects(""))
    found = cleaned(place, written + HOUR)
    assert {each.name for each in found.orphans} == orphans
    assert (found.younger, found.deleted, found.bytes > len("killed")) == (0, False, True)
    assert set(place.objects("")) == before
    assert cleaned(place, written + HOUR, delete=True).deleted
    committed = read_manifest(place)
    assert committed is not None
    assert set(place.objects("")) == before - orphans == {MANIFEST, committed.parts[0].name}
    assert cleaned(place, written + HOUR).orphans == []


def test_what_is_younger_than_the_age_stays(place: OutputPlace) -> None:
    orphans, _ = place_with_orphans(place)
    first = min(each.written or 0 for each in place.objects("").values())
    found = cleaned(place, first + HOUR - 1, delete=True)
    assert (found.orphans, found.younger) == ([], len(orphans))
    assert orphans < set(place.objects(""))


def test_without_a_manifest_what_is_old_goes_but_nothing_of_others(place: OutputPlace) -> None:
    attempt(Driver.start(place.url, place.storage, "export"), "unfinished")
    place.create("precious", b"")
    place.create("_attempts_of_others/precious", b"")
    written = max(each.written or 0 for each in place.objects("").values())
    found = cleaned(place, written + HOUR, delete=True)
    assert (len(found.orphans), found.committed) == (3, None)
    assert set(place.objects("")) == {"precious", "_attempts_of_others/precious"}


def test_what_is_committed_while_it_is_cleaned_is_named(place: OutputPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver.start(place.url, place.storage, "export")
    record = attempt(driver, "late")
    written = max(each.written or 0 for each in place.objects("").values())

    def commit_and_read(place: OutputPlace) -> Any:
        driver.commit({"parts": record["objects"]})
        return read_manifest(place)

    monkeypatch.setattr(module, "read_manifest", commit_and_read)
    cleaned(place, written + HOUR, delete=True)
    assert place.read(record["objects"][0]["name"]) == b"late"


def test_an_upload_that_was_never_finished_is_found_and_aborted(objects: ObjectStore, tmp_path: Path) -> None:
    place = OutputPlace(f"s3://stores/{tmp_path.name}", objects.options)
    name = "_attempts/0/export-1.0/part"
    new, other = place.new_object(name), place.new_object("elsewhere")
    for each in (new, other):
        for _ in range(60):
            each.write(bytes(1 << 20))
    written = max(each.written or 0 for each in place.uploads("").values())
    found = cleaned(place, written + HOUR, delete=True)
    assert [(each.name, bool(each.upload)) for each in found.orphans] == [(name, True)]
    assert [name for name, _ in place.uploads("")] == ["elsewhere"]
    new.close()
    other.close()
    assert (list(place.uploads("")), place.objects("")) == ([], {}), "what is given up leaves nothing"


class TestDirectories:
    """Exports into a directory, which have their work beside their parts."""

    def test_unfinished_work_and_parts_are_orphans(self, tmp_path: Path) -> None:
        old = tmp_path / WORK / "run-1" / "partial" / "export-1.0"
        old.parent.mkdir(parents=True)
        (tmp_path / WORK / "lock").touch()
        part, named = (tmp_path / f"part-{number:020d}.csv" for number in (0, 1))
        for path in (old, part, named, tmp_path / "part-of-somebody"):
            path.write_bytes(b"12345")
        (tmp_path / MANIFEST).write_text(
            json.dumps({"command": "export", "parts": [{"name": named.name, "bytes": 5, "sha256": ""}]})
        )
        found = clean(str(tmp_path), "", HOUR, os.stat(part).st_mtime + HOUR, delete=True)
        assert {each.name for each in found.orphans} == {
            f"{WORK}/run-1/partial/export-1.0", f"{WORK}/lock", part.name,
        }  # fmt: skip
        assert set(os.listdir(tmp_path)) == {MANIFEST, named.name, "part-of-somebody"}

    def test_a_job_that_is_running_and_one_that_has_not_ended_its_publishing_are_left_alone(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / WORK).mkdir()
        with (tmp_path / WORK / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(ConfigError, match="a job is running there"):
                clean(str(tmp_path), "", 0, 2e9, delete=True)
        assert clean(str(tmp_path), "", 0, 2e9, delete=False).orphans[0].name == f"{WORK}/lock"

        (tmp_path / WORK / "journal.msgpack").touch()
        with pytest.raises(ConfigError, match="belongs to an unfinished publishing"):
            clean(str(tmp_path), "", 0, 2e9, delete=True)


class TestCommand:
    def test_it_lists_and_then_deletes(self, tmp_path: Path) -> None:
        place = OutputPlace(f"file://{tmp_path}/out")
        orphans, _ = place_with_orphans(place)
        outcome = rocketlens("rebuild", "clean", tmp_path / "out")
        assert (outcome.code, outcome.text.splitlines()) == (
            0,
            [
                "0 orphans, 0 bytes, older than 24:00:00",
                "note: 3 objects that no manifest names yet: younger, left alone",
            ],
        )
        outcome = rocketlens("rebuild", "clean", place.url, "--older-than", "0s", "--json")
        report = json.loads(outcome.text)
        assert {each["name"] for each in report["orphans"]} == orphans
        assert (report["deleted"], report["younger"], report["committed"]["command"]) == (False, 0, "export")
        lines = rocketlens("rebuild", "clean", tmp_path / "out", "--older-than", "0s", "--delete").text.splitlines()
        assert {line.split("  ")[0] for line in lines[:-1]} == orphans
        assert all(datetime.fromisoformat(line.split("  ")[2]) for line in lines[:-1])
        assert lines[-1] == f"3 orphans, {report['bytes']} bytes, deleted"
        assert set(place.objects("")).isdisjoint(orphans)

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--older-than", "soon"], "'soon', expected a number and s, m, h or d, like 24h"),
            (["--storage-options", "["], "storage_options: "),
        ],
    )
    def test_wrong_usage_is_told(self, tmp_path: Path, words: list[str], said: str) -> None:
        outcome = rocketlens("rebuild", "clean", tmp_path, *words)
        assert (outcome.code, said in outcome.errors) == (2, True)
        assert "note: nothing is finished there" in rocketlens("rebuild", "clean", tmp_path).text

    def test_a_store_is_no_place_to_clean(self, g1_store: Path, tmp_path: Path) -> None:
        for where, said in (
            (g1_store, "is a store"),
            (tmp_path / "none", "is no directory"),
            ("nothing://y", "not known"),
        ):
            outcome = rocketlens("rebuild", "clean", where, "--delete", "--older-than", "0s")
            assert (outcome.code, said in outcome.errors) == (2, True), outcome
