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
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct

import click
import numpy as np

from benchmarks.make_store import DEFAULT_STORE_DIRECTORY, LENGTH_OF_PROPERTIES, MESSAGE_MAGIC, RECORD_HEAD
from benchmarks.report import machine
from benchmarks.store_plan import BORN_HOST, FIRST_STORE_TIMESTAMP, STORE_HOST

SLOTS, ENTRIES = 5_000_000, 20_000_000
KEYS_A_MESSAGE = 3_600
KEY_BYTES = 8
SEGMENT_BYTES = 1 << 30
TOPIC = b"PagesTopic"
LOOKUPS = 300
SLOT = Struct(">i")
ENTRY = Struct(">iqii")
HEADER_BYTES = 40


def write_log(directory: Path, messages: int) -> None:
    """Messages without a body and with `KEYS_A_MESSAGE` keys of their own, in segments of sparse, full length."""
    directory.mkdir(parents=True)
    position, base, file = SEGMENT_BYTES, -SEGMENT_BYTES, None
    for number in range(messages):
        properties = b"KEYS\x01" + b" ".join(keys_of(number)) + b"\x02"
        size = RECORD_HEAD.size + 1 + len(TOPIC) + LENGTH_OF_PROPERTIES.size + len(properties)
        if position + size + 8 > SEGMENT_BYTES:
            if file is not None:
                file.write(Struct(">iI").pack(SEGMENT_BYTES - position, 0xCBD43194))
                file.close()
            base, position = base + SEGMENT_BYTES, 0
            file = (directory / f"{base:020d}").open("wb", buffering=1 << 22)
            file.truncate(SEGMENT_BYTES)
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


def keys_of(number: int) -> Iterator[bytes]:
    """The keys of a message: numbers of a permutation, so that their hashes are spread."""
    first = number * KEYS_A_MESSAGE
    return (b"%0*X" % (KEY_BYTES, (key * 0x9E3779B1) & 0xFFFFFFFF) for key in range(first, first + KEYS_A_MESSAGE))


def java_hash(text: bytes) -> int:
    """`String.hashCode` of ASCII text, as an index keeps it."""
    value = 0
    for byte in text:
        value = (31 * value + byte) & 0xFFFFFFFF
    value = value - (1 << 32) if value >= 1 << 31 else value
    return abs(value) if value != -(1 << 31) else 0


def count_faults(index: Path, keys: Sequence[bytes]) -> list[int]:
    """Major faults of each look-up through all files, the cache of the files being cold before each."""
    descriptors = [os.open(path, os.O_RDONLY) for path in sorted(index.iterdir(), reverse=True)]
    faults = []
    for key in keys:
        maps = [mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) for descriptor in descriptors]
        for descriptor, view in zip(descriptors, maps, strict=True):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            view.madvise(mmap.MADV_RANDOM)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
        found = sum(look_up(view, java_hash(TOPIC + b"#" + key)) for view in maps)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_majflt - before)
        if not found:
            raise click.ClickException(f"{key!r} is not in {index}")
        for view in maps:
            view.close()
    return faults


def look_up(view: mmap.mmap, key_hash: int) -> int:
    """How many entries of a file have a hash; walks the whole chain of its slot."""
    number, found = SLOT.unpack_from(view, HEADER_BYTES + SLOT.size * (key_hash % SLOTS))[0], 0
    while number > 0:
        entry_hash, _, _, number = ENTRY.unpack_from(view, HEADER_BYTES + SLOT.size * SLOTS + ENTRY.size * number)
        found += entry_hash == key_hash
    return found


def measure_apart(index: Path, keys: Sequence[bytes]) -> list[int]:
    """`count_faults` in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.compact_pages", "--count-faults", str(index)]
    ended = subprocess.run(command, input=b"\n".join(keys), capture_output=True, check=True)
    faults: list[int] = json.loads(ended.stdout)
    return faults


def run_command(*arguments: str) -> None:
    """Run one of the product's commands."""
    command = [sys.executable, "-c", "from broker.cli.main import main; main()", *arguments, "--json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@click.command()
@click.option("--store-dir", type=click.Path(path_type=Path), default=DEFAULT_STORE_DIRECTORY, show_default=True)
@click.option("--files", default=5, show_default=True, help="Full index files.")
@click.option("--count-faults", "counted", type=click.Path(path_type=Path), hidden=True)
def main(store_dir: Path, files: int, counted: Path | None) -> None:
    """Measure look-ups in full index files before and after compaction, and print the table."""
    if counted is not None:
        print(json.dumps(count_faults(counted, sys.stdin.buffer.read().split(b"\n"))))
        return
    messages = -(-files * (ENTRIES - 1) // KEYS_A_MESSAGE)
    store_dir.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="pages-", dir=store_dir))
    try:
        write_log(scratch / "store" / "commitlog", messages)
        run_command("rebuild", "index", str(scratch / "store"))
        run_command("compact", "index", str(scratch / "store"), "--out", str(scratch / "compacted"))
        chosen = np.random.default_rng(1).integers(0, messages * KEYS_A_MESSAGE, LOOKUPS)
        keys = [b"%0*X" % (KEY_BYTES, (key * 0x9E3779B1) & 0xFFFFFFFF) for key in chosen.tolist()]
        faults = {
            "as a broker builds it": measure_apart(scratch / "store" / "index", keys),
            "compacted": measure_apart(scratch / "compacted" / "index", keys),
        }
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    where = machine()
    print(f"{files} full index files of {SLOTS:,} slots and {ENTRIES:,} entries; {LOOKUPS} random keys, cold cache.")
    print(f"Machine: {where['cpu']}, {where['memory']}, kernel {where['kernel']}.\n")
    print("| index | pages from the disk a look-up, median | mean | most |\n|---|---|---|---|")
    for name, counts in faults.items():
        print(f"| {name} | {statistics.median(counts):.0f} | {statistics.mean(counts):.1f} | {max(counts)} |")


if __name__ == "__main__":
    main()
