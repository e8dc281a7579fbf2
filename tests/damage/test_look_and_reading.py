"""A look at a damaged store and a reading of all of it: one list of findings, in which nothing stands twice."""

from collections import Counter
from pathlib import Path

import pytest

from damage_trials import Trials, each_kind
from damaged_stores import Unfit
from protocol.errors import RocketLensError
from storage.doctor.examine import look_at
from storage.doctor.finding import INDEX, QUEUES, Kind, Known, Severity
from verifying import verify_here

SEED = 7
SHAPES = ("small", "classic", "expired", "ext", "recut")
COMPARED = ("log-end", "queues", "index-files")


def names(read, look):
    path, other = Path(read.path), Path(look.path)
    return path in (other, other.parent) or other.parent == path.parent or other in path.parents


def check(trials: Trials, chosen: int, of: int) -> int:
    count = 0
    for number, trial in enumerate(each_kind(SEED)):
        if number % of != chosen or trial.shape not in SHAPES:
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
            if each.check in COMPARED and each.severity is Severity.ERROR and not each.more:
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


def test_what_both_find_stands_there_once_with_advice(trials: Trials) -> None:
    assert check(trials, 3, 25) > 1


@pytest.mark.soak
@pytest.mark.parametrize("chosen", range(10))
def test_so_it_is_of_every_kind_of_damage(trials: Trials, chosen: int) -> None:
    assert check(trials, chosen, 10) > 3
