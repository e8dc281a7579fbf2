"""Stores with damage of every kind, served on a socket: an oracle of its own asks for every message in every way.
A failure's line begins with what `python tests/support/damage_trials.py` takes to do it again."""

import shutil
from contextlib import closing
from dataclasses import replace
from itertools import islice

import pytest

import damaged_stores
from broker_harness import service_of, serving_in_a_thread
from damage_oracle import Disk
from damage_trials import KINDS, Trial, Trials, each_kind, judge, random_trials
from damaged_stores import Unfit
from lane_requests import PULL, QUERY, VIEW
from protocol.codes import ResponseCode
from queue_runs import files_under
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands.run import run_rebuild
from spark_jobs.run.progress import Silence
from storage.store.message_store import MessageStore
from trial_oracle import MAXIMUM, MINIMUM, SUCCESS, TIME_SEARCH, Judge, TrialClient, Verdict
from trial_stores import SHAPES, Allowance

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
