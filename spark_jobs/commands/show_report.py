"""What a job did, for a person or for a program."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

import click
import msgspec

from protocol.printable import as_text, one_line
from spark_jobs.export.export_place import MANIFEST
from spark_jobs.run.report import Report
from spark_jobs.verify.findings import Finding
from storage.amounts import bytes_text, count_text, duration_text, rate_text

MOST_TOLD: Final = 20
"""Places of damage, and findings, that a person is told; a program is told all that are listed."""

_VERBS: Final = {"rebuild": "rebuilt", "compact": "compacted", "verify": "verified", "export": "exported"}


def print_report(report: Report, *, as_json: bool) -> None:
    """Write it to stdout."""
    if as_json:
        sys.stdout.buffer.write(report_json(report) + b"\n")
        sys.stdout.buffer.flush()
        return
    for line in report_lines(report):
        click.echo(line)


def report_json(report: Report) -> bytes:
    """One object; names are in camel case, times in seconds."""
    return msgspec.json.encode(_as_texts(msgspec.to_builtins(report) | {"exitCode": report.exit_code}))


def _as_texts(value: Any) -> Any:
    """A value in which names of files and topics that are no UTF-8 are such that JSON can hold them."""
    if isinstance(value, dict):
        return {_as_texts(name): _as_texts(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_texts(each) for each in value]
    return as_text(value) if isinstance(value, str) else value


def report_lines(report: Report) -> Iterator[str]:
    """Line by line, for a terminal."""
    return map(one_line, _lines(report))


def _lines(report: Report) -> Iterator[str]:
    details = report.details
    yield _head(report)
    if report.command == "verify":
        yield from _findings(details)
    elif report.command == "export":
        yield f"{details['parts']} files of {details['format']}, {bytes_text(details['partBytes'])}, and {MANIFEST}"
    else:
        yield from _index(details.get("index"))
        yield from _queues(details.get("queues"))
    yield from _damages(report)
    yield from (f"note: {note}" for note in report.notes)
    yield from (f"backup: {path}" for path in details.get("backups", ()))
    yield from (f"next: {step}" for step in details.get("next", ()))


def _head(report: Report) -> str:
    amounts = [f"{bytes_text(report.bytes)} of log", f"{count_text(report.messages)} messages"]
    amounts += [f"{count_text(report.entries)} index entries"] if report.entries else []
    amounts += [f"{count_text(report.units)} queue units"] if report.units else []
    head = f"{_VERBS.get(report.command, report.command)} {report.store}"
    head += f" into {report.out}" if report.out not in ("", report.store) else ""
    head += f" in {duration_text(report.seconds)}: {', '.join(amounts)}"
    if report.steady_seconds > 0 and not report.resumed:
        rates = [rate_text(report.bytes / report.steady_seconds, "bytes")]
        rates += [rate_text(report.entries / report.steady_seconds, "entries")] if report.entries else []
        head += f" ({', '.join(rates)})"
    return head + ("; gone on from an earlier run" if report.resumed else "")


def _index(details: Any) -> Iterator[str]:
    if not isinstance(details, dict):
        return
    kept, built = details.get("kept", ()), details.get("built", ())
    yield (
        f"index: {_files(len(built))} built, {len(kept)} kept; {count_text(details['slots'])} slots and "
        f"{count_text(details['entries'])} entries a file, profile {details['profile']}"
    )
    yield from (f"index: {reason}" for reason in details.get("reasons", ()))


def _queues(details: Any) -> Iterator[str]:
    if not isinstance(details, dict):
        return
    carried = details.get("carriedOver", {})
    told = [f"{count_text(details['queues'])} built"]
    told += [f"{count_text(details['batchQueues'])} of them of batches"] if details.get("batchQueues") else []
    told += [
        f"{count_text(carried[name])} {text}"
        for name, text in (("otherTopics", "of other topics kept"), ("withoutRecords", "without messages kept"))
        if carried.get(name)
    ]
    yield f"queues: {', '.join(told)}"


def _damages(report: Report) -> Iterable[str]:
    count = len(report.damages) + report.more_damages
    if not count:
        return
    passed = sum(damage.length for damage in report.damages)
    yield f"damage: {count_text(count)} place{'s' if count > 1 else ''}, {bytes_text(passed)} passed over"
    for damage in report.damages[:MOST_TOLD]:
        yield f"damage: {damage.sentence()}"
    if count > MOST_TOLD:
        listed = "" if report.more_damages else "; --json lists all"
        yield f"damage: and {count_text(count - MOST_TOLD)} more{listed}"


def _findings(details: dict[str, Any]) -> Iterator[str]:
    """What a verification found: numbers by kind, then the first places."""
    counts = details.get("counts", {})
    if not counts:
        yield "found: nothing that is wrong"
        return
    yield "found: " + ", ".join(f"{count_text(count)} {kind}" for kind, count in sorted(counts.items()))
    listed = details.get("findings", [])
    yield from (f"found: {msgspec.convert(finding, Finding).sentence()}" for finding in listed[:MOST_TOLD])
    left = len(listed) + details.get("moreFindings", 0) - MOST_TOLD
    if left > 0:
        yield f"found: and {count_text(left)} more" + ("" if details.get("moreFindings") else "; --json lists all")


def _files(count: int) -> str:
    return f"{count_text(count)} file" + ("" if count == 1 else "s")
