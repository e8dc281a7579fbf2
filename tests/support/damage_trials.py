"""Trials: a store is damaged, served on a socket by the real server, and judged by what is answered.

`python tests/support/damage_trials.py SHAPE SEED KIND...` does one of them again, says what fails, and leaves the
damaged store under the machine's temporary directory.
"""

import contextlib
import itertools
import random
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2])]

from broker_harness import service_of, serving_in_a_thread
from damage_oracle import Disk
from damaged_stores import KINDS, SHAPES_OF, Unfit, damage
from storage.doctor.examine import examine
from storage.store.message_store import MessageStore
from trial_oracle import Judge, TrialClient
from trial_stores import SHAPES

EVERY = {"paged": 64, "files": 64}

PREFERRED = {"unit_zeroed": "paged", "sign_bit_of_unit_size": "paged", "page_of_units_zeroed": "paged"}
"""Shapes in which a kind is tried where it is tried once."""

COMMON = ("small", "small", "classic", "expired", "ext", "recut", "paged")


@dataclass(frozen=True)
class Trial:
    shape: str
    seed: int
    kinds: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.shape} {self.seed} {' '.join(self.kinds)}"


class Trials:
    """Good stores under a directory, each made when it is first needed, and trials with copies of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._good = {}
        self._made: list[Path] = []
        self._numbers = itertools.count()

    def good(self, shape):
        if shape not in self._good:
            self._good[shape] = SHAPES[shape](self.root / shape)
        return self._good[shape]

    def damaged(self, trial):
        # A thread of its server may still look at the last ones.
        for path in self._made[:-8]:
            shutil.rmtree(path)
        self._made = [*self._made[-8:], self.root / f"damaged-{next(self._numbers)}"]
        return damage(self.good(trial.shape), self._made[-1], *trial.kinds, seed=trial.seed)

    def all_damaged(self, chosen):
        for trial in chosen:
            with contextlib.suppress(Unfit):
                yield trial, self.damaged(trial)

    def run(self, trial, *, thorough=False):
        damaged = self.damaged(trial)
        verdict = judge(damaged, every=1 if thorough else EVERY.get(trial.shape, 4))
        again = f"{trial} ({'; '.join(damaged.noted)})"
        verdict.failures = [f"{again}: {failure}" for failure in verdict.failures]
        return verdict


def judge(damaged, *, every=1):
    """Serve a store and have all its answers judged; what a queue need not deliver the doctor has to name."""
    with serving_in_a_thread(service_of(MessageStore.open(damaged.root))) as address:
        with contextlib.closing(TrialClient(address)) as client:
            disk, phase = Disk.of([damaged.root / "commitlog"]), damaged.rng.randrange(every)
            verdict = Judge(client, damaged.good, disk, damaged.allowed, every=every, phase=phase).judge()
        if damaged.asks_offsets:
            with contextlib.closing(TrialClient(address, 0.3)) as client:
                verdict += Judge(client, damaged.good, disk).judge_offsets()
    if verdict.excused:
        places = [finding.where for finding in examine(damaged.root).findings]
        for topic, queue_id in verdict.excused:
            if not any(f"{topic}/{queue_id}" in place or f"{topic} {queue_id}" in place for place in places):
                verdict.other += 1
                verdict.failures.append(f"other: doctor: lost units of {topic} {queue_id} are not named")
    return verdict


def each_kind(seed):
    for number, name in enumerate(sorted(KINDS)):
        yield Trial(PREFERRED.get(name) or SHAPES_OF.get(name, ("small",))[0], seed + number, (name,))


def random_trials(seed, count):
    rng = random.Random(seed)
    for number in range(count):
        kinds = tuple(rng.sample(sorted(KINDS), rng.choice((1, 1, 1, 2, 2, 3))))
        fitting = [set(SHAPES_OF[name]) for name in kinds if name in SHAPES_OF]
        shapes = sorted(set.intersection(*fitting)) if fitting else COMMON
        if shapes:
            yield Trial(rng.choice(shapes), seed * 1_000_000 + number, kinds)


def few_and_many(seed, step, count):
    """Parameters of a test: trials, and the least of them that do damage: some kinds once, in the soak mixtures."""
    few = [trial for number, trial in enumerate(each_kind(seed)) if number % step == 0]
    many = pytest.param(list(random_trials(seed, count)), int(0.7 * count), id="many", marks=pytest.mark.soak)
    return [pytest.param(few, 2, id="few"), many]


def main(arguments):
    shape, seed, *kinds = arguments
    trials = Trials(Path(tempfile.mkdtemp(prefix="trial-")))
    try:
        verdict = trials.run(Trial(shape, int(seed), tuple(kinds)), thorough=True)
    except Unfit:
        print("this store has nothing that such damage could be done to")
        return 2
    print(*verdict.failures, verdict.line(1), f"the store: {trials.root}", sep="\n")
    return 0 if verdict.is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
