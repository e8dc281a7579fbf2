"""Small stores for the doctor's tests, and what it must say of a fault that a test planted."""

import subprocess
import sys
from contextlib import contextmanager

from storage.doctor.examine import examine
from storage.doctor.finding import Severity
from store_writer import StoreWriter

SEGMENT = 16384
NOW = 1_700_000_000_000
HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""
"""A program that holds the lock of a store, as a broker that runs, until its input ends."""


@contextmanager
def held_lock(root):
    command = [sys.executable, "-c", HOLD, str(root / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process.pid
        process.communicate("")


def make_store(root, count=200, **options):
    sizes = {"segment_size": SEGMENT, "index_slots": 13, "index_entries": 100, "queue_file_size": 1000}
    writer = StoreWriter(root, **(sizes | options))  # type: ignore[arg-type]
    named = ({"keys": f"k{n}", "unique_key": f"u{n}", "tags": "t", "queue_id": n % 2} for n in range(count))
    return writer, [writer.append("T", b"body" * 5, **fields) for fields in named]


def findings_of(diagnosis, check, *severities):
    chosen = severities or tuple(Severity)
    return [finding for finding in diagnosis.findings if finding.check == check and finding.severity in chosen]


def only(root, check, *, directories=()):
    diagnosis = examine(root, tuple(directories))
    (finding,) = findings_of(diagnosis, check)
    assert finding.found
    assert finding.meaning
    assert finding.remedy
    return finding


def put(path, position, data) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
