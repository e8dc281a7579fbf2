"""A generator of damaged stores: kinds of damage by name, each done to a copy of a good store, all decided by a seed.

`damage(good, root, "unit_zeroed", seed=7)` makes the copy. A kind that finds nothing to damage raises `Unfit`. What is
lost by it shows on the disk (`trial_oracle.Disk`); a kind only says what else follows. The kinds are in
`damage_of_logs`, `damage_of_queues` and `damage_of_indexes`. Nothing here imports the project.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from trial_stores import Allowance, GoodStore, Message, Queue, copy_store, put


class Unfit(Exception):
    """This store has nothing that such damage could be done to."""


@dataclass
class Damaged:
    """A copy of a store while it is damaged; with `asks_offsets`, offsets of groups are to be asked for too."""

    good: GoodStore
    root: Path
    rng: random.Random
    noted: list[str] = field(default_factory=list)
    allowed: Allowance = field(default_factory=Allowance)
    asks_offsets: bool = False

    def note(self, sentence: str) -> None:
        """Note what was done."""
        self.noted.append(sentence)

    # --- the log ------------------------------------------------------------------------------------------------------

    @property
    def segments(self) -> list[Path]:
        """Segments that hold something, in order; without the one whose old bytes are no damage."""
        found = sorted(path for path in (self.root / "commitlog").glob("[0-9]" * 20) if path.stat().st_size)
        last = self.good.end - self.good.end % self.good.segment_size
        return [path for path in found if int(path.name) <= last and not (self.good.stale and int(path.name) == last)]

    @property
    def middle_segments(self) -> list[Path]:
        """The segments without the first and the last one."""
        return self.segments[1:-1]

    def messages_in(self, path: Path) -> list[Message]:
        """The messages of a segment that are whole, in order."""
        base, content = int(path.name), path.read_bytes()
        return [
            message for message in self.good.messages
            if base <= message.physical_offset < base + self.good.segment_size
            and content[message.physical_offset - base :][: len(message.record)] == message.record
        ]  # fmt: skip

    def message(self) -> Message:
        """A whole message with whole ones on both sides of it in its segment."""
        if not self.segments:
            raise Unfit
        found = self.messages_in(self.rng.choice(self.segments))[1:-1]
        if not found:
            raise Unfit
        return self.rng.choice(found)

    def overwrite(self, physical_offset: int, data: bytes) -> None:
        """Other bytes in the log."""
        base = physical_offset - physical_offset % self.good.segment_size
        put(self.root / "commitlog" / f"{base:020d}", physical_offset - base, data)

    def room_behind_the_end(self) -> int:
        """Bytes that the last segment has behind the last message; Unfit where that is not the log's end any more."""
        path = self.segments[-1] if self.segments else self.root
        if self.good.end // self.good.segment_size * self.good.segment_size != int(path.name or 0):
            raise Unfit
        whole = self.messages_in(path)
        if not whole or whole[-1].end != self.good.end or path.stat().st_size < self.good.segment_size:
            raise Unfit
        return self.good.segment_size - self.good.end % self.good.segment_size

    # --- queues -------------------------------------------------------------------------------------------------------

    def queue(self, least: int = 8) -> Queue:
        """A plain queue of at least so many messages that is still there, mostly the longest."""
        found = [
            queue for queue in self.good.queues
            if len(self.good.of_queue(queue)) >= least and self.queue_files(queue) and not queue[0].startswith("%LMQ%")
        ]  # fmt: skip
        if not found:
            raise Unfit
        return ("Orders", 0) if ("Orders", 0) in found and self.rng.random() < 0.6 else self.rng.choice(found)

    def directory(self, queue: Queue) -> Path:
        """Where a plain queue lies."""
        return self.root / "consumequeue" / queue[0] / str(queue[1])

    def queue_files(self, queue: Queue) -> list[Path]:
        """The files of a plain queue that hold a unit, in order."""
        return sorted(path for path in self.directory(queue).glob("[0-9]" * 20) if any(path.read_bytes()))

    def unit(self, queue: Queue, number: int) -> tuple[Path, int]:
        """File and position of a plain queue's unit; Unfit where it is gone."""
        size = self.good.queue_file_size
        path = self.directory(queue) / f"{20 * number // size * size:020d}"
        if not path.is_file() or path.stat().st_size < 20 * number % size + 20:
            raise Unfit
        return path, 20 * number % size

    def put_units(self, queue: Queue, number: int, units: bytes) -> None:
        """Other bytes from a unit on, in as many files as it takes."""
        for at in range(0, len(units), 20):
            put(*self.unit(queue, number + at // 20), units[at : at + 20])

    def numbers(self, queue: Queue) -> range:
        """The queue offsets of a queue's messages."""
        messages = self.good.of_queue(queue)
        return range(messages[0].places[queue][0], messages[-1].places[queue][1])

    # --- other files --------------------------------------------------------------------------------------------------

    def index_files(self) -> list[Path]:
        """The index files, oldest first."""
        return sorted(path for path in (self.root / "index").glob("[0-9]*") if path.is_file() and path.stat().st_size)


Kind = Callable[[Damaged], None]
KINDS: dict[str, Kind] = {}
SHAPES_OF: dict[str, tuple[str, ...]] = {}
"""The shapes of stores that a kind needs; all the others do with any."""


def kind(*shapes: str) -> Callable[[Kind], Kind]:
    """Register a kind of damage, by its function's name."""

    def register(function: Kind) -> Kind:
        KINDS[function.__name__] = function
        if shapes:
            SHAPES_OF[function.__name__] = shapes
        return function

    return register


def damage(good: GoodStore, root: Path, *kinds: str, seed: int) -> Damaged:
    """A copy of a good store with damage of some kinds, one after the other."""
    rng = random.Random(f"{seed} {' '.join(kinds)} {good.shape}")
    copy_store(good, root, sparse=rng.random() < 0.7)
    damaged = Damaged(good, root, rng)
    for name in kinds:
        KINDS[name](damaged)
    return damaged
