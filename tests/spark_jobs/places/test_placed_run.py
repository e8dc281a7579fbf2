"""Runs that leave their output behind a URL: one commits, whatever dies; what no manifest names is cleaned away."""

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
from datetime import datetime

import pytest

from command_line import rocketlens
from dying import AT_EACH_PLACE, STRIDES, every_death
from object_store import LOST, FaultPlan, create_in_any_case, orphans
from protocol.errors import ConfigError, StoreError
from spark_jobs.places import clean as module
from spark_jobs.places.clean import clean
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.places.place_names import MANIFEST, WORK
from spark_jobs.places.placed_run import Driver, PlacedObject, check_url, read_manifest, run_placed

TASKS = ("export-1", "export-2")


@pytest.fixture
def place(tmp_path):
    return OutputPlace(f"file://{tmp_path}/out")


def write(attempt, text):
    with attempt.writing("part.csv") as (file, commit):
        file.write(text.encode())
        commit()
    return {"text": text}


def start(place: OutputPlace, *, fresh: bool = False) -> Driver:
    return Driver.start(place.url, place.storage, "export", fresh=fresh)


def run(driver, task, text=""):
    found = driver.found.get(task, ())
    return run_placed(driver.run, task, found, lambda attempt: write(attempt, text or task))


def finish(driver, records) -> None:
    driver.commit({"parts": [each for record in records for each in record["objects"]]})


def whole_run(place: OutputPlace, *, fresh: bool = False, text: str = "") -> None:
    driver = start(place, fresh=fresh)
    try:
        finish(driver, [run(driver, task, text and f"{text} {task}") for task in TASKS])
    finally:
        driver.leave()


def texts(place: OutputPlace) -> list[str]:
    """What the manifest leads to, each held against its size and checksum."""
    committed = read_manifest(place)
    found = []
    for each in committed.parts:
        data = place.read(each.name)
        assert each == PlacedObject(each.name, len(data), hashlib.sha256(data).hexdigest())
        found.append(data.decode())
    return sorted(found)


def test_a_run_leaves_what_its_manifest_names_and_nothing_else(new_place) -> None:
    place = new_place()
    whole_run(place)
    assert texts(place) == list(TASKS)
    assert orphans(place) == set()
    manifest = json.loads(place.read(MANIFEST) or b"")
    assert manifest["command"] == "export"
    assert manifest["parts"][0]["name"].startswith(f"_attempts/{manifest['run']}/")
    assert place.names() == ["_attempts", MANIFEST], "a reader of the directory passes over both"


def test_of_two_runs_the_first_to_commit_wins_and_the_other_says_so_and_leaves_nothing(new_place) -> None:
    place = new_place()
    first, second = start(place), start(place)
    ours = [run(first, task, f"first {task}") for task in TASKS]
    others = [run(second, task, f"second {task}") for task in TASKS]
    finish(second, others)
    with pytest.raises(StoreError, match=f"is that of another run: {second.run.token} of .* written at 20") as found:
        finish(first, ours)
    assert f"what this run ({first.run.token}) had written is removed" in str(found.value)
    assert texts(place) == [f"second {task}" for task in TASKS]
    assert orphans(place) == set()


def test_what_the_winner_took_over_stays_when_the_loser_removes_its_own(place: OutputPlace) -> None:
    first = start(place)
    ours = [run(first, task) for task in TASKS[:1]]
    second = start(place)
    finish(second, [run(second, task, f"second {task}") for task in TASKS])
    with pytest.raises(StoreError, match="another run"):
        finish(first, [*ours, run(first, TASKS[1])])
    assert texts(place) == [TASKS[0], "second export-2"]
    assert orphans(place) == set()


@AT_EACH_PLACE
@pytest.mark.parametrize("each", STRIDES)
def test_wherever_a_run_dies_the_same_command_ends_the_work_or_finds_it_ended(new_place, monkeypatch, each) -> None:
    places: list[OutputPlace] = []

    def work() -> None:
        places.append(new_place())
        whole_run(places[-1])

    ended = set()
    for death in every_death(work, monkeypatch, each):
        place = places[-1]
        committed = read_manifest(place)
        if committed is None:
            whole_run(place)
        else:
            with pytest.raises(ConfigError, match="it contains a finished export"):
                whole_run(place)
        ended.add(committed is None)
        assert texts(place) == list(TASKS), death
        assert all(name.startswith("_attempts/") for name in orphans(place)), death
    assert ended == {True, False}


@AT_EACH_PLACE
@pytest.mark.parametrize("each", [STRIDES[0], 3])
def test_wherever_a_replacement_dies_there_is_the_old_the_new_or_nothing_that_is_whole(
    new_place, monkeypatch, each
) -> None:
    places: list[OutputPlace] = []

    def work() -> None:
        whole_run(places[-1], fresh=True, text="new")

    def prepared() -> None:
        places.append(new_place())
        whole_run(places[-1])

    def rounds():
        prepared()
        for death in every_death(work, monkeypatch, each):
            yield death
            prepared()

    seen = set()
    new = [f"new {task}" for task in TASKS]
    for death in rounds():
        place = places[-1]
        found = texts(place) if read_manifest(place) else None
        assert found in (list(TASKS), new, None), death
        seen.add(str(found))
        whole_run(place, fresh=True, text="new")
        assert texts(place) == new, death
    assert len(seen) == 3


@pytest.mark.parametrize("change", ["gone", "longer", "no record"])
def test_an_attempt_whose_objects_are_not_what_they_were_is_made_again(place: OutputPlace, change: str) -> None:
    record = run(start(place), TASKS[0])
    name = record["objects"][0]["name"]
    place.remove([name if change != "no record" else f"{record['attempt']}/_done.json"])
    if change != "gone":
        other = place.new_object(name if change == "longer" else f"{record['attempt']}/_done.json")
        other.write(b"something else that is longer")
        other.commit()
    driver = start(place)
    assert driver.found == {TASKS[0]: [record["attempt"]]}
    finish(driver, [run(driver, TASKS[0], "again")])
    assert texts(place) == ["again"]


def test_what_is_gone_before_it_counts_is_not_committed(place: OutputPlace) -> None:
    driver = start(place)
    record = run(driver, TASKS[0])
    place.remove([record["objects"][0]["name"]])
    with pytest.raises(StoreError, match="was removed or changed before it counted"):
        finish(driver, [record])
    assert read_manifest(place) is None


@pytest.mark.parametrize("operation", ["read", "create", "objects"])
def test_a_run_that_cannot_begin_or_end_leaves_nothing(place, monkeypatch, operation) -> None:
    """Whichever of its requests fails, even one that has done its work."""
    done, errors = getattr(OutputPlace, operation), 0
    for failing in range(6):
        calls = itertools.count()

        def fail(*arguments, failing=failing, calls=calls):
            answer = done(*arguments)
            if next(calls) == failing:
                raise StoreError(place.url, what="cannot be used: 503")
            return answer

        with monkeypatch.context() as patch:
            patch.setattr(OutputPlace, operation, fail)
            try:
                start(place).leave()
            except StoreError as error:
                errors += "503" in str(error)
        assert place.objects("") == {}, failing
    assert errors


class TestPlaces:
    def test_what_is_created_stays_what_it_is(self, new_place) -> None:
        place = new_place()
        place.create("name", b"first")
        with pytest.raises(StoreError, match="cannot be used"):
            place.create("name", b"second")
        assert place.read("name") == b"first"
        assert set(place.objects("")) == {"name"}

    def test_removing_what_is_gone_is_no_error(self, new_place) -> None:
        place = new_place()
        place.create("a/b/one", b"")
        place.remove(["a/b/one", "a/b/two"])
        place.remove([])
        assert (place.names(), place.objects("a"), place.read("a/b/one"), place.size("x")) == ([], {}, None, None)


def test_writes_that_are_refused_or_never_answered_leave_a_whole_run(objects, tmp_path) -> None:
    """The manifest too is created and the answer lost, so that the next try finds one there.

    An upload whose end is not answered fails, for then it is gone: the run is repeated, as Spark repeats a task.
    """
    url, large = f"s3://stores/{tmp_path.name}/faults", "x" * (6 * 1024 * 1024)
    plan = FaultPlan(1, share=0.2, writes=True, lost=MANIFEST)
    place = OutputPlace(url, objects.options)
    with objects.behind(plan, asks_again=True) as faulty:
        options = json.dumps(json.loads(faulty.options) | {"default_block_size": 5 * 1024 * 1024})
        for _ in range(10):
            with contextlib.suppress(StoreError):
                whole_run(OutputPlace(url, options), text=large)
            if read_manifest(place) is not None:
                break
    assert plan.done[LOST]
    assert [text[-8:] for text in texts(place)] == list(TASKS)
    assert [len(text) for text in texts(place)] == [len(large) + 9] * 2
    assert not [name for name in orphans(place) if name.endswith("part.csv")]


HOUR = 3600.0


def place_with_orphans(place: OutputPlace) -> tuple[set[str], float]:
    killed, whole = start(place), start(place)
    run(killed, TASKS[0], "killed")
    finish(whole, [run(whole, TASKS[0], "whole")])
    there = place.objects("")
    orphans = {name for name in there if f"/{killed.run.token}/" in name}
    assert len(orphans) == 3
    return orphans, max(each.written or 0 for each in there.values())


def cleaned(place, now, *, delete=False):
    return clean(place.url, place.storage, HOUR, now, delete=delete)


def test_what_the_manifest_names_stays_and_the_rest_goes(new_place) -> None:
    place = new_place()
    orphans, written = place_with_orphans(place)
    before = set(place.objects(""))
    found = cleaned(place, written + HOUR)
    assert {each.name for each in found.orphans} == orphans
    assert (found.younger, found.deleted, found.bytes > len("killed")) == (0, False, True)
    assert set(place.objects("")) == before
    assert cleaned(place, written + HOUR, delete=True).deleted
    committed = read_manifest(place)
    assert set(place.objects("")) == before - orphans == {MANIFEST, committed.parts[0].name}
    assert cleaned(place, written + HOUR).orphans == []


def test_without_a_manifest_what_is_old_goes_but_nothing_of_others(place: OutputPlace) -> None:
    run(start(place), TASKS[0], "unfinished")
    place.create("precious", b"")
    place.create("_attempts_of_others/precious", b"")
    written = max(each.written or 0 for each in place.objects("").values())
    found = cleaned(place, written + HOUR, delete=True)
    assert (len(found.orphans), found.committed) == (3, None)
    assert set(place.objects("")) == {"precious", "_attempts_of_others/precious"}


def test_what_is_committed_while_it_is_cleaned_is_named(place: OutputPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = start(place)
    record = run(driver, TASKS[0], "late")
    written = max(each.written or 0 for each in place.objects("").values())

    def commit_and_read(place):
        driver.commit({"parts": record["objects"]})
        return read_manifest(place)

    monkeypatch.setattr(module, "read_manifest", commit_and_read)
    cleaned(place, written + HOUR, delete=True)
    assert place.read(record["objects"][0]["name"]) == b"late"


def test_an_upload_that_was_never_finished_is_found_and_aborted(objects, tmp_path) -> None:
    small = json.dumps(json.loads(objects.options) | {"default_block_size": 5 << 20})
    place = OutputPlace(f"s3://stores/{tmp_path.name}", small)
    name = "_attempts/0/export-1.0/part"
    new, other = place.new_object(name), place.new_object("elsewhere")
    for each in (new, other):
        for _ in range(6):
            each.write(bytes(1 << 20))
    written = max(each.written or 0 for each in place.uploads("").values())
    found = cleaned(place, written + HOUR, delete=True)
    assert [(each.name, bool(each.upload)) for each in found.orphans] == [(name, True)]
    assert [name for name, _ in place.uploads("")] == ["elsewhere"]
    new.close()
    other.close()
    assert (list(place.uploads("")), place.objects("")) == ([], {}), "what is given up leaves nothing"


class TestDirectories:
    def test_unfinished_work_and_parts_are_orphans(self, tmp_path) -> None:
        old = tmp_path / WORK / "run-1" / "partial" / "export-1.0"
        old.parent.mkdir(parents=True)
        (tmp_path / WORK / "lock").touch()
        part, named = (tmp_path / f"part-{number:020d}.csv" for number in (0, 1))
        for path in (old, part, named, tmp_path / "part-of-somebody"):
            path.write_bytes(b"12345")
        parts = [{"name": named.name, "bytes": 5, "sha256": ""}]
        (tmp_path / MANIFEST).write_text(json.dumps({"command": "export", "parts": parts}))
        found = clean(str(tmp_path), "", HOUR, os.stat(part).st_mtime + HOUR, delete=True)
        assert {each.name for each in found.orphans} == {f"{WORK}/run-1/partial/export-1.0", f"{WORK}/lock", part.name}
        assert set(os.listdir(tmp_path)) == {MANIFEST, named.name, "part-of-somebody"}

    def test_a_job_that_runs_and_one_that_has_not_ended_its_publishing_are_left_alone(self, tmp_path) -> None:
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
    def test_it_lists_and_then_deletes(self, tmp_path) -> None:
        place = OutputPlace(f"file://{tmp_path}/out")
        orphans, _ = place_with_orphans(place)
        outcome = rocketlens("rebuild", "clean", tmp_path / "out")
        assert (outcome.code, outcome.text.splitlines()) == (
            0, ["0 orphans, 0 bytes, older than 24:00:00",
                "note: 3 objects that no manifest names yet: younger, left alone"],
        )  # fmt: skip
        outcome = rocketlens("rebuild", "clean", place.url, "--older-than", "0s", "--json")
        report = json.loads(outcome.text)
        assert {each["name"] for each in report["orphans"]} == orphans
        assert (report["deleted"], report["younger"], report["committed"]["command"]) == (False, 0, "export")
        lines = rocketlens("rebuild", "clean", tmp_path / "out", "--older-than", "0s", "--delete").text.splitlines()
        assert {line.split("  ")[0] for line in lines[:-1]} == orphans
        assert all(datetime.fromisoformat(line.split("  ")[2]) for line in lines[:-1])
        assert lines[-1] == f"3 orphans, {report['bytes']} bytes, deleted"
        assert set(place.objects("")).isdisjoint(orphans)

    def test_wrong_usage_is_told(self, tmp_path) -> None:
        for words, said in (
            (["--older-than", "soon"], "'soon', expected a number and s, m, h or d, like 24h"),
            (["--storage-options", "["], "storage_options: "),
        ):
            outcome = rocketlens("rebuild", "clean", tmp_path, *words)
            assert (outcome.code, said in outcome.errors) == (2, True)
        assert "note: nothing is finished there" in rocketlens("rebuild", "clean", tmp_path).text

    def test_a_store_is_no_place_to_clean(self, g1_store, tmp_path) -> None:
        unknown = [(g1_store, "is a store"), (tmp_path / "none", "is no directory"), ("nothing://y", "not known")]
        for where, said in unknown:
            outcome = rocketlens("rebuild", "clean", where, "--delete", "--older-than", "0s")
            assert (outcome.code, said in outcome.errors) == (2, True), outcome


def test_a_run_that_fails_leaves_what_is_finished_unless_another_has_committed(place: OutputPlace) -> None:
    first, second = start(place), start(place)
    run(first, TASKS[0])
    second.leave()
    first.leave()
    third = start(place)
    assert list(third.found) == [TASKS[0]]
    finish(third, [run(third, TASKS[0], "not made again")])
    first.leave()
    assert texts(place) == [TASKS[0]]
    assert orphans(place) == set()


def test_an_attempt_that_fails_leaves_nothing(new_place) -> None:
    place = new_place()
    driver = start(place)

    def fail(attempt):
        write(attempt, "whole")
        with attempt.writing("half.csv") as (file, _):
            file.write(b"x" * 100_000)
            raise KeyError
        raise AssertionError

    with pytest.raises(KeyError):
        run_placed(driver.run, TASKS[0], (), fail)
    driver.leave()
    assert place.objects("") == {}


def test_a_place_that_replaces_what_was_created_is_refused(place: OutputPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    def create(self: OutputPlace, name: str, data: bytes) -> None:
        self.remove([name] if self.read(name) is not None else [])
        create_in_any_case(self, name, data)

    monkeypatch.setattr(OutputPlace, "create", create)
    with pytest.raises(ConfigError, match="ignores If-None-Match"):
        start(place)
    assert place.objects("") == {}


def test_a_refusal_is_told_though_nothing_can_be_removed_there(objects, tmp_path, monkeypatch) -> None:
    """With what is left there, and why."""
    place = OutputPlace(f"s3://stores/{tmp_path.name}/kept", objects.options)

    def refuse(self: OutputPlace, names: object) -> None:
        raise StoreError(self.url, what="cannot be used: MissingContentMD5")

    monkeypatch.setattr(OutputPlace, "create", create_in_any_case)
    monkeypatch.setattr(OutputPlace, "remove", refuse)
    with pytest.raises(ConfigError, match="ignores If-None-Match") as found:
        start(place)
    (left,) = place.objects("")
    assert f"; {place.path(left)} stays there: {place.url}: cannot be used: MissingContentMD5" in str(found.value)


def test_objects_are_removed_one_by_one_where_many_at_once_are_refused(objects, tmp_path, monkeypatch) -> None:
    place = OutputPlace(f"s3://stores/{tmp_path.name}/one-by-one", objects.options)

    def refuse(*_: object, **__: object) -> None:
        raise OSError("MissingContentMD5")

    for name in ("a", "b"):
        place.create(name, b"x")
    monkeypatch.setattr(type(place._system), "rm", refuse)
    place.remove(["a", "gone", "b"])
    assert place.objects("") == {}


def test_what_is_there_and_not_ours_is_refused_and_left_alone(place: OutputPlace) -> None:
    place.create("precious", b"x")
    with pytest.raises(ConfigError, match="it contains precious: choose an empty directory"):
        check_url(place.url, place.storage, fresh=True)
    assert set(place.objects("")) == {"precious"}
    place.remove(["precious"])
    place.create(MANIFEST, b"{}")
    with pytest.raises(StoreError, match="is no manifest of RocketLens"):
        check_url(place.url, place.storage, fresh=True)


def test_only_where_something_can_be_created_once_is_a_place() -> None:
    with pytest.raises(ConfigError, match=r"memory://x: nothing can be written there, only to s3://, gs://"):
        OutputPlace("memory://x")


def test_an_object_store_that_does_not_answer_is_named() -> None:
    options = {"endpoint_url": "http://127.0.0.1:9", "key": "x", "secret": "x"}
    options["config_kwargs"] = {"retries": {"max_attempts": 0}}
    with pytest.raises(StoreError, match=r"s3://stores/out: cannot be used: .*127\.0\.0\.1:9"):
        OutputPlace("s3://stores/out", json.dumps(options)).names()
