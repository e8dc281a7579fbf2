"""Kinds of damage to consume queues, batch queues, light queues and extensions."""

import shutil
from pathlib import Path

from damaged_stores import Damaged, Unfit, kind
from oracles import packed
from trial_stores import LIGHT, Queue, put

EARLY = 1000
"""Damage is done among the first so many units, so that a long queue goes on far behind it."""


def inner_number(damaged: Damaged, queue: Queue, count: int = 1) -> int:
    """A unit with others before it and, `count` units on, behind it."""
    numbers = damaged.numbers(queue)[1:EARLY]
    if len(numbers) <= count + 1:
        raise Unfit
    return numbers[damaged.rng.randrange(len(numbers) - count - 1)]


def zero_units(damaged: Damaged, queue: Queue, number: int, count: int) -> None:
    """Put zeros in the place of units."""
    damaged.put_units(queue, number, bytes(20 * count))
    damaged.note(f"units {number} to {number + count - 1} of {queue} are zeros")


@kind()
def unit_zeroed(damaged: Damaged) -> None:
    """One unit of zeros."""
    queue = damaged.queue()
    zero_units(damaged, queue, inner_number(damaged, queue), 1)


@kind()
def sign_bit_of_unit_size(damaged: Damaged) -> None:
    """A unit whose size is negative."""
    queue = damaged.queue()
    number = inner_number(damaged, queue)
    path, position = damaged.unit(queue, number)
    put(path, position + 8, bytes([path.read_bytes()[position + 8] ^ 0x80]))
    damaged.note(f"the size of unit {number} of {queue} is negative")


@kind("small", "paged", "files")
def hundred_units_zeroed(damaged: Damaged) -> None:
    """A hundred units of zeros."""
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
    """The first unit, or some."""
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
    """The first segment is gone, and a unit behind those of its messages is zeros."""
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
    """Any bytes in the place of some units."""
    queue = damaged.queue(16)
    count = damaged.rng.choice((1, 5))
    number = inner_number(damaged, queue, count)
    damaged.put_units(queue, number, damaged.rng.randbytes(20 * count))
    damaged.note(f"units {number} to {number + count - 1} of {queue} are any bytes")


@kind()
def units_swapped(damaged: Damaged) -> None:
    """Two units, each in the other one's place."""
    queue = damaged.queue(16)
    one = other = inner_number(damaged, queue)
    while other == one:
        other = inner_number(damaged, queue)
    units = [path.read_bytes()[at : at + 20] for path, at in (damaged.unit(queue, one), damaged.unit(queue, other))]
    damaged.put_units(queue, one, units[1])
    damaged.put_units(queue, other, units[0])
    damaged.note(f"units {one} and {other} of {queue} are swapped")


@kind()
def unit_twice(damaged: Damaged) -> None:
    """A unit that is that of the message before."""
    queue = damaged.queue(16)
    number = inner_number(damaged, queue)
    path, position = damaged.unit(queue, number - 1)
    damaged.put_units(queue, number, path.read_bytes()[position : position + 20])
    damaged.note(f"unit {number} of {queue} is that of {number - 1}")


@kind()
def unit_of_another_queue(damaged: Damaged) -> None:
    """A unit that leads to a message of another queue."""
    queue = damaged.queue()
    number = inner_number(damaged, queue)
    other = damaged.rng.choice([each for each in damaged.good.messages if queue not in each.places])
    damaged.put_units(queue, number, packed(other.physical_offset, 8) + packed(len(other.record), 4) + bytes(8))
    damaged.note(f"unit {number} of {queue} leads to {other.physical_offset}")


@kind()
def unit_beyond_the_log(damaged: Damaged) -> None:
    """A unit that leads nowhere."""
    queue = damaged.queue()
    number = inner_number(damaged, queue)
    damaged.put_units(queue, number, packed(10**12, 8) + packed(200, 4) + bytes(8))
    damaged.note(f"unit {number} of {queue} leads far beyond the log")


@kind("small", "files", "expired", "ext", "classic")
def queue_file_lost_in_the_middle(damaged: Damaged) -> None:
    """A queue's file that is gone, between others."""
    queue = damaged.queue(40)
    files = damaged.queue_files(queue)[1:-1]
    if not files:
        raise Unfit
    path = damaged.rng.choice(files)
    path.unlink()
    damaged.note(f"file {path.name} of {queue} is gone")


@kind("small", "files", "ext", "classic")
def first_queue_file_lost(damaged: Damaged) -> None:
    """A queue's first file is gone, though the log has its messages."""
    lose_file(damaged, 0)


@kind("small", "files", "expired", "ext", "classic", "recut")
def last_queue_file_lost(damaged: Damaged) -> None:
    """A queue's last file is gone."""
    lose_file(damaged, -1)


@kind("small", "files", "expired", "ext", "classic", "recut")
def all_queue_files_lost(damaged: Damaged) -> None:
    """All files of a queue are gone, empty, or zeros as a crash may leave them; its directory is there."""
    queue = damaged.queue(40)
    way = damaged.rng.choice(("gone", "empty", "zeros"))
    for path in damaged.directory(queue).iterdir():
        size = path.stat().st_size
        path.unlink()
        if way != "gone":
            path.write_bytes(bytes(size if way == "zeros" else 0))
    damaged.note(f"all files of {queue} are {way}")


def lose_file(damaged: Damaged, number: int) -> None:
    """Delete a file at an end of a queue: there is no gap then that shows it."""
    queue = damaged.queue(40)
    files = damaged.queue_files(queue)
    if len(files) < 2:
        raise Unfit
    files[number].unlink()
    damaged.note(f"file {files[number].name} of {queue}, at its end, is gone")


@kind("small", "files", "expired", "ext", "classic")
def queue_file_cut(damaged: Damaged) -> None:
    """A file between others that has lost its end."""
    queue = damaged.queue(40)
    files = damaged.queue_files(queue)[1:-1]
    if not files:
        raise Unfit
    path = damaged.rng.choice(files)
    size = damaged.rng.randrange(damaged.good.queue_file_size)
    with path.open("r+b") as file:
        file.truncate(size)
    damaged.note(f"file {path.name} of {queue} has {size} bytes")


@kind()
def queue_file_emptied(damaged: Damaged) -> None:
    """Any file of a queue has no bytes, as a broker leaves one that was killed while it made it."""
    queue = damaged.queue()
    empty(damaged, damaged.queue_files(queue))


@kind()
def queue_file_zeroed(damaged: Damaged) -> None:
    """Any file of a queue holds zeros."""
    path = damaged.rng.choice(damaged.queue_files(damaged.queue()))
    path.write_bytes(bytes(path.stat().st_size))
    damaged.note(f"{path.parent.name}/{path.name} is zeros")


def empty(damaged: Damaged, files: list[Path]) -> None:
    """Take the bytes of one of some files; mostly of the last one."""
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
    """Units behind the end of a queue: of messages from before, of others, of some beyond the log."""
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
    """A queue that is gone."""
    queue = damaged.queue()
    shutil.rmtree(damaged.directory(queue))
    damaged.allowed.unqueued |= {(queue, message.physical_offset) for message in damaged.good.of_queue(queue)}
    damaged.note(f"the directory of {queue} is gone")


@kind("small", "classic")
def queues_lost_beside_batches(damaged: Damaged) -> None:
    """All plain queues are gone, those of batches are there; or a file lies in their place."""
    if not (damaged.root / "consumequeue").is_dir():
        raise Unfit
    shutil.rmtree(damaged.root / "consumequeue")
    is_file = damaged.rng.random() < 0.5
    if is_file:
        (damaged.root / "consumequeue").write_text("x")
    damaged.note("consumequeue/ is a file" if is_file else "consumequeue/ is gone")


@kind()
def foreign_names_in_queues(damaged: Damaged) -> None:
    """Files and directories that a broker does not make."""
    queue = damaged.queue()
    directory = damaged.directory(queue)
    (directory / "lost+found").mkdir(exist_ok=True)
    (directory / ("9" * 20)).write_bytes(b"\xff" * 100)
    (directory.parent / "x").write_text("x")
    (directory.parent / "9999").mkdir(exist_ok=True)
    damaged.note(f"foreign files beside {queue}")


# --- light queues -----------------------------------------------------------------------------------------------------


@kind("small", "classic")
def light_unit_zeroed(damaged: Damaged) -> None:
    """A unit of a light queue."""
    queue = (damaged.rng.choice(LIGHT), 0)
    zero_units(damaged, queue, inner_number(damaged, queue), 1)


@kind("small", "classic")
def light_queue_lost(damaged: Damaged) -> None:
    """A light queue that is gone."""
    name = damaged.rng.choice(LIGHT)
    if not (damaged.root / "consumequeue" / name).is_dir():
        raise Unfit
    shutil.rmtree(damaged.root / "consumequeue" / name)
    damaged.allowed.unqueued |= {((name, 0), message.physical_offset) for message in damaged.good.of_queue((name, 0))}
    damaged.note(f"{name} is gone")


# --- queues of batches ------------------------------------------------------------------------------------------------


def batch_files(damaged: Damaged) -> list[Path]:
    """Files of the queue of batches."""
    files = sorted((damaged.root / "batchconsumequeue" / "Batches" / "0").glob("[0-9]" * 20))
    if len(files) < 3:
        raise Unfit
    return files


@kind("small", "classic")
def batch_unit_zeroed(damaged: Damaged) -> None:
    """A unit of a queue of batches."""
    path, number = damaged.rng.choice(batch_files(damaged)[1:-1]), damaged.rng.randrange(4)
    put(path, 46 * number, bytes(46))
    damaged.note(f"unit {number} of batch file {path.name} is zeros")


@kind("small", "classic")
def batch_unit_flipped(damaged: Damaged) -> None:
    """A bit of a unit of a queue of batches, the first one too; not of its store time, which is taken at its word."""
    path = damaged.rng.choice(batch_files(damaged)[:-1])
    position = 46 * damaged.rng.choice((0, 0, 2)) + damaged.rng.choice((*range(20), *range(28, 38)))
    put(path, position, bytes([path.read_bytes()[position] ^ 1 << damaged.rng.randrange(8)]))
    damaged.note(f"a bit of byte {position} of batch file {path.name} is flipped")


@kind("small", "classic")
def batch_file_lost(damaged: Damaged) -> None:
    """Any file of a queue of batches is gone."""
    path = damaged.rng.choice(batch_files(damaged))
    path.unlink()
    damaged.note(f"batch file {path.name} is gone")


@kind("small", "classic")
def batch_file_zeroed(damaged: Damaged) -> None:
    """Any file of a queue of batches holds zeros."""
    path = damaged.rng.choice(batch_files(damaged))
    put(path, 0, bytes(path.stat().st_size))
    damaged.note(f"batch file {path.name} is zeros")


@kind("small", "classic")
def batch_file_emptied(damaged: Damaged) -> None:
    """Any file of a queue of batches has no bytes."""
    empty(damaged, batch_files(damaged))


# --- extensions: without one, a broker sends what it cannot choose from by tag, and clients choose --------------------


@kind("ext")
def extension_lost(damaged: Damaged) -> None:
    """A queue's extension, or a file of it, is gone."""
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
    """Any bytes, or zeros, in an extension."""
    files = sorted((damaged.root / "consumequeue_ext" / "Orders" / "0").glob("[0-9]" * 20))
    if not files:
        raise Unfit
    path = damaged.rng.choice(files)
    damaged.allowed.has_tags = False
    put(path, 22 * 3, damaged.rng.choice((bytes(100), damaged.rng.randbytes(100))))
    damaged.note(f"100 bytes of extension file {path.name} are others")
