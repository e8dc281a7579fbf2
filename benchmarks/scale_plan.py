"""What jobs take for a log of any size, computed: tasks, bytes between them, disk, memory, CPU time and money.

Tasks and bytes follow from how the jobs cut a log, and from the layouts of what they write; nothing of that is
measured. CPU time has a fixed part, for the start and the end, and one that grows with the log: the line through the
runs on the two smallest logs that were measured. Runs on larger logs only check it. How well Spark compresses what it
shuffles, and Parquet what is exported, is taken from the larger of these two runs.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import msgspec

from spark_jobs.build import split_queues
from spark_jobs.build.build_queues import bundle_count
from spark_jobs.scan.scan_segment import bundle_of
from storage.amounts import bytes_text, count_text
from storage.index.index_file import DEFAULT_ENTRIES, DEFAULT_SLOTS
from storage.queue.consume_queue import UNIT

GB: Final = 10**9
TB: Final = 10**12
GIB: Final = 1 << 30

REBUILD: Final = "rebuild"
SHUFFLE: Final = "rebuild, shuffle"
VERIFY: Final = "verify"
EXPORT: Final = "export"
SEARCH: Final = "search"
JOBS: Final = (REBUILD, SHUFFLE, VERIFY, EXPORT, SEARCH)

MESSAGE_BYTES: Final = 524
ENTRIES_OF_A_MESSAGE: Final = 4
"""Of the benchmarks' store: the mean length of a record, and its entries in the index."""

RECORD_FACTS: Final = 4 + 8 + 2
"""Bytes of a block of entries for a record: where it is in its segment, its time, and how many entries it has."""

HASH: Final = 4
"""Bytes of a block of entries for each of these."""

INDEX_HEADER: Final = 40
SLOT: Final = 4
ENTRY: Final = 20
"""Bytes of an index file (store-format §3.1)."""

HOURS_OF_A_MONTH: Final = 730


class Log(msgspec.Struct, frozen=True, dict=True):
    """A log of messages as the benchmarks' store has them, dealt out evenly to queues (topic, queue id).

    Sizes are those of a broker's files: bytes of a segment, entries and slots of an index file, units of a queue's.
    """

    messages: int
    queues: tuple[tuple[bytes, int], ...]
    message_bytes: float = MESSAGE_BYTES
    entries_of_a_message: int = ENTRIES_OF_A_MESSAGE
    segment_size: int = GIB
    index_entries: int = DEFAULT_ENTRIES
    index_slots: int = DEFAULT_SLOTS
    queue_file_units: int = 300_000

    @classmethod
    def of_bytes(cls, size: int, queues: int) -> "Log":
        """A log of a size, with queues of made-up topics."""
        return cls(round(size / MESSAGE_BYTES), tuple((b"Topic%06d" % (n // 4), n % 4) for n in range(queues)))

    @property
    def bytes(self) -> int:
        """Of its messages."""
        return round(self.messages * self.message_bytes)

    @property
    def segments(self) -> int:
        """How many there are."""
        return -(-self.messages // self.messages_of_a_segment)

    @property
    def messages_of_a_segment(self) -> int:
        """Those of a full one."""
        return int(self.segment_size // self.message_bytes)

    @property
    def entries(self) -> int:
        """Those of all messages in the index."""
        return self.messages * self.entries_of_a_message

    @property
    def index_files(self) -> int:
        """How many a broker has for them: the last place of each stays empty."""
        return -(-self.entries // (self.index_entries - 1))

    @cached_property
    def bundles(self) -> int:
        """Those to which the queues are dealt out: a task each, if it gets any."""
        return bundle_count(self.segments * self.segment_size)

    @cached_property
    def used_bundles(self) -> int:
        """Those that get any queue."""
        return len({bundle_of(*queue, self.bundles) for queue in self.queues})

    @cached_property
    def parts_of_a_queue(self) -> int:
        """In how many tasks each queue is built or checked, beside that of its bundle: 0 if it is not split."""
        share, units = max(self.messages // self.bundles, split_queues.LEAST_UNITS), self.messages // len(self.queues)
        step = max(share // self.queue_file_units, 1) * self.queue_file_units
        parts = -(-units // step)
        # A scan names queues of more than a 32nd of a segment's units.
        return parts if units >= 2 * share and parts > 1 and len(self.queues) < 32 else 0

    @property
    def queue_tasks(self) -> int:
        """Tasks for queues: bundles, and parts."""
        return self.used_bundles + self.parts_of_a_queue * len(self.queues)

    @property
    def survey_tasks(self) -> int:
        """Tasks that look whether queues can be split, where tasks read files: some segments for a bundle each."""
        if not self.parts_of_a_queue:
            return 0
        return self.used_bundles * -(-self.segments // split_queues.SEGMENTS_AT_ONCE)

    @property
    def block_bytes(self) -> int:
        """Bytes of the blocks that a scan leaves for later tasks, but for their heads."""
        return self.messages * (RECORD_FACTS + HASH * self.entries_of_a_message + UNIT.size)

    @property
    def index_bytes(self) -> int:
        """Bytes of the index files as far as they are used."""
        return self.index_files * (INDEX_HEADER + SLOT * self.index_slots) + self.entries * ENTRY

    @property
    def queue_bytes(self) -> int:
        """Bytes of the files of queues as far as they are used."""
        return self.messages * UNIT.size

    @property
    def whole_bytes(self) -> int:
        """Bytes of index and queues where files have no holes, as objects have none: all are of their full size."""
        index = self.index_files * (INDEX_HEADER + SLOT * self.index_slots + ENTRY * self.index_entries)
        files = -(-(self.messages // len(self.queues)) // self.queue_file_units)
        return index + files * self.queue_file_units * UNIT.size * len(self.queues)

    @property
    def largest_build(self) -> int:
        """Bytes that the task of an index file has on its executor's disk: blocks that have come, and the file."""
        entries = min(self.index_entries - 1, self.entries)
        blocks = entries // self.entries_of_a_message * RECORD_FACTS + entries * HASH
        return blocks + INDEX_HEADER + SLOT * self.index_slots + ENTRY * entries

    @property
    def largest_queue_build(self) -> int:
        """The same for the task of the bundle or part with the most units: the units that have come, and the files."""
        of_a_queue = -(-self.messages // len(self.queues))
        if self.parts_of_a_queue:
            return 2 * UNIT.size * -(-of_a_queue // self.parts_of_a_queue)
        most = max(Counter(bundle_of(*queue, self.bundles) for queue in self.queues).values())
        return 2 * UNIT.size * of_a_queue * most


def tasks_of(job: str, log: Log) -> dict[str, int]:
    """How many tasks Spark runs in each phase of a job, without those that fail and run again.

    A rebuild is one of a store that has neither index nor queues; what is verified has both, whole. What the shuffle
    asks about index files, `look`, goes to the segments in which files begin, and in which the ones before them end.
    """
    segments, files = log.segments, log.index_files
    if job == REBUILD:
        tasks = {"probe": 2, "scan": segments, "survey": log.survey_tasks, "build": files + log.queue_tasks}
    elif job == SHUFFLE:
        survey = segments if log.survey_tasks else 0
        sent = segments + files + log.queue_tasks
        tasks = {"probe": 2, "scan": segments, "look": _looks(log), "survey": survey, "build": sent}
    elif job == VERIFY:
        rest = len(log.queues) if log.parts_of_a_queue else 0
        check = files + log.queue_tasks
        tasks = {"probe": 1 + files, "scan": segments, "survey": log.survey_tasks, "check": check, "rest": rest}
    else:
        tasks = {job: segments}
    return {phase: count for phase, count in tasks.items() if count}


def _looks(log: Log) -> int:
    """Segments that are asked: where files begin; where the last entry is; where each file but the last ends."""
    room, of_a_segment = log.index_entries - 1, log.messages_of_a_segment * log.entries_of_a_message
    begin = {number * room // of_a_segment for number in range(log.index_files)}
    end = {(number * room - 1) // of_a_segment for number in range(1, log.index_files)}
    return len(begin) + 1 + len(end)


class Run(msgspec.Struct, frozen=True):
    """A job that was measured on the benchmarks' store.

    `sent` are the bytes that tasks have left for others, or that Spark has written for its shuffle; `disk` the most
    bytes that lay in the work directory, in Spark's and at the output together; `out` those of the output.
    `task_memory` is the most private memory of a Python worker, in bytes; `tasks` are counted by phase.
    """

    job: str
    messages: int
    log_bytes: int
    cpu_seconds: float
    sent: int
    disk: int
    out: int
    task_memory: int
    tasks: dict[str, int]


class DriverRun(msgspec.Struct, frozen=True):
    """The memory of a driver's Python that planned a rebuild of so many segments (benchmarks/driver_plan.py)."""

    segments: int
    peak_bytes: int


class Kept(msgspec.Struct, frozen=True):
    """What was measured: runs of jobs, and of drivers that plan."""

    runs: list[Run]
    drivers: list[DriverRun]


class Line(msgspec.Struct, frozen=True):
    """A fixed part, and one for each unit of size."""

    fixed: float
    slope: float

    @classmethod
    def through(cls, first: tuple[float, float], second: tuple[float, float]) -> "Line":
        """The line through two points (size, amount)."""
        slope = (second[1] - first[1]) / (second[0] - first[0])
        return cls(first[1] - slope * first[0], slope)

    def at(self, size: float) -> float:
        """The amount for a size."""
        return self.fixed + self.slope * size


class Constants(msgspec.Struct, frozen=True):
    """What of a job is measured: CPU seconds by GB (10^9 bytes) of log, and memory of a task.

    `sent_ratio` and `out_ratio` are bytes that Spark shuffles and that Parquet takes, for a byte of log.
    """

    cpu_seconds: Line
    task_memory: int
    sent_ratio: float
    out_ratio: float


class Foretold(msgspec.Struct, frozen=True):
    """What a job takes for a log, in the units of :class:`Run`."""

    tasks: int
    sent: int
    disk: int
    out: int
    cpu_seconds: float


def constants_of(runs: Sequence[Run]) -> Constants:
    """The constants of one job, from its runs on the two smallest logs; the memory is the most of all runs."""
    first, second, *_ = sorted(runs, key=lambda run: run.log_bytes)
    return Constants(
        Line.through((first.log_bytes / GB, first.cpu_seconds), (second.log_bytes / GB, second.cpu_seconds)),
        max(run.task_memory for run in runs),
        second.sent / second.log_bytes,
        second.out / second.log_bytes,
    )


def foretell(job: str, constants: Constants, log: Log, cores: int) -> Foretold:
    """What a job takes for a log, on as many cores at once."""
    sent = disk = 0
    if job == REBUILD:
        sent, out = log.block_bytes, log.index_bytes + log.queue_bytes
        disk = sent + out
    elif job == SHUFFLE:
        sent, out = round(constants.sent_ratio * log.bytes), log.whole_bytes
        # The executors keep the blocks, and what was written of them for the shuffle, until the last file is sent.
        at_once = sorted([log.largest_build] * log.index_files + [log.largest_queue_build] * log.queue_tasks)[-cores:]
        disk = log.block_bytes + sent + sum(at_once) + out
    elif job == VERIFY:
        sent, out = log.block_bytes, 0
        disk = sent
    else:
        out = round(constants.out_ratio * log.bytes)
        disk = out
    seconds = constants.cpu_seconds.at(log.bytes / GB)
    return Foretold(sum(tasks_of(job, log).values()), sent, disk, out, seconds)


class Prices(msgspec.Struct, frozen=True):
    """What is assumed of machines: cores, the part of their time that a job uses; money for an hour of one, a GB-month.

    The job pays for cores that wait, too; what it writes is paid for a month.
    """

    cores: int
    busy: float
    core_hour: float
    gb_month: float

    def hours(self, cpu_seconds: float) -> float:
        """How long the cores are taken."""
        return cpu_seconds / 3600 / self.busy / self.cores

    def of(self, foretold: Foretold) -> tuple[float, float]:
        """The money for cores and for the disk of a job, and that for a month of its output."""
        hours = self.hours(foretold.cpu_seconds)
        disk = foretold.disk / GB * self.gb_month * hours / HOURS_OF_A_MONTH
        return hours * self.cores * self.core_hour + disk, foretold.out / GB * self.gb_month


def check_table(runs: Sequence[Run], queues: tuple[tuple[bytes, int], ...], cores: int) -> str:
    """What was computed for each run, beside what was measured; and by how much that is more or less."""
    lines = [
        "| job | log | tasks | bytes between tasks | disk at most | output | CPU, s |",
        "|---|---|---|---|---|---|---|",
    ]
    for job in JOBS:
        of_job = sorted((run for run in runs if run.job == job), key=lambda run: run.log_bytes)
        constants = constants_of(of_job)
        for run in of_job:
            found = foretell(job, constants, Log(run.messages, queues, run.log_bytes / run.messages), cores)
            taken = run in of_job[:2]
            cells = [
                f"{found.tasks} / {sum(run.tasks.values())}",
                _beside(found.sent, run.sent),
                _beside(found.disk, run.disk),
                _beside(found.out, run.out),
                f"{run.cpu_seconds:.1f}, taken" if taken
                else f"{found.cpu_seconds:.1f} / {run.cpu_seconds:.1f} {_miss(found.cpu_seconds, run.cpu_seconds)}",
            ]  # fmt: skip
            lines.append(_row(job, bytes_text(run.log_bytes), *cells))
    return "\n".join(lines)


def _beside(computed: int, measured: int) -> str:
    if not computed:  # a directory without a file takes some kilobytes
        return "none"
    return f"{bytes_text(computed)} / {bytes_text(measured)} {_miss(computed, measured)}"


def _miss(computed: float, measured: float) -> str:
    return f"({100 * (computed - measured) / measured:+.0f} %)"


def size_table(runs: Sequence[Run], sizes: Sequence[int], queues: int, prices: Prices) -> str:
    """What each job takes for logs of so many TB."""
    lines = [
        f"| job | log | tasks | bytes between tasks | disk at most | output | CPU, h | hours on {prices.cores} cores | "
        f"memory of {prices.cores} tasks | money: the run | a month of the output |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for job in JOBS:
        constants = constants_of([run for run in runs if run.job == job])
        for size in sizes:
            found = foretell(job, constants, Log.of_bytes(size * TB, queues), prices.cores)
            run, month = prices.of(found)
            cells = [
                count_text(found.tasks),
                *(bytes_text(amount) if amount else "none" for amount in (found.sent, found.disk, found.out)),
                f"{found.cpu_seconds / 3600:.1f}",
                f"{prices.hours(found.cpu_seconds):.2f}",
                bytes_text(constants.task_memory * prices.cores),
                f"{run:.2f}",
                f"{month:.2f}" if found.out else "none",
            ]
            lines.append(_row(job, f"{size} TB", *cells))
    return "\n".join(lines)


def constant_table(runs: Sequence[Run]) -> str:
    """What was taken from the runs."""
    lines = [
        "| job | CPU, s: start and end | a GB of log | memory of a task at most | shuffled, bytes of a byte of log | "
        "output of an export |",
        "|---|---|---|---|---|---|",
    ]
    for job in JOBS:
        found = constants_of([run for run in runs if run.job == job])
        line = found.cpu_seconds
        ratios = (found.sent_ratio if job == SHUFFLE else None, found.out_ratio if job == EXPORT else None)
        lines.append(
            _row(
                job, f"{line.fixed:.1f}", f"{line.slope:.2f}", bytes_text(found.task_memory),
                *("" if ratio is None else f"{ratio:.3f}" for ratio in ratios),
            )
        )  # fmt: skip
    return "\n".join(lines)


def driver_table(drivers: Sequence[DriverRun], sizes: Sequence[int], queues: int) -> str:
    """The memory of a driver's Python that plans a rebuild: by the line through the two smallest plans; measured."""
    ordered = sorted(drivers, key=lambda run: run.segments)
    line = Line.through(*((float(run.segments), float(run.peak_bytes)) for run in ordered[:2]))
    lines = ["| log | segments | driver, computed | measured |", "|---|---|---|---|"]
    for size in sizes:
        segments = Log.of_bytes(size * TB, queues).segments
        measured = [run for run in ordered if run.segments == segments]
        of_run = bytes_text(measured[0].peak_bytes) if measured else "not run"
        if measured and measured[0] not in ordered[:2]:
            of_run += f" {_miss(line.at(segments), measured[0].peak_bytes)}"
        lines.append(_row(f"{size} TB", count_text(segments), bytes_text(round(line.at(segments))), of_run))
    return "\n".join(lines)


def merged(runs: Sequence[Run], new: Run) -> list[Run]:
    """The runs with one more in place of those of the same job and log."""
    kept = [run for run in runs if (run.job, run.messages) != (new.job, new.messages)]
    return sorted([*kept, new], key=lambda run: (JOBS.index(run.job), run.messages))


def phases(counts: Counter[str]) -> dict[str, int]:
    """Tasks by phase, in the order of their names, so that files of runs can be compared."""
    return dict(sorted(counts.items()))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
