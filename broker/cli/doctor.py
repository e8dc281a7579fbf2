"""`rocketlens doctor`: what is wrong with a store, where, what it means, and how to fix it."""

import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from broker.cli.errors import FOUND, plain_errors
from broker.cli.options import DIRECTORY, directories
from broker.cli.output import has_no_color
from protocol.errors import ConfigError
from protocol.printable import as_text, one_line
from spark_jobs.commands.time_options import chosen_zone, timezone_option
from storage.amounts import count_text, counted
from storage.times import format_local, zone_name

if TYPE_CHECKING:
    from spark_jobs.run.report import AnyReport
    from storage.doctor.examine import Diagnosis
    from storage.doctor.finding import Alike

WITH_FINDINGS = 4
WIDTH_WITHOUT_TERMINAL = 100
INDENT = " " * 8
SECONDS_LENGTH: Final = len("2026-11-21 06:45:05")
NAMED_OF_A_KIND: Final = 3
"""Places of a kind that a person sees; a program gets more."""
STYLES: Final[dict[str, dict[str, Any]]] = {
    "error": {"fg": "red", "bold": True},
    "warning": {"fg": "yellow"},
    "info": {"dim": True},
}
STATES = {
    "live": "a broker runs on it",
    "crashed": "its broker crashed, or it was copied while the broker ran",
    "stopped": "stopped cleanly",
}


@click.command()
@click.argument("store", type=DIRECTORY, metavar="STORE")
@click.option(
    "--deep", is_flag=True, help=("Also run `verify`, which reads everything; this takes minutes for a large store.")
)
@click.option("--json", "as_json", is_flag=True, help="Report as one JSON object.")
@click.option(
    "--commit-log",
    "commit_log_directories",
    type=directories,
    metavar="DIR,...",
    help="The commit log's directories, in the broker's order, if it is not in STORE/commitlog.",
)
@click.option("--index-slots", type=click.IntRange(1, 2**31 - 1), metavar="N", help="Slots of an index file.")
@click.option("--index-entries", type=click.IntRange(1, 2**31 - 1), metavar="N", help="Entries of an index file.")
@timezone_option
@plain_errors
def doctor(
    store: Path,
    deep: bool,
    as_json: bool,
    commit_log_directories: tuple[Path, ...] | None,
    index_slots: int | None,
    index_entries: int | None,
) -> None:
    """Say what is wrong with the store in STORE: where it is, what it means, and how to fix it.

    This takes seconds: it looks at files, ends and checkpoints, at every index file, and at samples of messages and
    queue units. A picture shows which parts of the log exist, are in queues, and are in the index. The store is only
    read, and a broker may be running on it.

    Exit code 0: nothing is wrong. 4: something is wrong. 3: STORE is not a store that can be read.
    """
    if (index_slots is None) != (index_entries is None):
        raise ConfigError("--index-slots and --index-entries: give both or neither")
    from storage.doctor.examine import examine

    vouched = None if index_slots is None or index_entries is None else (index_slots, index_entries)
    diagnosis = examine(store, commit_log_directories or (), vouched)
    report = _verify(store, commit_log_directories or (), as_json=as_json) if deep else None
    if as_json:
        _print_json(diagnosis, report)
    else:
        _print(diagnosis, report)
    sys.exit(_exit_code(diagnosis, report))


def _verify(store: Path, logs: tuple[Path, ...], *, as_json: bool) -> "AnyReport":
    """Run the bulk job that verifies all of the store."""
    from spark_jobs.commands.command_run import VERIFY_TASKS, run_job, verify

    options: dict[str, Any] = {"store": str(store), "commit_log_directories": tuple(map(str, logs))}
    return run_job(verify, as_json=as_json, goes_on=False, tasks=VERIFY_TASKS, **options)


def _exit_code(diagnosis: "Diagnosis", report: "AnyReport | None") -> int:
    wrong = not diagnosis.is_clean or (report is not None and report.exit_code)
    return WITH_FINDINGS if wrong else FOUND


def _print_json(diagnosis: "Diagnosis", report: "AnyReport | None") -> None:
    import msgspec

    fields = _in_camel_case(msgspec.to_builtins(diagnosis))
    fields |= {"isClean": diagnosis.is_clean, "exitCode": _exit_code(diagnosis, report)}
    if report is not None:
        fields["verify"] = msgspec.to_builtins(report) | {"exitCode": report.exit_code}
    sys.stdout.buffer.write(msgspec.json.encode(fields) + b"\n")
    sys.stdout.buffer.flush()


def _in_camel_case(value: Any) -> Any:
    """The names of all fields as RocketMQ spells names, and texts as JSON can hold them."""
    if isinstance(value, dict):
        return {re.sub("_([a-z])", lambda m: m[1].upper(), name): _in_camel_case(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_in_camel_case(each) for each in value]
    return as_text(value) if isinstance(value, str) else value


def _print(diagnosis: "Diagnosis", report: "AnyReport | None") -> None:
    """Print the diagnosis for people."""
    from broker.cli.coverage_picture import draw_coverage
    from storage.doctor.finding import grouped

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL
    click.echo(one_line(_head(diagnosis)))
    for line in draw_coverage(diagnosis.coverage, width, _time_text):
        click.echo(line)
    for alike in grouped(diagnosis.findings):
        _print_alike(alike)
    if report is not None:
        from spark_jobs.commands.show_report import report_lines

        for line in report_lines(report):
            click.echo(line)
    click.echo(_summary(diagnosis))


def _time_text(timestamp: int) -> str:
    """A time to the second in the command's zone, which the first line names."""
    return format_local(timestamp, chosen_zone(), "seconds")[:SECONDS_LENGTH]


def _head(diagnosis: "Diagnosis") -> str:
    files = f"{counted(diagnosis.segments, 'segment')}, {counted(len(diagnosis.index_files), 'index file')}"
    log = f"physical offsets {diagnosis.minimum} to {diagnosis.end}"
    state = f"{diagnosis.store}: {STATES[diagnosis.state]}; {files}, {log}"
    return f"{state}; examined in {diagnosis.seconds:.1f} s; times: {zone_name(chosen_zone())}"


def _print_alike(alike: "Alike") -> None:
    """Print severity and place on a line, and below it what is there, what that means, and how to fix it.

    Of many places that are alike the first few are named, in one block.
    """
    first = alike.findings[0]
    style = {} if has_no_color() else STYLES[first.severity]
    severity = click.style(f"{first.severity:<8}", **style)
    where = first.place if alike.count == 1 else f"in {count_text(alike.count)} places"
    click.echo(severity + one_line(f"{first.check}: {where}"))
    if alike.count == 1:
        click.echo(INDENT + one_line(first.found))
    else:
        for finding in alike.findings[:NAMED_OF_A_KIND]:
            click.echo(INDENT + one_line(f"{finding.place}: {finding.found}"))
        left = alike.count - NAMED_OF_A_KIND
        if left > 0:
            click.echo(f"{INDENT}and {count_text(left)} more like these; --json names {len(alike.findings)}")
    for label, text in (("means: ", first.meaning), ("fix: ", first.remedy)):
        if text:
            click.echo(INDENT + one_line(label + text))


def _summary(diagnosis: "Diagnosis") -> str:
    levels = ("error", "warning", "info")
    errors, warnings, notes = (
        sum(each.more or 1 for each in diagnosis.findings if each.severity == level) for level in levels
    )
    if diagnosis.is_clean:
        return "nothing is wrong" + (f"; {counted(notes, 'note')}" if notes else "")
    return ", ".join((counted(errors, "error"), counted(warnings, "warning"), counted(notes, "note")))
