"""A store that grows and one that follows it, to be compared with one that is opened at that moment."""

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from growing_store import GrowingStore, everything, of_queue, true_answers
from protocol.question import KeyKind, Question
from storage.store import _log_follower
from storage.store import _refresh as follow
from storage.store._refresh import Arrivals
from storage.store.message_store import MessageStore


class Followed:
    """A store that grows, and one that follows it."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.growing = GrowingStore(root, **options)
        self.growing.add()
        self.growing.flush()
        self.open()

    def open(self) -> None:
        self.store = MessageStore.open(self.growing.root)
        self.follower = self.store.follower()

    def poll(self, times: int = 3) -> list[Arrivals]:
        """As often as the last record takes: seen, found unchanged, dispatched."""
        return [arrivals for arrivals in (self.follower.poll() for _ in range(times)) if arrivals is not None]

    def settle(self) -> None:
        """Poll and watch until nothing comes any more."""
        self.poll()
        self.follower.watch()
        while self.poll():
            pass

    def check_queues(self) -> None:
        """Read all queues, so that their files are open."""
        for topic in self.store.queues.topics():
            for queue in self.store.queues.queues_of(topic):
                assert list(of_queue(self.store, topic, queue.queue_id))

    def found(self, key: str, kind: KeyKind = KeyKind.KEY, topic: str = "T") -> list[int]:
        return list(self.store.query(Question(topic, key, kind, maximum=500)).physical_offsets)

    def check(self) -> None:
        """Compare all answers with those of a store opened now."""
        self.follower.watch()
        records = self.growing.writer.records
        fresh = MessageStore.open(self.growing.root)
        for ours, theirs in zip(everything(self.store, records), everything(fresh, records), strict=True):
            assert ours == theirs
        for topic, key, kind in {(r.topic, r.properties.get("UNIQ_KEY", ""), "U") for r in records}:
            assert tuple(self.found(key, KeyKind.UNIQUE, topic)) == true_answers(records, topic, key, kind)


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have bytes count as settled, or damaged for good, after two equal looks, so that no test waits."""
    monkeypatch.setattr(_log_follower, "SETTLING_SECONDS", 0.0)
    monkeypatch.setattr(_log_follower, "DAMAGED_SECONDS", 0.0)
    monkeypatch.setattr(follow, "UNQUEUED_SECONDS", 0.0)


def held(root: Path) -> tuple[list[str], list[str]]:
    """Files under a directory that this process maps, and those it has open, deleted ones as the kernel names them."""
    lines = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    maps = [fields[5] for fields in lines if len(fields) == 6 and fields[5].startswith(str(root))]
    opened = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            opened.append(os.readlink(f"/proc/self/fd/{name}"))
    return maps, [path for path in opened if path.startswith(str(root))]
