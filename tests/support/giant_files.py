"""Sparse files of a store that claim to be a terabyte long, with next to nothing on disk."""

import gc
import os
import resource
import sys
import tempfile
import traceback
from pathlib import Path

import pytest

from loop_engine import run_jobs_here
from store_writer import StoreWriter

GIANT = 1 << 40
MOST_MEMORY = 1 << 30
"""Bytes of memory of its own that a process may have, the workers of jobs too; maps of files are not among them."""

COMPACTED = ("compaction/compactionLog", "compaction/compactionCq")
"""Where a broker keeps topics whose cleanup policy is COMPACTION."""

FOUND_OR_NOT = (0, 1, 3, 4)
"""Exit codes of commands that did what they could."""


def write_store(root: Path) -> StoreWriter:
    with StoreWriter(root, segment_size=1 << 16) as writer:
        for number in range(600):
            named = {"keys": f"k{number}", "tags": "A", "unique_key": f"U{number}"}
            writer.append("T", b"body %d" % number, queue_id=number % 2, **named)
        writer.append_inner_batch("B", [(b"one", {}), (b"two", {})])
        writer.append_inner_batch("B", [(b"three", {})])
    for name in ("topics", "consumerOffset", "subscriptionGroup", "delayOffset"):
        path = root / "config" / f"{name}.json"
        if not path.exists():
            path.write_text("{}")
        Path(f"{path}.bak").write_bytes(path.read_bytes())
    for name in ("abort", "timerwheel", "timerlog/00000000000000000000", "config/timercheck", "lock"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).touch()
    for directory in ("consumequeue_ext", *COMPACTED):
        file = root / directory / "T/0/00000000000000000000"
        file.parent.mkdir(parents=True)
        file.touch()
    return writer


def last_in(directory):
    return lambda root: max((root / directory).iterdir())


KINDS = {
    "first segment": lambda root: min((root / "commitlog").iterdir()),
    "last segment": last_in("commitlog"),
    "queue file": last_in("consumequeue/T/0"),
    "file of a queue of batches": last_in("batchconsumequeue/B/0"),
    "extension file": last_in("consumequeue_ext/T/0"),
    **{directory: last_in(f"{directory}/T/0") for directory in COMPACTED},
    "index file": last_in("index"),
    **{
        name: lambda root, name=name: root / name  # type: ignore[misc]
        for name in ("checkpoint", "abort", "lock", "timerwheel", "timerlog/00000000000000000000", "config/timercheck")
    },
    **{
        name: lambda root, name=name: root / "config" / name  # type: ignore[misc]
        for each in ("topics", "consumerOffset", "subscriptionGroup", "delayOffset")
        for name in (f"{each}.json", f"{each}.json.bak")
    },
}


def make_giant(path: Path, size: int = GIANT, last: bytes = b"") -> None:
    """Make a file of a size by its length alone; `last` are its last bytes, if not a hole."""
    status = path.stat()
    os.truncate(path, size)
    if last:
        with path.open("r+b") as file:
            file.seek(size - len(last))
            file.write(last)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


COMMANDS = {
    "doctor": ["doctor", "STORE"],
    "info": ["info", "STORE"],
    "topics": ["topics", "STORE"],
    "queues": ["topics", "STORE", "--topic", "T"],
    "batches": ["topics", "STORE", "--topic", "B"],
    "find": ["find", "STORE", "k5"],
    "tag": ["find", "STORE", "A", "--as", "tag", "--topic", "T"],
    "subscription": ["search", "STORE", "--explain", "--topic", "T", "--tag", "A"],
    "tail": ["tail", "STORE", "--topic", "T"],
    "search": ["search", "STORE", "--contains", "no such text"],
    "groups": ["groups", "STORE"],
    "pending": ["pending", "STORE"],
    "life": ["life", "STORE", "--unique-key", "U5", "--topic", "T"],
    "space": ["space", "STORE"],
    "verify": ["verify", "STORE"],
    "rebuild index": ["rebuild", "index", "STORE", "--out", "OUT"],
    "rebuild queues": ["rebuild", "queues", "STORE", "--out", "OUT"],
    "compact": ["compact", "index", "STORE", "--out", "OUT"],
    "rescue": ["rescue", "STORE", "--out", "OUT"],
    "export": ["export", "STORE", "--out", "OUT", "--format", "ndjson"],
}


OF_TIER = {
    "topics": ["topics", "STORE", "--topic", "TierTopic", "--tier", "TIER"],
    "info": ["info", "STORE", "--tier", "TIER"],
    "find": ["find", "STORE", "old-7", "--tier", "TIER"],
    "subscription": ["search", "STORE", "--explain", "--topic", "TierTopic", "--tag", "A", "--tier", "TIER"],
    "tail": ["tail", "STORE", "--topic", "TierTopic", "--tier", "TIER"],
    "search": ["search", "STORE", "--contains", "no such text", "--tier", "TIER"],
    "tier alone": ["topics", "TIER"],
    "search of the tier alone": ["search", "TIER", "--contains", "no such text"],
}
"""What reads a recorded store together with its tier, or the tier alone."""


def ask_health(root: Path) -> str:
    from web_questions import ApiOf

    api = ApiOf(root)
    for path in ("/health", "/topics", "/messages?topic=T"):
        name, _, topic = path.partition("?topic=")
        answer = api.ask(name, topic=topic or None)
        if answer.status >= 500 and answer.status != 503:
            return f"{path}: {answer.status} {answer.content[:300]!r}"
    return ""


def main(root, names) -> None:
    from click.testing import CliRunner

    from rocketlens.cli.main import main as command

    with pytest.MonkeyPatch.context() as patch:
        run_jobs_here(patch)
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
        run_commands(CliRunner(), command, root, names)
    print("all commands were run", flush=True)


def run_commands(runner, command, root, names) -> None:
    tier = root / "tiered"
    places = {"STORE": str(root), "TIER": str(tier)}
    for name, arguments in (OF_TIER if tier.is_dir() else COMMANDS).items():
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as out:
            given = [(places | {"OUT": f"{out}/made"}).get(each, each) for each in arguments]
            result = runner.invoke(command, given)
        gc.collect()  # a command is a process of its own elsewhere: what it left in cycles goes with it
        text = result.output
        has_failed = result.exception is not None and not isinstance(result.exception, SystemExit)
        if has_failed or result.exit_code not in FOUND_OR_NOT or "not enough memory" in text or "Traceback" in text:
            print(f"{name}: exit code {result.exit_code}: {text[-500:]}", flush=True)
            if has_failed and result.exc_info is not None:
                traceback.print_exception(*result.exc_info, file=sys.stdout)
    if not names and not tier.is_dir() and (problem := ask_health(root)):
        print(f"health: {problem}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
