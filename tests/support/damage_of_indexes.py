"""Kinds of damage to index files, and to the small files of a store."""

import shutil
from pathlib import Path

from damaged_stores import Damaged, Unfit, kind
from oracles import packed
from trial_stores import put


def index_file(damaged: Damaged) -> Path:
    """Any index file."""
    files = damaged.index_files()
    if not files:
        raise Unfit
    return damaged.rng.choice(files)


def first_entry(damaged: Damaged) -> int:
    """The position of entry 1 in an index file."""
    return 40 + 4 * damaged.good.index_slots + 20


def entry_count(path: Path) -> int:
    """How many entries an index file says that it has; Unfit where it is none of use."""
    count = int.from_bytes(path.read_bytes()[36:40], "big") - 1
    if not 3 < count < 100_000:
        raise Unfit
    return count


@kind()
def index_header_zeroed(damaged: Damaged) -> None:
    """Zeros in the place of a header."""
    path = index_file(damaged)
    put(path, 0, bytes(40))
    damaged.note(f"the header of index {path.name} is zeros")


@kind()
def index_header_flipped(damaged: Damaged) -> None:
    """A bit of a header."""
    path, bit = index_file(damaged), damaged.rng.randrange(320)
    put(path, bit // 8, bytes([path.read_bytes()[bit // 8] ^ 1 << bit % 8]))
    damaged.note(f"bit {bit} of the header of index {path.name} is flipped")


@kind()
def index_count_wrong(damaged: Damaged) -> None:
    """A header that counts too many or too few entries."""
    path = index_file(damaged)
    count = entry_count(path)
    wrong = damaged.rng.choice((0, 1, 2, count // 2, count + 2, count + 1000, 2**31 - 1))
    put(path, 36, packed(wrong, 4))
    damaged.note(f"index {path.name} counts {wrong} instead of {count + 1}")


@kind()
def index_slots_zeroed(damaged: Damaged) -> None:
    """A slot table, or a part of it, of zeros."""
    path, count = index_file(damaged), damaged.rng.choice((1, 5, damaged.good.index_slots))
    first = damaged.rng.randrange(damaged.good.index_slots - count + 1)
    put(path, 40 + 4 * first, bytes(4 * count))
    damaged.note(f"{count} slots from {first} on of index {path.name} are zeros")


@kind()
def index_slots_of_garbage(damaged: Damaged) -> None:
    """Slots of any bytes."""
    path = index_file(damaged)
    first = damaged.rng.randrange(damaged.good.index_slots - 5)
    put(path, 40 + 4 * first, damaged.rng.randbytes(20))
    damaged.note(f"5 slots from {first} on of index {path.name} are any bytes")


@kind()
def index_chain_in_a_circle(damaged: Damaged) -> None:
    """An entry that leads to itself, or to a newer one."""
    path = index_file(damaged)
    number = damaged.rng.randrange(1, entry_count(path))
    follows = damaged.rng.choice((number, number + 1, entry_count(path)))
    put(path, first_entry(damaged) + 20 * (number - 1) + 16, packed(follows, 4))
    damaged.note(f"entry {number} of index {path.name} leads to {follows}")


@kind()
def index_entries_zeroed(damaged: Damaged) -> None:
    """Entries of zeros."""
    path = index_file(damaged)
    number, count = damaged.rng.randrange(entry_count(path) - 1), damaged.rng.choice((1, 2, 200))
    start = first_entry(damaged) + 20 * number
    put(path, start, bytes(min(20 * count, path.stat().st_size - start)))
    damaged.note(f"{count} entries from {number + 1} on of index {path.name} are zeros")


@kind()
def index_entries_of_garbage(damaged: Damaged) -> None:
    """Entries of any bytes."""
    path = index_file(damaged)
    number = damaged.rng.randrange(entry_count(path) - 2)
    put(path, first_entry(damaged) + 20 * number, damaged.rng.randbytes(50))
    damaged.note(f"entries from {number + 1} on of index {path.name} are any bytes")


@kind()
def index_entry_elsewhere(damaged: Damaged) -> None:
    """An entry that leads to another message, into one, or beyond the log."""
    path = index_file(damaged)
    number = damaged.rng.randrange(entry_count(path))
    place = damaged.rng.choice((damaged.message().physical_offset, 17, 10**12, -5))
    put(path, first_entry(damaged) + 20 * number + 4, packed(place, 8))
    damaged.note(f"entry {number + 1} of index {path.name} leads to {place}")


@kind()
def index_hash_flipped(damaged: Damaged) -> None:
    """An entry under another hash."""
    path = index_file(damaged)
    place = first_entry(damaged) + 20 * damaged.rng.randrange(entry_count(path)) + damaged.rng.randrange(4)
    put(path, place, bytes([path.read_bytes()[place] ^ 1 << damaged.rng.randrange(8)]))
    damaged.note(f"byte {place}, in a hash, of index {path.name} has a flipped bit")


@kind()
def index_file_cut(damaged: Damaged) -> None:
    """An index file that has lost its end."""
    path = index_file(damaged)
    size = damaged.rng.choice((0, 39, 40, first_entry(damaged) - 1, damaged.rng.randrange(path.stat().st_size)))
    with path.open("r+b") as file:
        file.truncate(size)
    damaged.note(f"index {path.name} has {size} bytes")


@kind()
def index_file_of_garbage(damaged: Damaged) -> None:
    """An index file of any bytes."""
    path = index_file(damaged)
    path.write_bytes(damaged.rng.randbytes(path.stat().st_size))
    damaged.note(f"index {path.name} holds any bytes")


@kind()
def index_file_lost(damaged: Damaged) -> None:
    """An index file that is gone."""
    path = index_file(damaged)
    path.unlink()
    damaged.note(f"index {path.name} is gone")


@kind()
def index_lost(damaged: Damaged) -> None:
    """All index files are gone, or their directory is a file."""
    if not (damaged.root / "index").is_dir():
        raise Unfit
    shutil.rmtree(damaged.root / "index")
    is_file = damaged.rng.random() < 0.5
    if is_file:
        (damaged.root / "index").write_text("x")
    damaged.note("index/ is a file" if is_file else "index/ is gone")


@kind()
def index_file_twice(damaged: Damaged) -> None:
    """A copy of an index file under another name."""
    path = index_file(damaged)
    shutil.copy(path, path.with_name("20991231235959999"))
    damaged.note(f"index {path.name} is there twice")


@kind()
def directory_among_index_files(damaged: Damaged) -> None:
    """A directory whose name is that of an index file."""
    if not (damaged.root / "index").is_dir():
        raise Unfit
    name = damaged.rng.choice(("20260101000000001000", "20991231235959998", "20200101000000000"))
    (damaged.root / "index" / name).mkdir(exist_ok=True)
    (damaged.root / "index" / "notes.txt").write_text("x")
    damaged.note(f"index/{name} is a directory")


# --- small files ------------------------------------------------------------------------------------------------------


def spoil(damaged: Damaged, name: str, ways: tuple[str, ...] = ("cut", "empty", "zeros", "garbage", "gone")) -> None:
    """Cut a file, empty it, fill it with zeros or any bytes, or take it away."""
    path, way = damaged.root / name, damaged.rng.choice(ways)
    content = path.read_bytes() if path.is_file() else b"{}" * 20
    changed = {
        "cut": content[: len(content) * damaged.rng.randrange(1, 9) // 10], "empty": b"", "zeros": bytes(len(content)),
        "garbage": damaged.rng.randbytes(len(content)),
    }  # fmt: skip
    path.parent.mkdir(exist_ok=True)
    if way == "gone":
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(changed[way])
    damaged.note(f"{name}: {way}")


@kind()
def consumer_offsets_spoiled(damaged: Damaged) -> None:
    """consumerOffset.json cannot be read: offsets are unknown, and not 0."""
    damaged.asks_offsets = True
    spoil(damaged, "config/consumerOffset.json", ("cut", "empty", "zeros", "garbage"))


@kind()
def topics_spoiled(damaged: Damaged) -> None:
    """topics.json cannot be read."""
    spoil(damaged, "config/topics.json")


@kind()
def subscription_groups_spoiled(damaged: Damaged) -> None:
    """subscriptionGroup.json cannot be read."""
    spoil(damaged, "config/subscriptionGroup.json", ("empty", "zeros", "garbage"))


@kind()
def other_config_spoiled(damaged: Damaged) -> None:
    """Other files of config/ cannot be read."""
    for name in ("delayOffset.json", "consumerFilter.json", "topicQueueMapping.json"):
        spoil(damaged, f"config/{name}", ("empty", "zeros", "garbage"))


@kind()
def small_files_spoiled(damaged: Damaged) -> None:
    """Checkpoint and lock hold something else, or are gone."""
    spoil(damaged, "checkpoint")
    spoil(damaged, "lock")


@kind()
def crashed(damaged: Damaged) -> None:
    """abort is there, the checkpoint is not."""
    (damaged.root / "abort").write_text("1")
    (damaged.root / "checkpoint").unlink(missing_ok=True)
    damaged.note("abort is there, the checkpoint is not")
