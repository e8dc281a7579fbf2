"""Stores with damage of every kind, served on a socket: an oracle of its own asks for every message in every way.
A failure's line begins with what `python tests/support/damage_trials.py` takes to do it again."""

import itertools
import shutil
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import pytest

import damage_cases
import damaged_stores
import oracles
from broker_harness import service_of, serving_in_a_thread
from damage_oracle import Disk, intact
from damage_trials import KINDS, Trial, Trials, each_kind, judge, random_trials
from damaged_stores import Unfit
from lane_requests import PULL, QUERY, VIEW
from protocol.codes import ResponseCode
from protocol.errors import RocketLensError
from protocol.question import KeyKind, Question
from queue_runs import files_under
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands.run import run_rebuild
from spark_jobs.run.progress import Silence
from storage.doctor.examine import examine, look_at
from storage.doctor.finding import INDEX, QUEUES, Kind, Known, Severity
from storage.query.get_message import get_message
from storage.store.message_store import MessageStore
from trial_oracle import MAXIMUM, MINIMUM, SUCCESS, TIME_SEARCH, Judge, TrialClient, Verdict
from trial_stores import SHAPES, Allowance
from verifying import verify_here

MOST_PULLS = 1000


def check_by_offset(store, disk, written) -> None:
    for each in written:
        record = store.record_at(each.physical_offset)
        if disk.has(each):
            assert record is not None, f"the whole record at {each.physical_offset} is not answered by offset"
            assert bytes(record) == each.record
        elif record is not None:
            check_sound(bytes(record), each.physical_offset)
        else:
            assert store.explain_absence(each.physical_offset)


def check_sound(record: bytes, physical_offset: int) -> None:
    """Check that nothing that is presented is damaged as far as a checksum or a length can show."""
    sound = intact(record, 0, physical_offset)
    assert sound is not None, f"the record at {physical_offset} is presented as whole"
    assert sound.total_size == len(record)


def check_by_key(store, disk, written, *, missing=()) -> None:
    """Check that whole records are found by each of their keys; all that is found is sound and has the key."""
    missing, wanted = set(missing), defaultdict(list)
    for each in written:
        record = oracles.read_record(each.record, 0)
        if record is None or not disk.has(each) or record.sys_flag & 0xC == 0xC:
            continue
        for key in record.keys:
            wanted[each.topic, "K", key].append(each.physical_offset)
        if "UNIQ_KEY" in record.properties:
            wanted[each.topic, "U", record.properties["UNIQ_KEY"]].append(each.physical_offset)
    for (topic, kind, key), offsets in wanted.items():
        answer = store.query(Question(topic, key, KeyKind.KEY if kind == "K" else KeyKind.UNIQUE, maximum=10_000))
        lacking = set(offsets) - set(answer.physical_offsets) - missing
        assert not lacking, f"{topic} {kind} {key} does not find {sorted(lacking)}"
        position = 0
        for offset, size in zip(answer.physical_offsets, answer.sizes, strict=True):
            piece = answer.records[position : position + size]
            check_sound(piece, offset)
            found = oracles.read_record(piece, 0)
            assert found is not None
            assert oracles.has_key(found, key, kind)
            position += size


def check_by_queue(store, disk, written, *, missing=()) -> None:
    """Whole records come by pulls from their queue's beginning, each once; all that comes is sound and of the queue."""
    missing, wanted = set(missing), defaultdict(set)
    for each in written:
        record = oracles.read_record(each.record, 0)
        if record is not None and disk.has(each) and oracles.is_queued(record):
            wanted[each.topic, each.queue_id].add(each.physical_offset)
    for (topic, queue_id), offsets in wanted.items():
        pulled = pull_all(store, topic, queue_id)
        lacking = offsets - set(pulled) - missing
        assert not lacking, f"{topic} {queue_id} does not deliver {sorted(lacking)}"
        assert len(pulled) == len(set(pulled)), f"{topic} {queue_id} delivers twice"


def pull_all(store, topic, queue_id):
    """Physical offsets of all messages that a consumer gets of one queue, from its first offset to its last."""
    queue = store.queues.queue(topic, queue_id)
    if queue is None:
        return []
    found: list[int] = []
    offset = queue.min_offset
    for _ in range(MOST_PULLS):
        if offset >= queue.max_offset:
            return found
        result = get_message(store.queues, topic, queue_id, offset, 32, 2**20)
        for record in result.records:
            message = oracles.read_record(bytes(record), 0)
            assert message is not None
            check_sound(bytes(record), message.physical_offset)
            assert (message.topic, message.queue_id) == (topic, queue_id)
            found.append(message.physical_offset)
        assert result.next_begin_offset > offset, f"{topic} {queue_id} does not move on from {offset}"
        offset = result.next_begin_offset
    raise AssertionError(f"{topic} {queue_id} never ends")


SEED = 15
VARIANTS = 400

REBUILDS = 25


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    return Trials(tmp_path_factory.mktemp("trials"))


def run_all(trials, chosen):
    count, verdict = 0, Verdict()
    for trial in chosen:
        try:
            verdict += trials.run(trial, thorough=True)
            count += 1
        except Unfit:
            continue
    print(verdict.line(count))
    return count, verdict


# --- the judge --------------------------------------------------------------------------------------------------------


def judge_good(good, client=TrialClient, every=1):
    with serving_in_a_thread(service_of(MessageStore.open(good.root))) as address, closing(client(address)) as asking:
        return Judge(asking, good, Disk.of([good.root / "commitlog"]), every=every).judge()


@pytest.mark.parametrize(
    "shape",
    [pytest.param(shape, marks=[pytest.mark.soak] if shape not in ("small", "ext") else []) for shape in SHAPES],
)
def test_nothing_is_missed_in_a_store_without_damage(shape: str, trials: Trials) -> None:
    verdict = judge_good(trials.good(shape))
    assert verdict.failures == []
    assert verdict.asked > 5 * len(trials.good(shape).messages)


def without_last(answer):
    position = last = 0
    while position < len(answer.body):
        last, position = position, position + int.from_bytes(answer.body[position : position + 4], "big")
    return replace(answer, body=answer.body[:last])


def damaged(answer):
    body = answer.body
    return replace(answer, body=body[:5] + bytes([body[5] ^ 1]) + body[6:])


def repeated(answer):
    return replace(answer, body=2 * answer.body)


def refused(code):
    return lambda answer: replace(answer, code=code, body=b"")


def told(offset):
    return lambda answer: replace(answer, fields={"offset": str(offset)})


LIES = {
    "an offset that is not found": (VIEW, refused(ResponseCode.SYSTEM_ERROR), "missed: by offset"),
    "a damaged record by offset": (VIEW, damaged, "damaged: by offset"),
    "a key that is not found": (QUERY, refused(ResponseCode.QUERY_NOT_FOUND), "missed: by"),
    "a key of which one message is not found": (QUERY, without_last, "missed: by"),
    "a message twice": (QUERY, repeated, "twice"),
    "a pull that lacks its last message": (PULL, without_last, "missed: drain"),
    "a pull that has a damaged record": (PULL, damaged, "damaged: drain"),
    "a pull whose messages come twice": (PULL, repeated, "twice"),
    "a pull that is illegal": (PULL, refused(ResponseCode.PULL_OFFSET_MOVED), "missed: drain"),
    "a queue that ends early": (MAXIMUM, told(3), "maximum"),
    "a queue that begins late": (MINIMUM, told(3), "minimum"),
    "a time that is later": (TIME_SEARCH, told(9999), "time"),
}


@pytest.mark.parametrize(
    "lie", [pytest.param(lie, marks=[pytest.mark.soak] if number % 3 else []) for number, lie in enumerate(LIES)]
)
def test_the_judge_notices(lie: str, trials: Trials) -> None:
    """One answer of a kind, the seventh that has something to say, is another than the server's."""
    code, change, words = LIES[lie]

    class Liar(TrialClient):
        told = 0

        def ask_all(self, requests):
            waiting = list(requests)
            for (asked, _), answer in zip(waiting, super().ask_all(waiting), strict=True):
                self.told += asked == code and answer.code == SUCCESS
                yield change(answer) if self.told == 7 and asked == code else answer

    verdict = judge_good(trials.good("small"), Liar, 6)
    assert any(words in failure for failure in verdict.failures), verdict.failures


# --- the generator ----------------------------------------------------------------------------------------------------


def test_a_seed_decides_all_of_the_damage(trials: Trials) -> None:
    chosen = Trial("small", SEED, ("log_page_zeroed", "units_of_garbage", "index_slots_of_garbage"))
    first, second, good = trials.damaged(chosen), trials.damaged(chosen), trials.good("small")
    other = trials.damaged(replace(chosen, seed=SEED + 1))
    assert files_under(first.root) == files_under(second.root)
    assert len({str(files_under(each.root)) for each in (first, other)}) == 2
    assert first.noted == second.noted
    changed = {
        name.split("/")[0] for name, data in files_under(good.root).items() if files_under(first.root)[name] != data
    }
    assert changed == {"commitlog", "consumequeue", "index"}


@pytest.mark.soak
def test_every_kind_changes_a_store_and_says_how(trials: Trials) -> None:
    short = [trial for trial in each_kind(SEED) if trial.shape != "paged"]
    before = {trial.shape: files_under(trials.good(trial.shape).root) for trial in short}
    for trial in short:
        damaged = trials.damaged(trial)
        assert files_under(damaged.root) != before[trial.shape], trial
        assert damaged.noted
    assert len(KINDS) > 50


# --- the trials -------------------------------------------------------------------------------------------------------


EACH_KIND = [
    pytest.param(trial, id=trial.kinds[0], marks=[] if number % 8 == 0 else [pytest.mark.soak])
    for number, trial in enumerate(each_kind(SEED))
]
"""Sorted by name, so that of each part of a store some kinds are always tried."""


@pytest.mark.parametrize("trial", EACH_KIND)
def test_all_that_is_whole_is_answered(trial: Trial, trials: Trials) -> None:
    assert trials.run(trial).failures == []


@pytest.mark.soak
def test_all_that_is_whole_is_answered_after_damage_of_many_kinds(trials: Trials) -> None:
    count, verdict = run_all(trials, random_trials(SEED, VARIANTS))
    assert count > 0.7 * VARIANTS
    assert verdict.failures == [], f"{verdict.line(count)}: {verdict.failures[:20]}"


# --- rebuilds ---------------------------------------------------------------------------------------------------------


def rebuilt(damaged, root):
    """A store of the same log, with queues and an index that were made of it."""
    request = RebuildRequest(
        store=str(damaged.root), out=str(root), index=True, queues=True, from_offset=0, lmq=True, profile="5.5"
    )
    report = run_rebuild(request, Silence())
    assert report.exit_code in (0, 4)
    for name in ("commitlog", "config"):
        shutil.copytree(damaged.root / name, root / name, dirs_exist_ok=True)
    return replace(damaged, root=root, allowed=Allowance(has_true_times=damaged.allowed.has_true_times, repeats=True))


@pytest.mark.soak
def test_what_is_made_anew_of_a_damaged_log_holds_all_that_is_whole(trials, tmp_path) -> None:
    count, verdict = 0, Verdict()
    names = {name for name, kind in KINDS.items() if kind.__module__ == damaged_stores.__name__}
    chosen = (trial for trial in random_trials(SEED + 2, 800) if names >= set(trial.kinds))
    for trial, damaged in islice(trials.all_damaged(chosen), REBUILDS):
        found = judge(rebuilt(damaged, tmp_path / str(count)))
        verdict += replace(found, failures=[f"{trial} ({'; '.join(damaged.noted)}): {each}" for each in found.failures])
        count += 1
    print(verdict.line(count))
    assert count == REBUILDS
    assert verdict.failures == [], f"{verdict.line(count)}: {verdict.failures[:20]}"


STEPS = {"records": 151, "queues": 101, "checkpoint": 9}
STEP = 47
"""Of so many cases of a kind, or else of any, one is tried with the other tests; all of them with `make soak`."""


# --- every field of every layout, with other values in it -------------------------------------------------------------


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


def damaged_by(places, values, step=1):
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


PLACES = {
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
    for case in damaged_by(places, values, step):
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
@pytest.mark.parametrize("kind", PLACES)
def test_all_that_is_whole_is_answered_whatever_a_field_says(kind, values, step, least, writer, ext_writer) -> None:
    chosen = ext_writer if kind == "extensions" else writer
    step = STEPS.get(kind, STEP) if step == STEP else step
    assert check_all(chosen, PLACES[kind](chosen), values, step) >= least


NAMED = {
    "size", "previous", "slot", "slot_count", "index_count", "begin_physical_offset", "end_physical_offset", "key_hash",
}  # fmt: skip
"""Fields of queues and index files whose damage the doctor names; others of them nothing but `verify` can tell."""


def highest_bit(place: damage_cases.Place, current: bytes) -> dict[str, bytes]:
    return {"highest bit": bytes([current[0] ^ 0x80]) + current[1:]} if current else {}


def test_the_doctor_names_each_damaged_record(writer) -> None:
    named = 0
    for case in damaged_by(PLACES["records"](writer), highest_bit, 17):
        is_sound = MessageStore.open(writer.root).record_at(case.place.physical_offset) is not None
        findings = [finding for finding in examine(writer.root).findings if finding.check in ("log-end", "segments")]
        assert is_sound or case.place.physical_offset in [finding.physical_offset for finding in findings], str(case)
        named += not is_sound
    assert named > 3


@pytest.mark.parametrize("kind", ["queues", "index files"])
def test_the_doctor_names_each_damaged_unit_and_entry(kind, writer) -> None:
    places = [place for place in PLACES[kind](writer) if place.field in NAMED and "batch" not in place.layout]
    looked_at = 0
    for case in damaged_by(places, highest_bit, 5):
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


@pytest.mark.parametrize(
    ("chosen", "of"), [(3, 25), *(pytest.param(chosen, 10, marks=pytest.mark.soak) for chosen in range(10))]
)
def test_what_both_find_stands_there_once_with_advice(trials: Trials, chosen: int, of: int) -> None:
    assert check_look(trials, chosen, of) > (1 if of == 25 else 3)
