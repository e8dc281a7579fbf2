"""A verification beside a broker that goes on writing: what comes while it runs is no finding, and damage still is."""

import random

import msgspec
import pytest

from growing_store import GrowingStore
from spark_jobs.doctor.deep_check import DeepCheck
from spark_jobs.doctor.deep_request import DeepRequest
from spark_jobs.run.progress import Silence
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan import source
from spark_jobs.scan.source import find_source
from verifying import assert_clean


@pytest.fixture(autouse=True)
def broker_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock of a broker, which a process does not see if it holds it itself."""
    real = source.read_store_state
    monkeypatch.setattr(source, "read_store_state", lambda root: type(real(root))(True, True, 1, 1))


class Broker:
    """Appends, dispatches and expires, a little between any two tasks of a verification."""

    def __init__(self, root, seed, **options) -> None:
        self.store = GrowingStore(root, **options)
        self.random = random.Random(seed)
        self.expires_below = 0
        self.steps = 0

    def step(self) -> None:
        store, dice = self.store, self.random.random()
        self.steps += 1
        if store.is_torn:
            store.mend()
        if dice < 0.35:
            for _ in range(self.random.randint(1, 12)):
                self.append()
            store.flush()
        elif dice < 0.55:  # into the log, and not yet to queues and index
            for _ in range(self.random.randint(1, 4)):
                self.append()
        elif dice < 0.7:
            store.flush()
        elif dice < 0.8:
            store.add_torn(self.random.random())
        elif dice < 0.9:
            store.flush()
            store.make_segment_in_advance()
        elif min(store.log.segments) < self.expires_below:  # never all that there was when it began
            store.flush()
            store.expire()

    def append(self) -> None:
        topic = self.random.choice(["T", "T", "Other", f"New{self.steps}"])
        self.store.add(topic, body=bytes(self.random.randint(0, 80)), queue_id=self.random.randint(0, 2))

    def fill(self, count: int) -> None:
        for _ in range(count):
            self.append()
        self.store.flush()

    def run(self, name, tasks, function):
        assert name
        summaries = []
        for task in tasks:
            for _ in range(self.random.randint(0, 2)):
                self.step()
            summaries.append(function(msgspec.msgpack.decode(msgspec.msgpack.encode(task), type=type(task))))
        return summaries

    def verify(self, work):
        found = find_source(self.store.root, ())
        assert found.is_live
        directory = WorkDirectory.open(work, {}, fresh=True)
        try:
            request = DeepRequest(store=str(self.store.root))
            return DeepCheck(request, found, directory, self.run, Silence()).run()
        finally:
            directory.remove()


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))])
def test_what_comes_and_expires_while_it_runs_is_no_finding(tmp_path, seed) -> None:
    broker = Broker(tmp_path / "store", seed)
    broker.fill(3 if seed % 2 else 80)
    for number in range(2):
        broker.step()
        if not seed % 2:
            broker.expires_below = sorted(broker.store.log.segments)[-2]
        before = len(broker.store.writer.written)
        report = broker.verify(tmp_path / f"work{number}")
        assert_clean(report)
        assert report.details.log.live
        if seed % 2:  # the last may have been torn when its segment was read
            assert report.messages >= before - 1
    assert len(broker.store.writer.written) > 10
