"""What compaction saves: pages that a cold look-up really brings in from the disk, before and after.

    python -m benchmarks.compact_pages

Writes a log whose messages carry thousands of keys each, so that five index files of a broker's default size are full,
rebuilds the index and compacts it, both by the product's own commands. Then a fresh process looks keys up as a broker
does, newest file first, its maps advised to be random and every page of the files dropped from the cache before each
look-up, and counts the page faults that had to wait for the disk (ru_majflt).
"""

import json
import mmap
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

import click
import numpy as np

from benchmarks.make_store import DEFAULT_STORE_DIRECTORY, LENGTH_OF_PROPERTIES, MESSAGE_MAGIC, RECORD_HEAD
from benchmarks.report import machine
from benchmarks.store_plan import BORN_HOST, FIRST_STORE_TIMESTAMP, STORE_HOST

KEY_BYTES = 8
TOPIC = b"PagesTopic"
SLOT = Struct(">i")
ENTRY = Struct(">iqii")
HEADER_BYTES = 40


@dataclass(frozen=True)
class Plan:
    """How large all is: `files` full index files of so many slots and entries, and `lookups` random keys."""

    files: int = 5
    slots: int = 5_000_000
    entries: int = 20_000_000
    keys_a_message: int = 3_600
    segment_bytes: int = 1 << 30
    lookups: int = 300

    @property
    def messages(self) -> int:
        """As many as fill the files."""
        return -(-self.files * (self.entries - 1) // self.keys_a_message)


def write_log(directory: Path, plan: Plan) -> None:
    """Messages without a body and with many keys of their own, in segments of sparse, full length."""
    directory.mkdir(parents=True)
    position, base, file = plan.segment_bytes, -plan.segment_bytes, None
    for number in range(plan.messages):
        properties = b"KEYS\x01" + b" ".join(keys_of(number, plan)) + b"\x02"
        size = RECORD_HEAD.size + 1 + len(TOPIC) + LENGTH_OF_PROPERTIES.size + len(properties)
        if position + size + 8 > plan.segment_bytes:
            if file is not None:
                file.write(Struct(">iI").pack(plan.segment_bytes - position, 0xCBD43194))
                file.close()
            base, position = base + plan.segment_bytes, 0
            file = (directory / f"{base:020d}").open("wb", buffering=1 << 22)
            file.truncate(plan.segment_bytes)
        timestamp = FIRST_STORE_TIMESTAMP + number
        head = RECORD_HEAD.pack(
            *(size, MESSAGE_MAGIC, zlib.crc32(b"") & 0x7FFFFFFF, 0, 0, number, base + position, 0),
            *(timestamp, BORN_HOST, timestamp, STORE_HOST, 0, 0, 0),
        )
        assert file is not None
        file.write(b"".join((head, bytes([len(TOPIC)]), TOPIC, LENGTH_OF_PROPERTIES.pack(len(properties)), properties)))
        position += size
    if file is not None:
        file.close()


def keys_of(number: int, plan: Plan) -> Iterator[bytes]:
    """The keys of a message."""
    return map(key_of, range(number * plan.keys_a_message, (number + 1) * plan.keys_a_message))


def key_of(number: int) -> bytes:
    """A key: numbers of a permutation, so that their hashes are spread."""
    return b"%0*X" % (KEY_BYTES, (number * 0x9E3779B1) & 0xFFFFFFFF)


def java_hash(text: bytes) -> int:
    """`String.hashCode` of ASCII text, as an index keeps it."""
    value = 0
    for byte in text:
        value = (31 * value + byte) & 0xFFFFFFFF
    value = value - (1 << 32) if value >= 1 << 31 else value
    return abs(value) if value != -(1 << 31) else 0


def count_faults(index: Path, slots: int, keys: Sequence[bytes]) -> list[int]:
    """Major faults of each look-up through all files, the cache of the files being cold before each."""
    descriptors = [os.open(path, os.O_RDONLY) for path in sorted(index.iterdir(), reverse=True)]
    faults = []
    for key in keys:
        maps = [mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) for descriptor in descriptors]
        for descriptor, view in zip(descriptors, maps, strict=True):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            view.madvise(mmap.MADV_RANDOM)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
        found = sum(look_up(view, slots, java_hash(TOPIC + b"#" + key)) for view in maps)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_majflt - before)
        for view in maps:
            view.close()
        if not found:
            raise click.ClickException(f"{key!r} is not in {index}")
    for descriptor in descriptors:
        os.close(descriptor)
    return faults


def look_up(view: mmap.mmap, slots: int, key_hash: int) -> int:
    """How many entries of a file have a hash; walks the whole chain of its slot."""
    number, found = SLOT.unpack_from(view, HEADER_BYTES + SLOT.size * (key_hash % slots))[0], 0
    while number > 0:
        entry_hash, _, _, number = ENTRY.unpack_from(view, HEADER_BYTES + SLOT.size * slots + ENTRY.size * number)
        found += entry_hash == key_hash
    return found


def measure_apart(index: Path, slots: int, keys: Sequence[bytes]) -> list[int]:
    """`count_faults` in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.compact_pages", "--count-faults", str(index), "--slots", str(slots)]
    ended = subprocess.run(command, input=b"\n".join(keys), capture_output=True, check=True)
    faults: list[int] = json.loads(ended.stdout)
    return faults


def run_command(*arguments: str) -> None:
    """Run one of the product's commands."""
    command = [sys.executable, "-c", "from rocketlens.cli.main import main; main()", *arguments, "--json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def measure(scratch: Path, plan: Plan, run: Callable[..., None] = run_command) -> dict[str, list[int]]:
    """Make a store and its compacted index in an empty directory, and count what look-ups in either bring in."""
    store, out = scratch / "store", scratch / "compacted"
    write_log(store / "commitlog", plan)
    run("rebuild", "index", str(store), "--slots", str(plan.slots), "--entries", str(plan.entries))
    run("compact", "index", str(store), "--out", str(out))
    chosen = np.random.default_rng(1).integers(0, plan.messages * plan.keys_a_message, plan.lookups)
    keys = list(map(key_of, chosen.tolist()))
    return {
        "as a broker builds it": measure_apart(store / "index", plan.slots, keys),
        "compacted": measure_apart(out / "index", plan.slots, keys),
    }


@click.command()
@click.option("--store-dir", type=click.Path(path_type=Path), default=DEFAULT_STORE_DIRECTORY, show_default=True)
@click.option("--files", default=Plan.files, show_default=True, help="Full index files.")
@click.option("--slots", default=Plan.slots, hidden=True)
@click.option("--count-faults", "counted", type=click.Path(path_type=Path), hidden=True)
def main(store_dir: Path, files: int, slots: int, counted: Path | None) -> None:
    """Measure look-ups in full index files before and after compaction, and print the table."""
    if counted is not None:
        print(json.dumps(count_faults(counted, slots, sys.stdin.buffer.read().split(b"\n"))))
        return
    plan = Plan(files=files, slots=slots)
    store_dir.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="pages-", dir=store_dir))
    try:
        faults = measure(scratch, plan)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    where = machine()
    what = f"{files} full index files of {plan.slots:,} slots and {plan.entries:,} entries"
    print(f"{what}; {plan.lookups} random keys, cold cache.")
    print(f"Machine: {where['cpu']}, {where['memory']}, kernel {where['kernel']}.\n")
    print("| index | pages from the disk a look-up, median | mean | most |\n|---|---|---|---|")
    for name, counts in faults.items():
        print(f"| {name} | {statistics.median(counts):.0f} | {statistics.mean(counts):.1f} | {max(counts)} |")


if __name__ == "__main__":
    main()
