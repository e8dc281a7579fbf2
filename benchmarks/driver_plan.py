"""The memory of the driver that plans the rebuild of a large store, and the bytes of the tasks that it sends.

    python -m benchmarks.driver_plan --segments 10000 --queues 20000

Nothing is read or built: the summaries of the scans are made up, with the numbers of entries, units and blocks that a
segment of messages of 1 KB has, and so is what the build tasks answer. Everything between is what a rebuild does in the
driver's Python. (Spark's JVM holds the same tasks once more.) Prints one line of JSON.
"""

import json
import os
import pickle
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

import click
import msgspec
import numpy as np

from spark_jobs.build.build_queues import BuildQueuesTask, BuiltQueues, bundle_count, join_parts
from spark_jobs.build.exchange import SURVEY, FileExchange
from spark_jobs.build.kept_index import IndexShapeWanted, KeptIndex
from spark_jobs.build.place_queues import carry_queues, log_extent, queue_details
from spark_jobs.build.rebuild import Rebuild, Rebuilt
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.build.split_queues import Extent, SurveyTask
from spark_jobs.run.blocks import BlockWriter
from spark_jobs.run.progress import Silence
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.log_end import find_log_end
from spark_jobs.scan.probe_store import ProbeTask, SegmentPlace
from spark_jobs.scan.scan_log import ScanOptions, scan_tasks
from spark_jobs.scan.scan_segment import HOT_SHARE, ScanSummary
from spark_jobs.scan.source import StoreSource
from storage.build.dispatch_scan import RECORDS
from storage.build.queue_builder import QueueSummary
from storage.index.index_file import DEFAULT_ENTRIES, DEFAULT_SLOTS
from storage.layout.store_layout import CONSUME_QUEUE, recognise_store

GIB: Final = 1 << 30
RECORD_BYTES: Final = 1024
ENTRIES_OF_A_RECORD: Final = 3
HOT_QUEUES: Final = HOT_SHARE - 1
"""In every segment, each with as large a part of its units as so many can have."""

LATE: Final = 1_700_000_000_000


class Sent:
    """Adds up the tasks that would be sent, and answers those that ask something."""

    def __init__(self) -> None:
        self.tasks: dict[str, int] = {}
        self.bytes: dict[str, int] = {}

    def send(self, kind: str, tasks: Sequence[object]) -> None:
        """Note how large the tasks are as each executor gets them."""
        self.tasks[kind], self.bytes[kind] = len(tasks), len(pickle.dumps(tasks))


class MadeUp(FileExchange):
    """An exchange by files whose tasks are not run."""

    def __init__(self, work: WorkDirectory, sent: Sent) -> None:
        super().__init__(cast("Any", None), work, Silence())
        self._sent = sent

    def survey(self, tasks: Sequence[SurveyTask]) -> list[list[list[Extent] | None]]:
        """Every queue is in order, and has as many units in each segment."""
        self._sent.send(SURVEY, tasks)
        each = GIB // RECORD_BYTES // HOT_QUEUES
        return cast(
            "list[list[list[Extent] | None]]",
            fresh([
                [[Extent(n, n * each, (n + 1) * each) for n in range(task.units.start, task.units.stop)]]
                * len(task.queues)
                for task in tasks
            ]),
        )  # fmt: skip


def fresh(answers: Any) -> Any:
    """What arrives from tasks: objects of its own."""
    return pickle.loads(pickle.dumps(answers))


def summaries(work: WorkDirectory, source: StoreSource, bundles: int) -> list[ScanSummary]:
    """What scans of full segments say."""
    records, base = GIB // RECORD_BYTES, 0
    position = _leave_blocks(work)
    made = []
    for base in (place.base_offset for place in source.segments):
        hot = [[b"HotTopicOfThisStore%04d" % number, number % 8, records // HOT_QUEUES] for number in range(HOT_QUEUES)]
        summary = {
            "path": f"{source.layout.root}/commitlog/{base:020d}",
            "base": base,
            "size": GIB,
            "bytes_read": GIB,
            "records": records,
            "end": base + GIB,
            "state": "full",
            "last_timestamp": LATE,
            "breaks": [],
            "more_breaks": 0,
            "entry_table": [position, base, base + GIB, records * ENTRIES_OF_A_RECORD, base + GIB - RECORD_BYTES],
            "unit_table": 1 << 24,
            "unit_bundles": np.packbits(np.ones(bundles, np.bool_)).tobytes(),
            "units": records,
            "hot_queues": hot,
            "attempt": "scan",
            "files": {"entries": 1 << 26, "units": 1 << 25},
            "began": time.time(),
            "seconds": 1.5,
        }
        made.append(fresh(summary))
    return made


def _leave_blocks(work: WorkDirectory) -> int:
    """One block of a segment's first entries, and a table that lists it as often as a segment has blocks."""
    blocks = GIB // RECORD_BYTES // RECORDS
    with BlockWriter(work.blocks / "scan.entries", "made up") as writer:
        columns = {
            "offsets": np.arange(RECORDS, dtype=np.uint32) * RECORD_BYTES,
            "timestamps": np.full(RECORDS, LATE, np.int64),
            "counts": np.full(RECORDS, ENTRIES_OF_A_RECORD, np.uint16),
            "hashes": np.zeros(RECORDS * ENTRIES_OF_A_RECORD, np.int32),
        }
        writer.write(0, RECORDS * RECORD_BYTES, columns)
        row = [0, 0, RECORDS * RECORD_BYTES, RECORDS * ENTRIES_OF_A_RECORD, (RECORDS - 1) * RECORD_BYTES]
        return writer.write_table({"blocks": np.array(row * blocks, np.int64)})


def built_queues(tasks: Sequence[BuildQueuesTask], queues: int) -> list[BuiltQueues]:
    """What the tasks of queues say: all queues, dealt out to bundles, and parts of hot ones."""
    bundles = max(sum(task.part is None for task in tasks), 1)
    built = []
    for number, task in enumerate(tasks):
        counts = msgspec.to_builtins(QueueSummary(units=1, files=1, bytes=6_000_000))
        if task.part is not None:
            rows = [[CONSUME_QUEUE, task.part.topic.decode(), task.part.queue_id, counts]]
        else:
            names = (f"TopicWithANameOfSomeLength{n:06d}" for n in range(number, queues, bundles))
            rows = [[CONSUME_QUEUE, name, 3, dict(counts)] for name in names]
        part = {"is_part": task.part is not None, "left_out": {}, "unknown": []}
        attempt = {"attempt": f"{task.name}.0123456789ab", "files": {}, "began": time.time(), "seconds": 1.5}
        built.append({"bundle": task.bundle, "units": 1, "queues": rows, **part, **attempt})
    return cast("list[BuiltQueues]", fresh(built))


def plan(root: Path, segments: int, queues: int) -> dict[str, Any]:
    """Plan the rebuild of a store of so many segments; the sizes of what there was."""
    began, sent = time.monotonic(), Sent()
    store = root / "store"
    (store / "config").mkdir(parents=True)
    (store / "commitlog").mkdir()
    (store / "commitlog" / f"{0:020d}").write_bytes(b"")
    topics = {f"TopicWithANameOfSomeLength{n:06d}": {"topicName": "T", "readQueueNums": 4} for n in range(queues)}
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    source = StoreSource(
        layout=recognise_store(store),
        segments=tuple(
            SegmentPlace(number * GIB, GIB, f"{store}/commitlog/{number * GIB:020d}") for number in range(segments)
        ),
        index_files=(),
        checkpoint=None,
        has_crashed=False,
        is_live=False,
        problems=(),
    )
    work = WorkDirectory.open(root / "work", {"made": "up"})
    request = RebuildRequest(store=str(store), out=str(root / "out"), index=True, queues=True)
    bundles = bundle_count(source.size)
    options = ScanOptions(entries_from=0, checksums_from=0, tags=True, bundles=bundles)
    names = [f"{store}/index/{number:017d}" for number in range(segments // 6)]
    sent.send("probe", [ProbeTask(source.segments, index_file=name, slots=DEFAULT_SLOTS) for name in names])
    sent.send("scan", scan_tasks(work.root, source, options))
    scans = summaries(work, source, bundles)
    log_end = find_log_end(scans, None)
    job = Rebuild(request, source, work, cast("Any", None), MadeUp(work, sent))
    job._zone = None
    rebuilt = Rebuilt(
        scans, log_end, IndexShapeWanted(DEFAULT_SLOTS, DEFAULT_ENTRIES, tags=True), KeptIndex((), None, None, ())
    )
    index_tasks = job._index_tasks(rebuilt)
    queue_tasks = job._queue_tasks(rebuilt)
    assert rebuilt.queue_plan is not None
    sent.send("index", index_tasks)
    sent.send("queues", queue_tasks)
    built = join_parts(built_queues(queue_tasks, queues))
    log = log_extent(0, log_end.end, log_end.damages)
    details = queue_details(
        rebuilt.queue_plan, built, carry_queues(rebuilt.queue_plan, work, built, log, in_place=False)
    )
    return {
        "segments": segments,
        "queues": details.queues,
        "bundles": bundles,
        "parts": sum(task.part is not None for task in queue_tasks),
        "index_files": len(index_tasks),
        "placed": sum(task.placed.entries for task in index_tasks),
        "entries": sum(scan["entry_table"][3] for scan in scans),
        "tasks": sent.tasks,
        "task_bytes": sent.bytes,
        "seconds": round(time.monotonic() - began, 2),
        "peak_bytes": peak_bytes(),
    }


def peak_bytes() -> int:
    """The most memory that this process has had; getrusage would count what started it, too."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.M)[0]) * 1024


@click.command()
@click.option("--segments", default=10_000, show_default=True, help="Segments of 1 GiB.")
@click.option("--queues", default=20_000, show_default=True)
def main(segments: int, queues: int) -> None:
    """Plan a rebuild without a store, and print what the driver needed."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("ROCKETLENS_BENCH_DIR")) as directory:
        print(json.dumps(plan(Path(directory), segments, queues)))


if __name__ == "__main__":
    main()
