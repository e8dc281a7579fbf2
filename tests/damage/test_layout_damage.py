"""Every field of every layout of a store, with other values in it: what is whole is answered, what is not is named.

A small part of the product runs with the other tests, all of it, every bit too, with `make soak`.
"""

import itertools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

import damage_cases
from damage_oracle import Disk
from damage_trials import Trials, each_kind
from damaged_answers import check_by_key, check_by_offset, check_by_queue
from damaged_stores import Unfit
from protocol.errors import RocketLensError
from storage.doctor.examine import examine, look_at
from storage.doctor.finding import INDEX, QUEUES, Kind, Known, Severity
from storage.store.message_store import MessageStore
from verifying import verify_here

STEPS = {"records": 151, "queues": 101, "checkpoint": 9}
STEP = 47
"""Of so many cases of a kind, or else of any, one is tried with the other tests; all of them with `make soak`."""


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    return damage_cases.write_store(tmp_path_factory.mktemp("layouts") / "store")


@pytest.fixture(scope="module")
def ext_writer(tmp_path_factory):
    return damage_cases.write_store(tmp_path_factory.mktemp("layouts-ext") / "store", ext=True)


@dataclass(frozen=True)
class Case:
    place: damage_cases.Place
    name: str
    data: bytes

    def __str__(self) -> str:
        return f"{self.place}: {self.name}"


def damaged_stores(places, values, step=1):
    counter = itertools.count()
    for place in places:
        whole = place.path.read_bytes()
        current = whole[place.position : place.position + place.size]
        try:
            for name, data in values(place, current).items():
                if next(counter) % step == 0:
                    place.path.write_bytes(whole[: place.position] + data + whole[place.position + place.size :])
                    yield Case(place, name, data)
        finally:
            place.path.write_bytes(whole)


def is_told_by_verify_alone(writer, case):
    """A unit or an entry that leads to another message: of its own queue, or of any at all."""
    if case.place.field != "physical_offset" or "record" in case.place.layout:
        return False
    number = int.from_bytes(case.data, "big", signed=True)
    return "entry" in case.place.layout or any(each.physical_offset == number for each in writer.written)


def check(writer, case) -> None:
    store = MessageStore.open(writer.root)
    disk = Disk.of(writer.log.directories)
    excused = case is not None and is_told_by_verify_alone(writer, case)
    missing = [each.physical_offset for each in writer.written] if excused else []
    try:
        check_by_offset(store, disk, writer.written)
        check_by_key(store, disk, writer.written, missing=missing)
        if not excused:
            check_by_queue(store, disk, writer.written)
    except AssertionError as error:
        raise AssertionError(f"{case}: {error}") from error


KINDS = {
    "records": lambda writer: (
        place for each in damage_cases.chosen_records(writer) for place in damage_cases.record_places(writer, each)
    ),
    "queues": damage_cases.queue_places,
    "extensions": damage_cases.ext_places,
    "index files": damage_cases.index_places,
    "checkpoint": damage_cases.checkpoint_places,
}


def check_all(writer, places, values, step=1):
    count, failures = 0, list[str]()
    for case in damaged_stores(places, values, step):
        count += 1
        try:
            check(writer, case)
        except AssertionError as error:
            failures.append(str(error))
    assert failures == [], f"{len(failures)} of {count}"
    return count


@pytest.mark.parametrize(("values", "step", "least"), [
    pytest.param(damage_cases.Place.values, STEP, 5, id="some cases"),
    pytest.param(damage_cases.Place.values, 1, 40, marks=pytest.mark.soak, id="every case"),
    pytest.param(damage_cases.Place.bits, 5, 40, marks=pytest.mark.soak, id="bits"),
])  # fmt: skip
@pytest.mark.parametrize("kind", KINDS)
def test_all_that_is_whole_is_answered(kind, values, step, least, writer, ext_writer) -> None:
    chosen = ext_writer if kind == "extensions" else writer
    step = STEPS.get(kind, STEP) if step == STEP else step
    assert check_all(chosen, KINDS[kind](chosen), values, step) >= least


NAMED = {
    "size", "previous", "slot", "slot_count", "index_count", "begin_physical_offset", "end_physical_offset", "key_hash",
}  # fmt: skip
"""Fields of queues and index files whose damage the doctor names; others of them nothing but `verify` can tell."""


def highest_bit(place: damage_cases.Place, current: bytes) -> dict[str, bytes]:
    return {"highest bit": bytes([current[0] ^ 0x80]) + current[1:]} if current else {}


def test_the_doctor_names_each_damaged_record(writer) -> None:
    named = 0
    for case in damaged_stores(KINDS["records"](writer), highest_bit, 17):
        is_sound = MessageStore.open(writer.root).record_at(case.place.physical_offset) is not None
        findings = [finding for finding in examine(writer.root).findings if finding.check in ("log-end", "segments")]
        assert is_sound or case.place.physical_offset in [finding.physical_offset for finding in findings], str(case)
        named += not is_sound
    assert named > 3


@pytest.mark.parametrize("kind", ["queues", "index files"])
def test_the_doctor_names_each_damaged_unit_and_entry(kind, writer) -> None:
    places = [place for place in KINDS[kind](writer) if place.field in NAMED and "batch" not in place.layout]
    looked_at = 0
    for case in damaged_stores(places, highest_bit, 5):
        looked_at += 1
        told = [finding.where for finding in examine(writer.root).findings]
        assert any(str(case.place.path.parent) in place for place in told), f"{case}: {told}"
    assert looked_at > 3


def names(read, look):
    path, other = Path(read.path), Path(look.path)
    return path in (other, other.parent) or other.parent == path.parent or other in path.parents


def check_look(trials: Trials, chosen: int, of: int) -> int:
    count = 0
    for number, trial in enumerate(each_kind(7)):
        if number % of != chosen or trial.shape not in ("small", "classic", "expired", "ext", "recut"):
            continue
        try:
            root = trials.damaged(trial).root
            look, read = look_at(root), verify_here(root, trials.root / "work").details.findings
        except (Unfit, RocketLensError):
            continue
        joined = look.joined(read)
        listed = Counter(each.identity for each in joined if not each.more)
        assert [identity for identity, times in listed.items() if times > 1] == [], trial
        assert {each.identity for each in read if not each.more} <= set(listed), trial
        assert not {QUEUES, INDEX, ""} & {each.remedy for each in joined}, trial
        # Where a rescue makes queues and index anew, nothing else is advised for them.
        if any(each.kind in (Kind.RECORD, Kind.HOLE) and " rescue " in each.remedy for each in joined):
            assert not [each for each in joined if each.remedy.startswith("rocketlens rebuild ")], trial
        faulty = {each.path for each in read if each.check == "index-files"}
        assert not [each for each in joined if each.path in faulty and each.found.startswith("is not sound")], trial
        assert (look.diagnosis.is_clean and not read) == all(each.severity is Severity.INFO for each in joined), trial
        is_lost = any(each.kind in (Kind.RECORD, Kind.HOLE) for each in read)
        for each in look.diagnosis.findings:
            if each.check == "index-files" and is_lost:
                continue  # entries that lead to where the log is lost are no damage of the index
            if each.check in ("log-end", "queues", "index-files") and each.severity is Severity.ERROR and not each.more:
                assert any(names(other, each) for other in read), f"{trial}: {each.where}: {each.what}"
        # What is left of samples is of queues of which the reading says nothing.
        left = [each for each in joined if each.known is Known.SAMPLED and each.kind is Kind.MISSING_UNIT]
        directories = {str(Path(each.path).parent) for each in read} | {each.path for each in read}
        assert not directories & {each.path for each in left}, trial
        count += 1
    return count


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    return Trials(tmp_path_factory.mktemp("trials"))


@pytest.mark.parametrize(
    ("chosen", "of"), [(3, 25), *(pytest.param(chosen, 10, marks=pytest.mark.soak) for chosen in range(10))]
)
def test_what_both_find_stands_there_once_with_advice(trials: Trials, chosen: int, of: int) -> None:
    assert check_look(trials, chosen, of) > (1 if of == 25 else 3)
