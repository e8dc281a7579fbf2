"""Print what is wrong with a store, for people or for programs."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from protocol.printable import as_text, one_line
from rocketlens.cli.coverage_picture import draw_coverage
from rocketlens.cli.time_options import chosen_zone
from storage.amounts import count_text, counted
from storage.doctor.examine import CLOSED, Diagnosis, Examination, is_clean
from storage.doctor.finding import Finding, FindingGroup, grouped, with_command
from storage.times import format_local, zone_name

if TYPE_CHECKING:  # only where everything is read
    from spark_jobs.doctor.deep_request import DeepDetails
    from spark_jobs.run.report import Report

WITH_FINDINGS: Final = 4
WIDTH_WITHOUT_TERMINAL: Final = 100
INDENT: Final = " " * 8
SECONDS_LENGTH: Final = len("2026-11-21 06:45:05")
NAMED_OF_A_KIND: Final = 3
"""Places of a kind that a person sees; a program gets more."""
STYLES: Final[dict[str, dict[str, Any]]] = {
    "error": {"fg": "red", "bold": True},
    "warning": {"fg": "yellow"},
    "info": {"dim": True},
}
STATES: Final = {
    "live": "a broker runs on it",
    "crashed": "its broker crashed, or it was copied while the broker ran",
    "stopped": "stopped cleanly",
}


class Shown:
    """The diagnosis of a store as it is printed: for people what is known so far, for programs one object at the end.

    `diagnosis` is None for a store behind a URL, which is read only.
    """

    def __init__(self, store: str, diagnosis: Diagnosis | None, *, as_json: bool) -> None:
        """Nothing is printed yet."""
        self._store, self._diagnosis, self._as_json = store, diagnosis, as_json
        self._findings: tuple[Finding, ...] = () if diagnosis is None else diagnosis.findings
        self._report: Report[DeepDetails] | None = None
        self._has_begun = self._is_deep = False

    def begin(self) -> None:
        """Say what is known before everything is read: whatever ends the reading, this has been said."""
        self._is_deep = True
        self._print_quick()

    def join(self, report: "Report[DeepDetails]", examination: Examination | None) -> None:
        """Everything was read: put together what is known, as the `examination` of a directory does, and say what is
        new.
        """
        from rocketlens.cli.show_report import report_lines

        self._report = report
        before = {finding.identity for finding in self._findings}
        read = report.details.findings
        if examination is not None:
            self._findings = examination.joined(read)
        else:
            self._findings = tuple(with_command(each, self._command) for each in read)
        if not self._as_json:
            _print_findings(each for each in self._findings if each.identity not in before)
            for line in report_lines(report):
                click.echo(line)

    def end(self, ended_by: int | str | None = None) -> int:
        """Say all that has not been said yet; returns the exit code. `ended_by`: that of what ended the reading."""
        code = 0 if is_clean(self._findings) else WITH_FINDINGS
        if self._as_json:
            self._print_json(code if ended_by is None else ended_by)
        else:
            self._print_quick()
            if ended_by is None or self._findings:
                rest = "" if ended_by is None else "; not everything was read"
                click.echo(_summary(self._findings) + rest)
        sys.stdout.flush()
        return code

    def _command(self, name: str) -> str:
        """A command line for a store behind a URL, of which nothing is replaced."""
        return f"{shlex.join(['rocketlens', *name.split(), self._store])} --out DIR"

    def _print_quick(self) -> None:
        if not (self._has_begun or self._as_json) and self._diagnosis is not None:
            _print_examined(self._diagnosis)
            sys.stdout.flush()
        self._has_begun = True

    def _print_json(self, code: int | str) -> None:
        import msgspec

        fields: dict[str, Any] = {"store": self._store}
        if self._diagnosis is not None:
            fields = msgspec.to_builtins(self._diagnosis)
        fields |= {"findings": msgspec.to_builtins(self._findings), "is_clean": code == 0}
        fields["exit_code"] = code
        if self._is_deep:
            fields["verify"] = None if self._report is None else _numbers_as_json(self._report)
        sys.stdout.buffer.write(msgspec.json.encode(_in_camel_case(fields)) + b"\n")


def _numbers_as_json(report: "Report[DeepDetails]") -> dict[str, Any]:
    """The report of a reading without its findings, which stand among all others."""
    import msgspec

    fields: dict[str, Any] = msgspec.to_builtins(report)
    del fields["details"]["findings"]
    return fields | {"exitCode": report.exit_code}


def _in_camel_case(value: Any) -> Any:
    """The names of all fields as RocketMQ spells names, and texts as JSON can hold them."""
    if isinstance(value, dict):
        return {re.sub("_([a-z])", lambda m: m[1].upper(), name): _in_camel_case(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_in_camel_case(each) for each in value]
    return as_text(value) if isinstance(value, str) else value


def _print_examined(diagnosis: Diagnosis) -> None:
    """Print what a look at a store has shown."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL
    click.echo(one_line(_head(diagnosis)))
    for line in draw_coverage(diagnosis.coverage, width, _time_text):
        click.echo(line)
    _print_findings(diagnosis.findings)


def _print_findings(findings: Iterable[Finding]) -> None:
    for group in grouped(findings):
        _print_group(group)


def _time_text(timestamp: int) -> str:
    """A time to the second in the command's zone, which the first line names."""
    return format_local(timestamp, chosen_zone(), "seconds")[:SECONDS_LENGTH]


def _head(diagnosis: Diagnosis) -> str:
    if diagnosis.state == CLOSED:
        return f"{diagnosis.store}: not all of it can be opened, so nothing else of it was looked at"
    files = f"{counted(diagnosis.segments, 'segment')}, {counted(len(diagnosis.index_files), 'index file')}"
    log = f"physical offsets {diagnosis.minimum} to {diagnosis.end}"
    state = f"{diagnosis.store}: {STATES[diagnosis.state]}; {files}, {log}"
    return f"{state}; examined in {diagnosis.seconds:.1f} s; times: {zone_name(chosen_zone())}"


def _print_group(group: FindingGroup) -> None:
    """Print severity and place on a line, and below it what is there, what that means, and how to fix it.

    Of many places that are alike the first few are named, in one block.
    """
    first = group.findings[0]
    style = {} if os.environ.get("NO_COLOR") else STYLES[first.severity]
    severity = click.style(f"{first.severity:<8}", **style)
    where = first.where if group.count == 1 else f"in {count_text(group.count)} places"
    click.echo(severity + one_line(f"{first.check}: {where}"))
    if group.count == 1:
        click.echo(INDENT + one_line(first.what))
    else:
        for finding in group.findings[:NAMED_OF_A_KIND]:
            click.echo(INDENT + one_line(f"{finding.where}: {finding.what}"))
        left = group.count - NAMED_OF_A_KIND
        if left > 0:
            click.echo(f"{INDENT}and {count_text(left)} more like these; --json names {len(group.findings)}")
    for label, text in (("means: ", first.meaning), ("fix: ", first.remedy)):
        if text:
            click.echo(INDENT + one_line(label + text))


def _summary(findings: Sequence[Finding]) -> str:
    levels = ("error", "warning", "info")
    errors, warnings, notes = (sum(each.more or 1 for each in findings if each.severity == level) for level in levels)
    if is_clean(findings):
        return "nothing is wrong" + (f"; {counted(notes, 'note')}" if notes else "")
    return ", ".join((counted(errors, "error"), counted(warnings, "warning"), counted(notes, "note")))
