"""Print the report of a job, for people or for programs."""

import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from protocol.printable import as_text, one_line
from spark_jobs.build.place_queues import OTHER_TOPICS, WITHOUT_RECORDS, QueueDetails
from spark_jobs.commands.job_plan import JobPlan, plan_lines
from spark_jobs.commands.store_report import IndexDetails, StoreDetails
from spark_jobs.compact.index_cost import IndexCost
from spark_jobs.convert.new_log import ConvertDetails, MendDetails
from spark_jobs.export.export_request import ExportDetails
from spark_jobs.places.file_systems import has_scheme
from spark_jobs.places.place_names import MANIFEST
from spark_jobs.run.report import AnyReport
from spark_jobs.tables.table_request import TableDetails
from storage.amounts import bytes_text, count_text, counted, duration_text, rate_text
from storage.build.queue_plan import DEFAULT_FILE_SIZES
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, COMMIT_LOG, CONSUME_QUEUE, CONSUME_QUEUE_EXT

MOST_REPORTED: Final = 20
"""Places of damage, and findings, that a person sees; a program gets all that are listed."""

FILE_SIZES: Final = {
    CONSUME_QUEUE: "mappedFileSizeConsumeQueue",
    BATCH_CONSUME_QUEUE: "mapperFileSizeBatchConsumeQueue",
    CONSUME_QUEUE_EXT: "mappedFileSizeConsumeQueueExt",
}
"""The property by which a broker has the size of the files of each tree of queues."""

BROKERS_SIZES: Final = {
    "mappedFileSizeCommitLog": 1 << 30,
    **{FILE_SIZES[tree]: size for tree, size in DEFAULT_FILE_SIZES.items()},
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
}
"""What a broker has without a line about it in its configuration."""

_VERBS: Final = {
    "rebuild": "rebuilt",
    "compact": "compacted",
    "convert": "converted",
    "rescue": "rescued",
    "fetch": "fetched",
    "verify": "read",
    "export": "exported",
}


def print_report(report: AnyReport, *, as_json: bool) -> None:
    """Write a report to stdout."""
    if as_json:
        print_json(report_json(report))
        return
    for line in report_lines(report):
        click.echo(line)


def print_plan(plan: JobPlan, *, as_json: bool) -> None:
    """Write the plan of a job to stdout, as lines or as one object."""
    if as_json:
        print_json(msgspec.json.encode(as_texts(msgspec.to_builtins(plan))))
        return
    for line in plan_lines(plan):
        click.echo(one_line(line))


def print_json(data: bytes) -> None:
    """Write JSON to stdout, as a line."""
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


def report_json(report: AnyReport) -> bytes:
    """One object; names are in camel case, times in seconds."""
    return msgspec.json.encode(as_texts(msgspec.to_builtins(report) | {"exitCode": report.exit_code}))


def as_texts(value: Any) -> Any:
    """A value whose names of files and topics are changed, where they are no UTF-8, so that JSON can hold them."""
    if isinstance(value, dict):
        return {as_texts(name): as_texts(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_texts(each) for each in value]
    return as_text(value) if isinstance(value, str) else value


def report_lines(report: AnyReport) -> Iterator[str]:
    """Line by line, for a terminal."""
    return map(one_line, _lines(report))


def _lines(report: AnyReport) -> Iterator[str]:
    details = report.details
    yield _head(report)
    if isinstance(details, ExportDetails):
        yield f"{counted(details.parts, 'file')} of {details.format}, {bytes_text(details.part_bytes)}, and {MANIFEST}"
    elif isinstance(details, TableDetails):
        yield from _table(details)
    elif isinstance(details, StoreDetails):
        yield from _converted(details.converted)
        yield from _mended(details.mended)
        yield from _index(details.index)
        yield from _queues(details.queues)
    yield from _damages(report)
    yield from (f"note: {note}" for note in report.notes)
    if isinstance(details, StoreDetails):
        yield from (f"backup: {path}" for path in details.backups or ())
        yield from _ways_on(report, details)
        yield from _ways_back(report, details)


def _ways_on(report: AnyReport, details: StoreDetails) -> Iterator[str]:
    """How a broker starts on a store that was rescued."""
    if report.command != "rescue" or not details.published:
        return
    old, new = Path(report.store).absolute(), Path(report.out).absolute()
    yield (
        f"to start a broker: in its configuration storePathRootDir={new} and storePathCommitLog={new / COMMIT_LOG}; or "
        f"{shlex.join(['test', '-d', str(new)])} && {shlex.join(['mv', '-T', str(old), f'{old}.damaged'])} && "
        f"{shlex.join(['mv', '-T', str(new), str(old)])}"
    )
    sizes: dict[str, int] = {}
    if (log := details.mended or details.converted) is not None:
        sizes["mappedFileSizeCommitLog"] = log.segment_size
    if details.queues is not None:
        sizes |= {FILE_SIZES[tree]: size for tree, size in details.queues.file_sizes.items()}
    if details.index is not None:
        sizes |= {"maxHashSlotNum": details.index.slots, "maxIndexNum": details.index.entries}
    other = [f"{name}={value}" for name, value in sizes.items() if value not in (0, BROKERS_SIZES[name])]
    if other:
        yield f"to start a broker: it needs, as before, {' '.join(other)}"


def _ways_back(report: AnyReport, details: StoreDetails) -> Iterator[str]:
    """The lines to undo what was done, and to delete what is not needed any more, as a shell takes them."""
    published = details.published or []
    kept = {Path(path).name.partition(".")[0]: path for path in details.backups or ()}
    if not kept:  # with --drop-backup there is no way back
        is_beside = report.out != report.store and report.command != "fetch" and not has_scheme(report.out)
        if is_beside and published:
            is_whole = details.converted is not None or details.mended is not None
            made = [report.out] if is_whole else [f"{report.out}/{name}" for name in published]
            yield f"to undo: rm -r {shlex.join(made)}"
        return
    steps: list[str] = []
    for name in published:
        place = f"{report.out}/{name}"
        steps.append(shlex.join(["mv", place, f"{place}.rebuilt"]))
        if name in kept:
            steps.append(shlex.join(["mv", kept[name], place]))
    if not steps:
        return
    yield f"to undo, while no broker runs: {' && '.join(steps)}"
    yield f"to clean up, once all is well: rm -r {shlex.join(kept.values())}"


def _head(report: AnyReport) -> str:
    amounts = [f"{bytes_text(report.bytes)} of log", counted(report.messages, "message")]
    amounts += [counted(report.entries, "index entry")] if report.entries else []
    amounts += [counted(report.units, "queue unit")] if report.units else []
    head = f"{_VERBS.get(report.command, report.command)} {report.store}"
    head += f" into {report.out}" if report.out not in ("", report.store) else ""
    head += f" in {duration_text(report.seconds)}: {', '.join(amounts)}"
    if report.steady_seconds > 0 and not report.resumed:
        rates = [rate_text(report.bytes / report.steady_seconds, "bytes")]
        rates += [rate_text(report.entries / report.steady_seconds, "entries")] if report.entries else []
        head += f" ({', '.join(rates)})"
    return head + ("; continued from an earlier run" if report.resumed else "")


def _table(details: TableDetails) -> Iterator[str]:
    if details.is_empty:
        yield f"nothing new behind physical offset {details.start}: nothing was committed"
    else:
        yield (
            f"{counted(details.files, 'file')} of {details.format}, {bytes_text(details.file_bytes)}, of physical "
            f"offsets {details.start} to {details.stop}, written by {details.engine}"
        )
    if details.removed_files:
        yield f"{counted(details.removed_files, 'older file')} dropped or put together"
    for damage in details.behind[:MOST_REPORTED]:
        yield f"damage where the log ends, not read yet: {damage.sentence()}"


def _converted(details: ConvertDetails | None) -> Iterator[str]:
    if details is None:
        return
    yield (
        f"log: {counted(details.segments, 'segment')} of {bytes_text(details.segment_size)}, "
        f"{bytes_text(details.bytes)} of records"
    )
    if details.half_messages or details.timers or details.lost:
        lost = f", {count_text(details.lost)} lead to messages that the log has no more" if details.lost else ""
        yield (
            f"moved: {counted(details.half_messages, 'commit')} with a half message in another segment, "
            f"{counted(details.timers, 'timer')}{lost}"
        )
    yield from details.losses.sentences()


def _mended(details: MendDetails | None) -> Iterator[str]:
    if details is None:
        return
    linked = f", {count_text(details.linked)} of them links" if details.linked else ""
    yield (
        f"log: {counted(details.segments, 'segment')} of {bytes_text(details.segment_size)}{linked}; fillers in "
        f"{counted(details.filled_places, 'place')}, {bytes_text(details.filled_bytes)}, which no consumer gets"
    )
    yield from details.fillings.sentences()
    yield from details.losses.sentences()


def _index(details: IndexDetails | None) -> Iterator[str]:
    if details is None:
        return
    yield (
        f"index: {counted(len(details.built), 'file')} built, {len(details.kept or ())} kept; "
        f"{counted(details.slots, 'slot')} and {counted(details.entries, 'entry')} in each file, "
        f"profile {details.profile}"
    )
    yield from (f"index: {reason}" for reason in details.reasons or ())
    if details.before is not None and details.after is not None:
        yield f"before: {_cost(details.before)}"
        yield f"after: {_cost(details.after)}"


def _cost(cost: IndexCost) -> str:
    return (
        f"{counted(cost.files, 'index file')}, {counted(cost.entries, 'entry')}, {bytes_text(cost.bytes)}; "
        f"a look-up of a key reads {cost.pages:,.1f} pages"
    )


def _queues(details: QueueDetails | None) -> Iterator[str]:
    if details is None:
        return
    parts = [f"{count_text(details.queues)} built"]
    parts += [f"{count_text(details.batch_queues)} of them with batches"] if details.batch_queues else []
    parts += [
        f"{count_text(count)} {text}"
        for name, text in ((OTHER_TOPICS, "of other topics kept"), (WITHOUT_RECORDS, "without messages kept"))
        if (count := details.carried_over.get(name, 0))
    ]
    yield f"queues: {', '.join(parts)}"


def _damages(report: AnyReport) -> Iterable[str]:
    count = len(report.damages) + report.more_damages
    if not count:
        return
    passed = sum(damage.length for damage in report.damages)
    yield f"damage: {counted(count, 'place')}, {bytes_text(passed)} skipped"
    for damage in report.damages[:MOST_REPORTED]:
        yield f"damage: {damage.sentence()}"
    if count > MOST_REPORTED:
        listed = "" if report.more_damages else "; --json lists all"
        yield f"damage: and {count_text(count - MOST_REPORTED)} more{listed}"
