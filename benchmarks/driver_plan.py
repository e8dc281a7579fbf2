"""The memory of the driver that plans the rebuild or compaction of a large store, and the bytes of the tasks it sends.

    python -m benchmarks.driver_plan --segments 10000 --queues 20000
    python -m benchmarks.driver_plan --segments 10000 --job compact

Nothing is read or built: the summaries of the tasks that make blocks are made up, with the numbers of entries, units
and blocks that a segment of messages of 1 KB has, and so is what the build tasks answer. Everything between is what a
job does in the driver's Python. (Spark's JVM holds the same tasks once more.) The compaction is one of the worst kind:
the clock stepped back in every other segment, and records of every segment are left out. Prints one line of JSON.
"""

import json
import os
import pickle
import re
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
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
from spark_jobs.build.split_queues import SegmentExtent, SurveyTask
from spark_jobs.compact import _merge_entries as merging
from spark_jobs.compact import _order_entries as ordering
from spark_jobs.compact import _split_index_file as splitting
from spark_jobs.compact._complete_index import find_holes, joint_tasks
from spark_jobs.compact._log_cells import CELL_BYTES
from spark_jobs.compact._merge_entries import MergeTask
from spark_jobs.compact._order_entries import OrderTask
from spark_jobs.compact._split_index_file import SplitTask
from spark_jobs.compact._timed_block import write_timed_table
from spark_jobs.compact.compact import Compact, Compacted
from spark_jobs.compact.compact_request import CompactRequest
from spark_jobs.run.attempt import block_file
from spark_jobs.run.blocks import BlockWriter
from spark_jobs.run.progress import Silence
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.log_end import find_log_end
from spark_jobs.scan.probe_store import IndexFileFacts, ProbeTask, SegmentPlace
from spark_jobs.scan.scan_log import Probed, ScanOptions, scan_tasks
from spark_jobs.scan.scan_segment import ENTRIES, HOT_SHARE, ScanSummary
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


JOBS: Final = ("rebuild", "compact")
BLOCKS_OF_A_MERGE: Final = GIB // CELL_BYTES


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

    def survey(self, tasks: Sequence[SurveyTask]) -> list[list[list[SegmentExtent] | None]]:
        """Every queue is in order, and has as many units in each segment."""
        self._sent.send(SURVEY, tasks)
        each = GIB // RECORD_BYTES // HOT_QUEUES
        return cast(
            "list[list[list[SegmentExtent] | None]]",
            fresh([
                [[SegmentExtent(n, n * each, (n + 1) * each) for n in range(task.units.start, task.units.stop)]]
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
        return writer.write_list([row] * blocks)


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


def plan(root: Path, segments: int, queues: int, job: str) -> dict[str, Any]:
    """Plan a job on a store of so many segments; the sizes of what there was."""
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
    is_rebuild = job == "rebuild"
    planned = (
        plan_rebuild(source, work, root, queues, sent) if is_rebuild else plan_compaction(source, work, root, sent)
    )
    return {
        "segments": segments,
        **planned,
        "tasks": sent.tasks,
        "task_bytes": sent.bytes,
        "seconds": round(time.monotonic() - began, 2),
        "peak_bytes": peak_bytes(),
    }


def plan_rebuild(source: StoreSource, work: WorkDirectory, root: Path, queues: int, sent: Sent) -> dict[str, Any]:
    """Plan the rebuild of index and queues."""
    store, segments = source.layout.root, len(source.segments)
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
        scans,
        log_end,
        IndexShapeWanted(DEFAULT_SLOTS, DEFAULT_ENTRIES, tags=True),
        KeptIndex((), None, None, ()),
        options,
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
        "queues": details.queues,
        "bundles": bundles,
        "parts": sum(task.part is not None for task in queue_tasks),
        "index_files": len(index_tasks),
        "placed": sum(task.placed.entries for task in index_tasks),
        "entries": sum(scan["entry_table"][3] for scan in scans),
    }


class MadeUpSteps(FileExchange):
    """An exchange by files, the steps of which leave tables that are made up: all of them are one file."""

    def __init__(self, work: WorkDirectory, sent: Sent) -> None:
        super().__init__(cast("Any", None), work, Silence())
        self._sent, self._work = sent, work
        self._entries = GIB // RECORD_BYTES * ENTRIES_OF_A_RECORD
        with BlockWriter(work.blocks / "table", "made up") as writer:
            each = self._entries // BLOCKS_OF_A_MERGE
            columns = {
                "offsets": np.arange(each // ENTRIES_OF_A_RECORD, dtype=np.uint32) * RECORD_BYTES,
                "timestamps": np.full(each // ENTRIES_OF_A_RECORD, LATE, np.int64),
                "counts": np.full(each // ENTRIES_OF_A_RECORD, ENTRIES_OF_A_RECORD, np.uint16),
                "hashes": np.zeros(each, np.int32),
            }
            writer.write(0, CELL_BYTES, columns)
            blocks = [
                [0, number * CELL_BYTES, (number + 1) * CELL_BYTES, each, (number + 1) * CELL_BYTES - 1, LATE, LATE]
                for number in range(2 * BLOCKS_OF_A_MERGE)
            ]
            self._facts = write_timed_table(writer, blocks[:BLOCKS_OF_A_MERGE])
            self._ordered_facts = write_timed_table(writer, blocks)

    def make(self, step: Any, tasks: Sequence[Any], amount: int) -> list[Any]:
        """What tasks of each step say."""
        self._sent.send(step.phase, tasks)
        made = {splitting.PHASE: self._split, merging.PHASE: self._merged, ordering.PHASE: self._ordered}[step.phase]
        return cast("list[Any]", fresh([made(number, task, len(tasks)) for number, task in enumerate(tasks)]))

    def build(self, tasks: Sequence[Any], amount: int) -> list[Any]:
        """What tasks of index files say."""
        self._sent.send("index", tasks)
        header = [LATE, LATE, 0, GIB, DEFAULT_SLOTS, DEFAULT_ENTRIES]
        each = {"header": header, "size": 1 << 29, "used": 1 << 29, "complete": True, "checksum": 1, "first": 40}
        return cast(
            "list[Any]",
            fresh([
                {**each, **_attempt(task.name), "name": Path(task.path).name, "entries": task.placed.entries}
                for task in tasks
            ]),
        )  # fmt: skip

    def _split(self, number: int, task: SplitTask, count: int) -> Any:
        """A file has entries of one segment after the other, and of all that hold entries of a compacted file."""
        segments = len(task.segments)
        bits = np.zeros(segments, np.bool_)
        bits[max(number * segments // count - 1, 0) : (number + 1) * segments // count + 1] = True
        return {
            **_attempt(task.name),
            "header": [LATE, LATE, 0, GIB, DEFAULT_SLOTS, DEFAULT_ENTRIES],
            "end_is_known": True,
            "entries": task.entries,
            "below": 0,
            "beyond": 0,
            "nowhere": 0,
            "cell_table": 0,
            "segments": np.packbits(bits).tobytes(),
        }

    def _merged(self, number: int, task: MergeTask, _: int) -> Any:
        position, first, end, entries, last, *_ = self._facts
        times = [LATE + 1000 * (number - number % 2), LATE + 1000 * number + 900]
        base = task.base_offset
        return {
            **self._left(task.name),
            "entry_table": [position, base + first, base + end, entries, base + last, *times, True],
            "entries": entries,
            "largest": base + last,
            "lost": [],
            "left_out": [base, base + GIB],
            "bytes_read": GIB,
            "duplicates": 0,
            "no_record": 0,
            "of_topics": 0,
            "of_tags": 0,
        }

    def _ordered(self, _: int, task: OrderTask, __: int) -> Any:
        left = self._left(task.name)
        facts = [
            self._ordered_facts[0],
            task.tables[0].first,
            task.tables[-1].end,
            task.entries,
            task.tables[-1].last_record,
        ]
        times = [task.tables[0].first_timestamp, task.tables[-1].last_timestamp]
        return {**left, "file": f"{left['attempt']}.{ENTRIES}", "entry_table": [*facts, *times, True]}

    def _left(self, name: str) -> dict[str, Any]:
        """The record of an attempt that has left the file."""
        record = _attempt(name)
        os.link(self._work.blocks / "table", block_file(self._work, cast("Any", record), ENTRIES))
        return record


def _attempt(name: str) -> dict[str, Any]:
    return {"attempt": f"{name}.0123456789ab", "files": {ENTRIES: 1 << 26}, "began": time.time(), "seconds": 1.5}


class PlannedCompact(Compact):
    """A compaction that does not look at the joints of index files."""

    def __init__(self, sent: Sent, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._sent = sent

    def _look_for_holes(self, probed: Probed, compacted: Compacted) -> None:
        checks = probed.index_files
        tasks = joint_tasks(self._source.layout.index, self._source.segments, checks, tags=True)
        self._sent.send("joints", tasks)
        compacted.holes = find_holes(checks, [(task, True) for task in tasks])


def plan_compaction(source: StoreSource, work: WorkDirectory, root: Path, sent: Sent) -> dict[str, Any]:
    """Plan the compaction of index files that lie one behind the other."""
    request = CompactRequest(store=str(source.layout.root), out=str(root / "out"), topics=("Old",))
    entries = len(source.segments) * (GIB // RECORD_BYTES) * ENTRIES_OF_A_RECORD
    count = -(-entries // (DEFAULT_ENTRIES - 1))
    ends = [source.end * number // count for number in range(count + 1)]
    facts = [
        cast(
            "IndexFileFacts",
            {
                "name": f"{20_240_101_000_000_000 + number:017d}",
                "problem": "",
                "slots": DEFAULT_SLOTS,
                "entries": DEFAULT_ENTRIES - 1,
                "capacity": DEFAULT_ENTRIES,
                "header": [LATE, LATE, first, last, DEFAULT_SLOTS, DEFAULT_ENTRIES],
                "range": [first, last],
                "compacted": 0,
                "has_tags": True,
                "parts": [[first, last - RECORD_BYTES]],
                "tags": True,
            },
        )
        for number, (first, last) in enumerate(pairwise(ends))
    ]
    probed = Probed((None, None), tuple(fresh(facts)), 0, source.segments[-1].base_offset)
    exchange = MadeUpSteps(work, sent)
    job = PlannedCompact(sent, request, source, work, None, exchange)
    compacted = Compacted(IndexShapeWanted(DEFAULT_SLOTS, DEFAULT_ENTRIES, tags=True))
    job.compact(probed, compacted)
    return {
        "index_files": len(compacted.index_files),
        "left_out": len(compacted.left_out),
        "placed": sum(file["entries"] for file in compacted.index_files),
        "entries": len(source.segments) * exchange._facts[3],
    }


def peak_bytes() -> int:
    """The most memory that this process has had; getrusage would count what started it, too."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.M)[0]) * 1024


@click.command()
@click.option("--segments", default=10_000, show_default=True, help="Segments of 1 GiB.")
@click.option("--queues", default=20_000, show_default=True)
@click.option("--job", type=click.Choice(JOBS), default=JOBS[0], show_default=True)
def main(segments: int, queues: int, job: str) -> None:
    """Plan a job without a store, and print what the driver needed."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("ROCKETLENS_BENCH_DIR")) as directory:
        print(json.dumps(plan(Path(directory), segments, queues, job)))


if __name__ == "__main__":
    main()
