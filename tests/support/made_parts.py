"""Parts of pages that are made of what the product says of itself: `make docs` puts each into the site at its mark.

A mark is a line `<!-- made: NAME -->` of a page. The page in the repository says beside it which command prints the
same, or where it stands in the code.
"""

import ast
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

import rocketlens
from benchmarks.scale import ASSUMED, QUEUES_ASSUMED, load_kept, tables
from body_samples import OTHER_SAMPLES, SAMPLES
from broker.limits import Limits
from broker.web._metrics_families import FAMILIES
from broker.web.api.application import Api
from cli_reference import command_line_reference, commands
from golden_deviations import DAMAGED_STORES, DEVIATIONS, REQUESTS
from interop.mqadmin_commands import NOTES, RUNS
from mqadmin_requests import MESSAGE_QUERIES, OTHER_COMMANDS
from prose import rows
from protocol.codes import RequestCode, ResponseCode
from protocol.system_properties import LEFT_BEHIND_BECAUSE, SYSTEM_PROPERTIES
from rocketlens.cli.main import COMMANDS
from spark_jobs.read.source_options import OPTIONS
from spark_jobs.tables.every import TableMetrics
from storage.columns.names import JSON_NAMES
from storage.doctor.finding import Kind
from unread_answers import UNREAD

ROOT = Path(__file__).parents[2]
BAR = re.compile(r"\|(?=(?:[^`]*`[^`]*`)*[^`]*$)")
"""A bar outside of code."""
MARK = re.compile(r"^<!-- made: (.+) -->$", re.MULTILINE)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown; a bar in a cell would end it, but not in code, where the site shows a backslash."""
    lines = [list(head), *map(list, rows)]
    texts = [f"| {' | '.join(BAR.sub(chr(92) * 2 + '|', cell) for cell in line)} |" for line in lines]
    return "\n".join([texts[0], "|---" * len(lines[0]) + "|", *texts[1:]])


def code(text: str) -> str:
    """A name as code."""
    return f"`{text}`" if text else ""


def short_commands() -> str:
    """Each command with the line that its group's help has of it."""
    alone = {name: each for name, each in commands().items() if not isinstance(each, click.Group)}
    rows = [(code(f"rocketlens {name}"), each.get_short_help_str(200)) for name, each in alone.items()]
    return table(("command", "what it does"), rows)


def codes() -> str:
    """Numbers and names of requests, then of responses."""
    lines = [" · ".join(f"{each.value} {each.name}" for each in kind) for kind in (RequestCode, ResponseCode)]
    return f"{lines[0]}\n\n**Responses**: {lines[1]}"


def metrics() -> str:
    """Every metric of a server."""
    rows = [(code(each.full_name), each.kind, ", ".join(map(code, each.labels)), each.meaning) for each in FAMILIES]
    return table(("name", "type", "labels", "meaning"), rows)


def metrics_of_tables() -> str:
    """Every metric of a command that grows a table."""
    rows = []
    for family in TableMetrics().registry.collect():
        labels = sorted({name for sample in family.samples for name in sample.labels})
        name = family.name + "_total" * (family.type == "counter")
        rows.append((code(name), family.type, ", ".join(map(code, labels)), family.documentation))
    return table(("name", "type", "labels", "meaning"), rows)


def limits() -> str:
    """Every limit, its default and its meaning."""
    rows = [(code(each.name), f"{each.default:,}", each.metadata["meaning"]) for each in fields(Limits)]
    return table(("name", "default", "meaning"), rows)


def paths_of_the_api() -> str:
    """Every path of the API with its parameters."""
    api = Api([SimpleNamespace(broker_name="")])  # type: ignore[list-item]
    return table(
        ("path", "answers", "parameters"),
        [
            (code(each.path), each.summary, ", ".join(map(code, each.question.__struct_encode_fields__)))
            for each in api.endpoints
        ],
    )


def fields_of_messages() -> str:
    """Every field of a message in JSON, its column and its meaning, as the schema has them."""
    schema: dict[str, Any] = json.loads((ROOT / "docs" / "message.schema.json").read_text())
    columns = {field: column for column, field in JSON_NAMES.items()}
    return table(
        ("field", "in Parquet", "meaning"),
        [
            (code(name), code(columns.get(name, "")), each.get("description", ""))
            for name, each in schema["$defs"]["fields"]["properties"].items()
        ],
    )


def properties_that_stay() -> str:
    """What becomes of each property of RocketMQ's own in a message that is sent again."""
    kept = [name for name, each in SYSTEM_PROPERTIES.items() if each.is_resent]
    rows = [(", ".join(map(code, kept)), "kept", "the producer's")]
    rows += [(", ".join(map(code, names)), "left behind", why) for why, names in LEFT_BEHIND_BECAUSE.items()]
    return table(("properties of RocketMQ's own", "", "why"), rows)


def recorded_deviations() -> str:
    """Each rule by which an answer differs from a recorded one."""
    return table(
        ("rule", "request", "recorded", "ours", "why"),
        [(code(each.name), *rows(each.expect.__doc__)[0]) for each in DEVIATIONS],
    )


def unrecorded(differences: Iterable[list[str]]) -> str:
    """Differences that no recorded answer shows."""
    return table(
        ("what", "RocketLens", "a Java broker", "module"),
        [(*texts, ", ".join(map(code, modules.split(", ")))) for *texts, modules in differences],
    )


def commands_of_mqadmin() -> str:
    """Every command of mqadmin, what becomes of it here, and what there is to say of it."""
    rows = [(names.split(), note) for names, note in NOTES.items()]
    return table(
        ("command", "here", "note"),
        [(", ".join(map(code, names)), RUNS[names[0]].outcome.value, note) for names, note in rows],
    )


def parts_that_are_not_read() -> str:
    """What answers lack without each part of a store that is not read."""
    return table(
        ("part of the store", "what it is", "answers without it", "said also by"),
        [(code(each.name), each.what, each.without, ", ".join(map(code, each.said_by))) for each in UNREAD],
    )


def options_of_the_data_source() -> str:
    """Every option of the data source for Spark."""
    return table(("option", "default", "meaning"), [(code(name), *each) for name, each in OPTIONS.items()])


def requests_of_message_queries() -> str:
    """What each command of mqadmin sends that asks for messages."""
    return table(("command", "options", "requests", "printed, also on error"), MESSAGE_QUERIES)


def requests_of_other_commands() -> str:
    """What each other command of mqadmin sends."""
    return table(("command", "requests", "needs, or what an error does"), OTHER_COMMANDS)


def sample_bodies() -> str:
    """The JSON of each body."""
    rows = [(type(value).__name__, code(text)) for value, text in SAMPLES]
    return table(("body", "sample"), [*rows, *((name, code(text)) for name, text in OTHER_SAMPLES.items())])


def kernels() -> str:
    """What each compiled module says of itself in its first sentence."""
    rows = []
    for package in ("protocol", "storage", "broker"):
        for path in sorted((ROOT / package / "kernels").glob("*.pyx")):
            text = re.search(r'"""(.+?)(?:\n\n|""")', path.read_text(), re.DOTALL)
            assert text, path
            rows.append((code(f"{package}.kernels.{path.stem}"), " ".join(text[1].split())))
    return table(("module", "what it does"), rows)


def folders() -> str:
    """The layers of each package from the top, with the first sentence of what each folder or module says of itself."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rows = []
    for contract in contracts:
        for package in contract.get("containers", ()):
            for layer in contract["layers"]:
                beside = []
                for name in layer.split(" | "):
                    path = ROOT / package / name
                    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
                    about = (ast.get_docstring(ast.parse(source.read_text())) or "").split("\n\n")[0]
                    beside.append(f"{code(f'{package}.{name}')}: {' '.join(about.split())}")
                rows.append((" <br> ".join(beside),))
    return table(("from the top, those that stand in one row beside one another",), rows)


def methods() -> str:
    """The methods of a source, with their arguments."""
    tree = ast.parse((ROOT / "rocketlens" / "source.py").read_text())
    (source,) = (each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == "Source")
    rows = []
    for each in source.body:
        if isinstance(each, ast.FunctionDef) and not each.name.startswith("_"):
            names = [argument.arg for argument in (*each.args.args[1:], *each.args.kwonlyargs)]
            about = " ".join((ast.get_docstring(each) or "").split("\n\n")[0].split())
            rows.append((code(f"{each.name}({', '.join(names)})"), about))
    return table(("method", "answers"), rows)


def earlier_names() -> str:
    """Names of commands, and spellings of options, that go with the next release, and what is typed now."""
    rows = [(code(f"rocketlens {name}"), code(f"rocketlens {each.now}")) for name, each in COMMANDS.items() if each.now]
    for name, command in commands().items():
        for option in command.params:
            spellings = getattr(option, "earlier", ())
            rows += [(code(f"rocketlens {name} {each}"), code(max(option.opts, key=len))) for each in spellings]
    return table(("before", "now"), rows)


def kinds_of_findings() -> str:
    """The kinds of findings of `doctor`, with what the code says of each."""
    tree = ast.parse((ROOT / "storage" / "doctor" / "finding.py").read_text())
    (kind,) = (each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == "Kind")
    texts = {
        ast.literal_eval(member.value): ast.literal_eval(text.value)
        for member, text in pairwise(kind.body)
        if isinstance(member, ast.Assign) and isinstance(text, ast.Expr)
    }
    return table(("kind", "what it is"), [(code(each), " ".join(texts[each].split())) for each in Kind])


def errors() -> str:
    """The errors that `rocketlens` names."""
    named = [getattr(rocketlens, name) for name in rocketlens.__all__]
    kinds = [each for each in named if isinstance(each, type) and issubclass(each, Exception)]
    rows = [(code(each.__name__), " ".join((each.__doc__ or "").split("\n\n")[0].split())) for each in kinds]
    return table(("error", "means"), rows)


def computed_sizes(name: str) -> str:
    """A table of what jobs take, computed from the runs that are kept."""
    return tables(load_kept(), ASSUMED, QUEUES_ASSUMED)[name]


PARTS: dict[str, Callable[[], str]] = {
    "the commands": short_commands,
    "the help of every command": command_line_reference,
    "the codes": codes,
    "the metrics": metrics,
    "the metrics of tables": metrics_of_tables,
    "the limits": limits,
    "the paths of the API": paths_of_the_api,
    "the fields of messages": fields_of_messages,
    "the properties of messages that are sent again": properties_that_stay,
    "the recorded deviations": recorded_deviations,
    "the deviations of requests": lambda: unrecorded(REQUESTS),
    "the deviations of damaged stores": lambda: unrecorded(DAMAGED_STORES),
    "the commands of mqadmin": commands_of_mqadmin,
    "the parts that are not read": parts_that_are_not_read,
    "the options of the data source": options_of_the_data_source,
    "the requests of message queries": requests_of_message_queries,
    "the requests of other commands": requests_of_other_commands,
    "the bodies": sample_bodies,
    "the kernels": kernels,
    "the folders": folders,
    "the methods": methods,
    "the errors": errors,
    "the earlier names": earlier_names,
    "the kinds of findings": kinds_of_findings,
    "the sizes of jobs": lambda: computed_sizes("constants"),
    "the memory of drivers": lambda: computed_sizes("drivers"),
}


def made(page: str) -> str:
    """A page with each part in the place of its mark."""
    return MARK.sub(lambda match: PARTS[match[1]](), page)


def main(paths: list[str]) -> None:
    """Put the parts into files, in place."""
    for path in map(Path, paths):
        path.write_text(made(path.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])
