"""Kinds of damage by name, each done to a copy of a good store, all decided by a seed; nothing here imports ours.

A kind that finds nothing to damage raises `Unfit`. What is lost shows on the disk (`damage_oracle.Disk`).
"""

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from oracles import BLANK_MAGIC, packed
from trial_stores import LIGHT, Allowance, GoodStore, copy_store, put, write_sparse


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
        self.noted.append(sentence)

    @property
    def segments(self) -> list[Path]:
        found = sorted(path for path in (self.root / "commitlog").glob("[0-9]" * 20) if path.stat().st_size)
        last = self.good.end - self.good.end % self.good.segment_size
        return [path for path in found if int(path.name) <= last and not (self.good.stale and int(path.name) == last)]

    @property
    def middle_segments(self) -> list[Path]:
        return self.segments[1:-1]

    def messages_in(self, path):
        base, content = int(path.name), path.read_bytes()
        return [
            message for message in self.good.messages
            if base <= message.physical_offset < base + self.good.segment_size
            and content[message.physical_offset - base :][: len(message.record)] == message.record
        ]  # fmt: skip

    def some(self, things: list) -> object:
        if not things:
            raise Unfit
        return self.rng.choice(things)

    def message(self):
        return self.some(self.messages_in(self.some(self.segments))[1:-1])

    def overwrite(self, physical_offset: int, data: bytes) -> None:
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

    def queue(self, least=8):
        found = [
            queue for queue in self.good.queues
            if len(self.good.of_queue(queue)) >= least and self.queue_files(queue) and not queue[0].startswith("%LMQ%")
        ]  # fmt: skip
        return ("Orders", 0) if ("Orders", 0) in found and self.rng.random() < 0.6 else self.some(found)

    def directory(self, queue):
        return self.root / "consumequeue" / queue[0] / str(queue[1])

    def queue_files(self, queue):
        return sorted(path for path in self.directory(queue).glob("[0-9]" * 20) if any(path.read_bytes()))

    def unit(self, queue, number):
        size = self.good.queue_file_size
        path = self.directory(queue) / f"{20 * number // size * size:020d}"
        if not path.is_file() or path.stat().st_size < 20 * number % size + 20:
            raise Unfit
        return path, 20 * number % size

    def put_units(self, queue, number, units) -> None:
        for at in range(0, len(units), 20):
            put(*self.unit(queue, number + at // 20), units[at : at + 20])

    def numbers(self, queue):
        messages = self.good.of_queue(queue)
        return range(messages[0].places[queue][0], messages[-1].places[queue][1])

    def index_files(self) -> list[Path]:
        return sorted(path for path in (self.root / "index").glob("[0-9]*") if path.is_file() and path.stat().st_size)


Kind = Callable[[Damaged], None]
KINDS: dict[str, Kind] = {}
SHAPES_OF: dict[str, tuple[str, ...]] = {}
"""The shapes of stores that a kind needs; all the others do with any."""


def kind(*shapes: str) -> Callable[[Kind], Kind]:
    def register(function: Kind) -> Kind:
        KINDS[function.__name__] = function
        if shapes:
            SHAPES_OF[function.__name__] = shapes
        return function

    return register


def damage(good: GoodStore, root: Path, *kinds: str, seed: int) -> Damaged:
    rng = random.Random(f"{seed} {' '.join(kinds)} {good.shape}")
    copy_store(good, root, sparse=rng.random() < 0.7)
    damaged = Damaged(good, root, rng)
    for name in kinds:
        KINDS[name](damaged)
    return damaged


HEADER = {
    "body_crc": (8, 4), "queue_id": (12, 4), "flag": (16, 4), "queue_offset": (20, 8), "physical_offset": (28, 8),
    "sys_flag": (36, 4), "born_timestamp": (40, 8),
}  # fmt: skip


def body_place(record: bytes) -> int:
    flags = record[39]
    return 76 + (16 if flags & 0x10 else 4) + (16 if flags & 0x20 else 4)


def flip(damaged, message, position, size, what) -> None:
    bit = damaged.rng.randrange(8 * size)
    position += bit // 8
    damaged.overwrite(message.physical_offset + position, bytes([message.record[position] ^ 1 << bit % 8]))
    damaged.note(f"bit {bit % 8} of byte {position} ({what}) of the record at {message.physical_offset} is flipped")


@kind()
def log_page_zeroed(damaged: Damaged) -> None:
    size = min(4096, damaged.good.segment_size // 8)
    start = damaged.message().physical_offset // size * size
    damaged.overwrite(start, bytes(size))
    damaged.note(f"{size} bytes from physical offset {start} on are zeros")


@kind()
def log_bytes_zeroed(damaged: Damaged) -> None:
    start = damaged.message().physical_offset + damaged.rng.randrange(8)
    base = start // damaged.good.segment_size * damaged.good.segment_size
    size = min(damaged.rng.choice((8, 40, 300, 1500)), base + damaged.good.segment_size - start)
    damaged.overwrite(start, bytes(size))
    damaged.note(f"{size} bytes from physical offset {start} on are zeros")


@kind()
def log_hole(damaged: Damaged) -> None:
    message = damaged.message()
    base = message.physical_offset // damaged.good.segment_size * damaged.good.segment_size
    path = damaged.root / "commitlog" / f"{base:020d}"
    content, size = path.read_bytes(), 4096
    start = (message.physical_offset - base) // size * size
    write_sparse(path, content[:start] + bytes(size) + content[start + size :])
    damaged.note(f"a hole of {size} bytes at physical offset {base + start}")


@kind()
def bit_flipped(damaged: Damaged) -> None:
    message = damaged.message()
    body = body_place(message.record) + 4
    places = {"size": (0, 4), "magic": (4, 4), **HEADER, "topic, properties": (body + len(message.body), 0)}
    places |= {"body": (body, len(message.body))} if message.body else {}
    name = damaged.rng.choice(list(places))
    position, size = places[name]
    flip(damaged, message, position, size or len(message.record) - position, name)


@kind("small", "expired")
def bit_flipped_in_store_time(damaged: Damaged) -> None:
    """One bit of a store time: no check finds it, but reading from a time on may start at another place."""
    damaged.allowed.has_true_times = False
    message = damaged.message()
    start = 52 + (16 if message.record[39] & 0x10 else 4)
    flip(damaged, message, start, 8, "store time")


@kind()
def absurd_size(damaged: Damaged) -> None:
    message, size = damaged.message(), damaged.rng.choice((0, 1, 90, -1, 2**31 - 1, damaged.good.segment_size))
    damaged.overwrite(message.physical_offset, packed(size, 4))
    damaged.note(f"the record at {message.physical_offset} says that it has {size} bytes")


@kind()
def false_blank(damaged: Damaged) -> None:
    message, segment = damaged.message(), damaged.good.segment_size
    rest = segment - message.physical_offset % segment
    size = damaged.rng.choice((0, 8, len(message.record), rest - 1, rest + 1, segment, 2**31 - 1, -1))
    data = BLANK_MAGIC.to_bytes(4, "big")
    keeps = damaged.rng.random() < 0.4
    damaged.overwrite(message.physical_offset + 4 * keeps, data if keeps else packed(size, 4) + data)
    damaged.note(f"a BLANK of {len(message.record) if keeps else size} bytes at {message.physical_offset}")


@kind()
def record_of_another_place(damaged: Damaged) -> None:
    other = damaged.message()
    one = damaged.some([e for e in damaged.good.messages if e is not other and len(e.record) <= len(other.record)])
    damaged.overwrite(other.physical_offset, one.record)
    damaged.note(f"at {other.physical_offset} stands the record of {one.physical_offset}")


@kind()
def segments_lost_in_front(damaged: Damaged) -> None:
    if len(damaged.segments) < 3:
        raise Unfit
    count = damaged.rng.choice((1, len(damaged.segments) // 2))
    for path in damaged.segments[:count]:
        path.unlink()
    damaged.note(f"the first {count} segments are gone")


@kind()
def segment_spoiled_in_the_middle(damaged: Damaged) -> None:
    path, size = damaged.some(damaged.middle_segments), damaged.good.segment_size
    way = damaged.rng.choice(("gone", "any bytes", "zeros to its end"))
    if way == "gone":
        path.unlink()
    else:
        start = 0 if way == "any bytes" else damaged.rng.randrange(size)
        put(path, start, damaged.rng.randbytes(size) if way == "any bytes" else bytes(size - start))
    damaged.note(f"segment {path.name}: {way}")


@kind()
def segment_cut_in_the_middle(damaged: Damaged) -> None:
    path = damaged.some(damaged.middle_segments)
    size = damaged.rng.choice((0, damaged.rng.randrange(damaged.good.segment_size)))
    os.truncate(path, size)
    damaged.note(f"segment {path.name} has {size} bytes")


@kind()
def closing_blank_zeroed(damaged: Damaged) -> None:
    for path in damaged.segments[:-1]:
        messages = damaged.messages_in(path)
        if messages and messages[-1].end % damaged.good.segment_size:
            damaged.overwrite(messages[-1].end, bytes(8))
            damaged.note(f"no BLANK at {messages[-1].end}")
            return
    raise Unfit


@kind()
def last_segment_cut(damaged: Damaged) -> None:
    room = damaged.room_behind_the_end()
    path = damaged.segments[-1]
    size = damaged.rng.randrange(100, damaged.good.segment_size - room)
    os.truncate(path, size)
    damaged.note(f"the last segment, {path.name}, has {size} bytes")


@kind()
def torn_tail(damaged: Damaged) -> None:
    damaged.room_behind_the_end()
    last = damaged.messages_in(damaged.segments[-1])[-1]
    kept = damaged.rng.choice((4, 8, 30, len(last.record) // 2, len(last.record) - 1))
    damaged.overwrite(last.physical_offset + kept, bytes(len(last.record) - kept))
    damaged.note(f"of the last record {kept} bytes are there")


@kind()
def begun_behind_the_end(damaged: Damaged) -> None:
    room, last = damaged.room_behind_the_end(), damaged.messages_in(damaged.segments[-1])[-1]
    record = last.record[:28] + packed(damaged.good.end, 8) + last.record[36:]
    blank = packed(damaged.rng.choice((0, 8, 200)), 4) + BLANK_MAGIC.to_bytes(4, "big")
    begun = record[: damaged.rng.choice((4, 8, 30, len(record) // 2))]
    data = damaged.rng.choice((begun, blank, damaged.rng.randbytes(min(room, 1000))))
    if room < max(300, len(data)):
        raise Unfit
    damaged.overwrite(damaged.good.end, data)
    damaged.note(f"{len(data)} bytes, {data[:8].hex()}…, at the end, {damaged.good.end}")


@kind()
def segment_made_in_advance(damaged: Damaged) -> None:
    base = damaged.good.end // damaged.good.segment_size * damaged.good.segment_size + damaged.good.segment_size
    write_sparse(damaged.root / "commitlog" / f"{base:020d}", bytes(damaged.good.segment_size))
    (damaged.root / "abort").write_text("1")
    damaged.note(f"an empty segment {base} and abort")


LOG_KINDS = sorted(KINDS)


EARLY = 1000
"""Damage is done among the first so many units, so that a long queue goes on far behind it."""


def inner_number(damaged, queue, count=1):
    """A unit with others before it and, `count` units on, behind it."""
    numbers = damaged.numbers(queue)[1:EARLY]
    if len(numbers) <= count + 1:
        raise Unfit
    return numbers[damaged.rng.randrange(len(numbers) - count - 1)]


def zero_units(damaged, queue, number, count) -> None:
    damaged.put_units(queue, number, bytes(20 * count))
    damaged.note(f"units {number} to {number + count - 1} of {queue} are zeros")


@kind()
def unit_zeroed(damaged: Damaged) -> None:
    queue = damaged.queue()
    zero_units(damaged, queue, inner_number(damaged, queue), 1)


@kind()
def sign_bit_of_unit_size(damaged: Damaged) -> None:
    queue = damaged.queue()
    number = inner_number(damaged, queue)
    path, position = damaged.unit(queue, number)
    put(path, position + 8, bytes([path.read_bytes()[position + 8] ^ 0x80]))
    damaged.note(f"the size of unit {number} of {queue} is negative")


@kind("small", "paged", "files")
def hundred_units_zeroed(damaged: Damaged) -> None:
    queue = damaged.queue(120)
    zero_units(damaged, queue, inner_number(damaged, queue, 100), 100)


@kind("paged", "files")
def page_of_units_zeroed(damaged: Damaged) -> None:
    """A page of a queue's file holds zeros: 204 units, and parts of two."""
    queue = damaged.queue(400)
    path = damaged.queue_files(queue)[0]
    put(path, 4096 * damaged.rng.choice((1, 2)), bytes(4096))
    damaged.note(f"a page of {queue} is zeros")


@kind()
def first_unit_zeroed(damaged: Damaged) -> None:
    queue = damaged.queue()
    zero_units(damaged, queue, damaged.numbers(queue)[0], damaged.rng.choice((1, 3)))


@kind()
def last_unit_zeroed(damaged: Damaged) -> None:
    """The last unit, or some: the log knows of more than the queue."""
    queue, count = damaged.queue(), damaged.rng.choice((1, 3))
    damaged.allowed.unqueued |= {(queue, message.physical_offset) for message in damaged.good.of_queue(queue)[-count:]}
    zero_units(damaged, queue, damaged.numbers(queue)[-count], count)


@kind("small", "paged", "files", "classic")
def front_lost_and_unit_zeroed(damaged: Damaged) -> None:
    if len(damaged.segments) < 3:
        raise Unfit
    path = damaged.segments[0]
    limit = int(path.name) + damaged.good.segment_size
    path.unlink()
    damaged.note(f"segment {path.name} is gone")
    queue = damaged.queue(40)
    live = [message for message in damaged.good.of_queue(queue) if message.physical_offset >= limit]
    zero_units(damaged, queue, live[damaged.rng.choice((0, 1, 11))].places[queue][0], 1)


@kind()
def units_of_garbage(damaged: Damaged) -> None:
    queue = damaged.queue(16)
    count = damaged.rng.choice((1, 5))
    number = inner_number(damaged, queue, count)
    damaged.put_units(queue, number, damaged.rng.randbytes(20 * count))
    damaged.note(f"units {number} to {number + count - 1} of {queue} are any bytes")


@kind()
def units_swapped(damaged: Damaged) -> None:
    queue = damaged.queue(16)
    one = other = inner_number(damaged, queue)
    while other == one:
        other = inner_number(damaged, queue)
    units = [path.read_bytes()[at : at + 20] for path, at in (damaged.unit(queue, one), damaged.unit(queue, other))]
    damaged.put_units(queue, one, units[1])
    damaged.put_units(queue, other, units[0])
    damaged.note(f"units {one} and {other} of {queue} are swapped")


@kind()
def unit_elsewhere(damaged: Damaged) -> None:
    queue = damaged.queue(16)
    number = inner_number(damaged, queue)
    path, position = damaged.unit(queue, number - 1)
    behind_path, behind = damaged.unit(queue, number + 1)
    near = range(
        *(int.from_bytes(file.read_bytes()[at:][:8]) for file, at in ((path, position), (behind_path, behind)))
    )
    others = [each for each in damaged.good.messages if queue not in each.places]
    # Of one between the messages beside it only its record tells, which a pull by another tag does not read.
    other = damaged.rng.choice([each for each in others if each.physical_offset not in near])
    units = {
        "the message before": path.read_bytes()[position : position + 20],
        "another queue": packed(other.physical_offset, 8) + packed(len(other.record), 4) + bytes(8),
        "nowhere": packed(10**12, 8) + packed(200, 4) + bytes(8),
    }
    where = damaged.rng.choice(list(units))
    damaged.put_units(queue, number, units[where])
    damaged.note(f"unit {number} of {queue} leads to {where}")


@kind("small", "files", "expired", "ext", "classic")
def queue_file_lost_in_the_middle(damaged: Damaged) -> None:
    queue = damaged.queue(40)
    path = damaged.some(damaged.queue_files(queue)[1:-1])
    path.unlink()
    damaged.note(f"file {path.name} of {queue} is gone")


@kind("small", "files", "expired", "ext", "classic", "recut")
def all_queue_files_lost(damaged: Damaged) -> None:
    queue = damaged.queue(40)
    way = damaged.rng.choice(("gone", "empty", "zeros"))
    for path in damaged.directory(queue).glob("[0-9]" * 20):
        size = path.stat().st_size
        path.unlink()
        if way != "gone":
            path.write_bytes(bytes(size if way == "zeros" else 0))
    damaged.note(f"all files of {queue} are {way}")


@kind("small", "files", "ext", "classic")
def queue_file_lost_at_an_end(damaged: Damaged) -> None:
    """A queue's first or last file is gone, though the log has its messages: there is no gap that shows it."""
    queue, number = damaged.queue(40), damaged.rng.choice((0, -1))
    files = damaged.queue_files(queue)
    if len(files) < 2:
        raise Unfit
    files[number].unlink()
    damaged.note(f"file {files[number].name} of {queue}, at its end, is gone")


@kind("small", "files", "expired", "ext", "classic")
def queue_file_cut(damaged: Damaged) -> None:
    queue = damaged.queue(40)
    path = damaged.some(damaged.queue_files(queue)[1:-1])
    size = damaged.rng.randrange(damaged.good.queue_file_size)
    os.truncate(path, size)
    damaged.note(f"file {path.name} of {queue} has {size} bytes")


@kind()
def queue_file_emptied(damaged: Damaged) -> None:
    """Any file of a queue has no bytes, as a broker leaves one that was killed while it made it."""
    empty(damaged, damaged.queue_files(damaged.queue()))


@kind()
def queue_file_zeroed(damaged: Damaged) -> None:
    path = damaged.rng.choice(damaged.queue_files(damaged.queue()))
    path.write_bytes(bytes(path.stat().st_size))
    damaged.note(f"{path.parent.name}/{path.name} is zeros")


def empty(damaged: Damaged, files: list[Path]) -> None:
    path = files[-1] if damaged.rng.random() < 0.5 else damaged.rng.choice(files)
    path.write_bytes(b"")
    damaged.note(f"{path.parent.parent.name}/{path.parent.name}/{path.name} is empty")


@kind()
def empty_queue_file_made(damaged: Damaged) -> None:
    """A file without bytes behind the last one of a queue: its broker was killed while it made that."""
    directory = damaged.directory(damaged.queue())
    last = max(int(path.name) for path in directory.glob("[0-9]" * 20))
    (directory / f"{last + damaged.good.queue_file_size:020d}").write_bytes(b"")
    damaged.note(f"an empty file was made in {directory.parent.name}/{directory.name}")


@kind()
def left_over_units(damaged: Damaged) -> None:
    queue = damaged.queue()
    numbers, own = damaged.numbers(queue), damaged.good.of_queue(queue)
    others = [each for each in damaged.good.messages if queue not in each.places]
    chosen = damaged.rng.choice((own[-6:-3], others[-3:], [own[2], others[1], own[3]]))
    places = [each.physical_offset for each in chosen] if damaged.rng.random() < 0.7 else [10**12, 17]
    for number, place in enumerate(places, numbers[-1] + 1):
        path, position = damaged.unit(queue, number)
        put(path, position, packed(place, 8) + packed(200, 4) + bytes(8))
    damaged.note(f"left over units at the end of {queue}, to {places}")


@kind()
def queue_directory_lost(damaged: Damaged) -> None:
    queue = damaged.queue()
    shutil.rmtree(damaged.directory(queue))
    damaged.allowed.unqueued |= {(queue, message.physical_offset) for message in damaged.good.of_queue(queue)}
    damaged.note(f"the directory of {queue} is gone")


def lose_directory(damaged: Damaged, name: str) -> None:
    if not (damaged.root / name).is_dir():
        raise Unfit
    shutil.rmtree(damaged.root / name)
    is_file = damaged.rng.random() < 0.5
    if is_file:
        (damaged.root / name).write_text("x")
    damaged.note(f"{name}/ is a file" if is_file else f"{name}/ is gone")


@kind("small", "classic")
def queues_lost_beside_batches(damaged: Damaged) -> None:
    """All plain queues are gone, those of batches are there; or a file lies in their place."""
    lose_directory(damaged, "consumequeue")


@kind()
def foreign_names_in_queues(damaged: Damaged) -> None:
    queue = damaged.queue()
    directory = damaged.directory(queue)
    (directory / "lost+found").mkdir(exist_ok=True)
    (directory / ("9" * 20)).write_bytes(b"\xff" * 100)
    (directory.parent / "x").write_text("x")
    (directory.parent / "9999").mkdir(exist_ok=True)
    damaged.note(f"foreign files beside {queue}")


@kind("small", "classic")
def light_unit_zeroed(damaged: Damaged) -> None:
    queue = (damaged.rng.choice(LIGHT), 0)
    zero_units(damaged, queue, inner_number(damaged, queue), 1)


@kind("small", "classic")
def light_queue_lost(damaged: Damaged) -> None:
    name = damaged.rng.choice(LIGHT)
    if not (damaged.root / "consumequeue" / name).is_dir():
        raise Unfit
    shutil.rmtree(damaged.root / "consumequeue" / name)
    damaged.allowed.unqueued |= {((name, 0), message.physical_offset) for message in damaged.good.of_queue((name, 0))}
    damaged.note(f"{name} is gone")


def batch_files(damaged: Damaged) -> list[Path]:
    files = sorted((damaged.root / "batchconsumequeue" / "Batches" / "0").glob("[0-9]" * 20))
    if len(files) < 3:
        raise Unfit
    return files


@kind("small", "classic")
def batch_unit_spoiled(damaged: Damaged) -> None:
    """A unit of zeros, or a bit of one, the first one too; not of its store time, which is taken at its word."""
    path = damaged.rng.choice(batch_files(damaged)[:-1])
    if damaged.rng.random() < 0.5:
        position = 46 * damaged.rng.randrange(4)
        put(path, position, bytes(46))
    else:
        position = 46 * damaged.rng.choice((0, 0, 2)) + damaged.rng.choice((*range(20), *range(28, 38)))
        put(path, position, bytes([path.read_bytes()[position] ^ 1 << damaged.rng.randrange(8)]))
    damaged.note(f"batch file {path.name} is spoiled at byte {position}")


@kind("small", "classic")
def batch_file_lost(damaged: Damaged) -> None:
    path = damaged.rng.choice(batch_files(damaged))
    path.unlink()
    damaged.note(f"batch file {path.name} is gone")


@kind("small", "classic")
def batch_file_zeroed(damaged: Damaged) -> None:
    path = damaged.rng.choice(batch_files(damaged))
    put(path, 0, bytes(path.stat().st_size))
    damaged.note(f"batch file {path.name} is zeros")


@kind("small", "classic")
def batch_file_emptied(damaged: Damaged) -> None:
    empty(damaged, batch_files(damaged))


@kind("ext")
def extension_lost(damaged: Damaged) -> None:
    directory = damaged.root / "consumequeue_ext" / "Orders" / "0"
    if not directory.is_dir():
        raise Unfit
    if damaged.rng.random() < 0.5:
        shutil.rmtree(directory)
    else:
        sorted(directory.iterdir())[damaged.rng.choice((0, 1, -1))].unlink()
    damaged.allowed.has_tags = False
    damaged.note("extension of Orders 0 is gone, or a file of it")


@kind("ext")
def extension_of_garbage(damaged: Damaged) -> None:
    path = damaged.some(sorted((damaged.root / "consumequeue_ext" / "Orders" / "0").glob("[0-9]" * 20)))
    damaged.allowed.has_tags = False
    put(path, 22 * 3, damaged.rng.choice((bytes(100), damaged.rng.randbytes(100))))
    damaged.note(f"100 bytes of extension file {path.name} are others")


QUEUE_KINDS = sorted(KINDS.keys() - {*LOG_KINDS})


def index_file(damaged: Damaged) -> Path:
    return damaged.some(damaged.index_files())


def first_entry(damaged: Damaged) -> int:
    return 40 + 4 * damaged.good.index_slots + 20


def entry_count(path: Path) -> int:
    count = int.from_bytes(path.read_bytes()[36:40], "big") - 1
    if not 3 < count < 100_000:
        raise Unfit
    return count


@kind()
def index_header_spoiled(damaged: Damaged) -> None:
    path, bit = index_file(damaged), damaged.rng.randrange(320)
    count = entry_count(path)
    wrong = damaged.rng.choice((0, 1, 2, count // 2, count + 2, count + 1000, 2**31 - 1))
    flipped = bytes([path.read_bytes()[bit // 8] ^ 1 << bit % 8])
    position, data = damaged.rng.choice(((0, bytes(40)), (bit // 8, flipped), (36, packed(wrong, 4))))
    put(path, position, data)
    damaged.note(f"the header of index {path.name} has {data.hex()} at {position}")


@kind()
def index_slots_of_garbage(damaged: Damaged) -> None:
    path, count = index_file(damaged), damaged.rng.choice((1, 5, damaged.good.index_slots))
    first = damaged.rng.randrange(damaged.good.index_slots - count + 1)
    put(path, 40 + 4 * first, damaged.rng.choice((bytes(4 * count), damaged.rng.randbytes(4 * count))))
    damaged.note(f"{count} slots from {first} on of index {path.name} are others")


@kind()
def index_chain_in_a_circle(damaged: Damaged) -> None:
    path = index_file(damaged)
    number = damaged.rng.randrange(1, entry_count(path))
    follows = damaged.rng.choice((number, number + 1, entry_count(path)))
    put(path, first_entry(damaged) + 20 * (number - 1) + 16, packed(follows, 4))
    damaged.note(f"entry {number} of index {path.name} leads to {follows}")


@kind()
def index_entries_spoiled(damaged: Damaged) -> None:
    path = index_file(damaged)
    at = first_entry(damaged) + 20 * damaged.rng.randrange(entry_count(path) - 1)
    room = path.stat().st_size - at
    place = damaged.rng.choice((damaged.message().physical_offset, 17, 10**12, -5))
    flipped = bytes([path.read_bytes()[at] ^ 1 << damaged.rng.randrange(7)])
    zeros = bytes(min(20 * damaged.rng.choice((1, 2, 200)), room))
    garbage = damaged.rng.randbytes(min(50, room))
    more, data = damaged.rng.choice(((0, zeros), (0, garbage), (4, packed(place, 8)), (0, flipped)))
    put(path, at + more, data)
    damaged.note(f"index {path.name} has {len(data)} other bytes at {at + more}, {data[:8].hex()}…")


@kind()
def index_file_spoiled(damaged: Damaged) -> None:
    path, way = index_file(damaged), damaged.rng.choice(("cut", "gone", "any bytes", "twice"))
    size = damaged.rng.choice((0, 39, 40, first_entry(damaged) - 1, damaged.rng.randrange(path.stat().st_size)))
    if way == "twice":
        shutil.copy(path, path.with_name("20991231235959999"))
    elif way == "gone":
        path.unlink()
    else:
        content = path.read_bytes()
        path.write_bytes(content[:size] if way == "cut" else damaged.rng.randbytes(len(content)))
    damaged.note(f"index {path.name}: {way}, {size}")


@kind()
def index_lost(damaged: Damaged) -> None:
    lose_directory(damaged, "index")


@kind()
def directory_among_index_files(damaged: Damaged) -> None:
    if not (damaged.root / "index").is_dir():
        raise Unfit
    name = damaged.rng.choice(("20260101000000001000", "20991231235959998", "20200101000000000"))
    (damaged.root / "index" / name).mkdir(exist_ok=True)
    (damaged.root / "index" / "notes.txt").write_text("x")
    damaged.note(f"index/{name} is a directory")


def spoil(damaged: Damaged, name: str, ways: tuple[str, ...] = ("cut", "empty", "zeros", "garbage", "gone")) -> None:
    path, way = damaged.root / name, damaged.rng.choice(ways)
    content = path.read_bytes() if path.is_file() else b"{}" * 20
    changed = {"cut": content[: len(content) * damaged.rng.randrange(1, 9) // 10], "empty": b""}
    changed |= {"zeros": bytes(len(content)), "garbage": damaged.rng.randbytes(len(content))}
    path.parent.mkdir(exist_ok=True)
    if way == "gone":
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(changed[way])
    damaged.note(f"{name}: {way}")


@kind()
def consumer_offsets_spoiled(damaged: Damaged) -> None:
    damaged.asks_offsets = True
    spoil(damaged, "config/consumerOffset.json", ("cut", "empty", "zeros", "garbage"))


EMPTY_OR_OTHER = ("empty", "zeros", "garbage")
KINDS["topics_spoiled"] = partial(spoil, name="config/topics.json")
KINDS["subscription_groups_spoiled"] = partial(spoil, name="config/subscriptionGroup.json", ways=EMPTY_OR_OTHER)


@kind()
def other_config_spoiled(damaged: Damaged) -> None:
    for name in ("delayOffset.json", "consumerFilter.json", "topicQueueMapping.json"):
        spoil(damaged, f"config/{name}", EMPTY_OR_OTHER)


@kind()
def small_files_spoiled(damaged: Damaged) -> None:
    spoil(damaged, "checkpoint")
    spoil(damaged, "lock")


@kind()
def crashed(damaged: Damaged) -> None:
    (damaged.root / "abort").write_text("1")
    (damaged.root / "checkpoint").unlink(missing_ok=True)
    damaged.note("abort is there, the checkpoint is not")


INDEX_KINDS = sorted(KINDS.keys() - {*LOG_KINDS, *QUEUE_KINDS})
