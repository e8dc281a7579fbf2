"""Parts of pages that are made of what the product says of itself: `make docs` puts each into the site at its mark."""

import ast
import itertools
import json
import re
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

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
MARK = re.compile(r"^<!-- made: (.+) -->$", re.MULTILINE)
PARTS = {}


def table(head, rows):
    """A table of Markdown; a bar in a cell would end it, but not in code, where the site shows a backslash."""
    lines = [list(head), *map(list, rows)]
    texts = [f"| {' | '.join(BAR.sub(chr(92) * 2 + '|', cell) for cell in line)} |" for line in lines]
    return "\n".join([texts[0], "|---" * len(lines[0]) + "|", *texts[1:]])


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def _part(name, *head):
    def register(function):
        PARTS[name] = (lambda: table(head, function())) if head else function
        return function

    return register


@_part("the commands", "command", "what it does")
def _short_commands():
    alone = {name: each for name, each in commands().items() if not isinstance(each, click.Group)}
    return [(code(f"rocketlens {name}"), each.get_short_help_str(200)) for name, each in alone.items()]


@_part("the codes")
def _codes():
    lines = [" · ".join(f"{each.value} {each.name}" for each in kind) for kind in (RequestCode, ResponseCode)]
    return f"{lines[0]}\n\n**Responses**: {lines[1]}"


@_part("the metrics", "name", "type", "labels", "meaning")
def _metrics():
    return [(code(each.full_name), each.kind, ", ".join(map(code, each.labels)), each.meaning) for each in FAMILIES]


@_part("the metrics of tables", "name", "type", "labels", "meaning")
def _metrics_of_tables():
    for family in TableMetrics().registry.collect():
        labels = sorted({name for sample in family.samples for name in sample.labels})
        name = family.name + "_total" * (family.type == "counter")
        yield code(name), family.type, ", ".join(map(code, labels)), family.documentation


@_part("the limits", "name", "default", "meaning")
def _limits():
    return [(code(each.name), f"{each.default:,}", each.metadata["meaning"]) for each in fields(Limits)]


@_part("the paths of the API", "path", "answers", "parameters")
def _paths_of_the_api():
    for each in Api([SimpleNamespace(broker_name="")]).endpoints:
        yield code(each.path), each.summary, ", ".join(map(code, each.question.__struct_encode_fields__))


@_part("the fields of messages", "field", "in Parquet", "meaning")
def _fields_of_messages():
    schema = json.loads((ROOT / "docs" / "message.schema.json").read_text())
    columns = {field: column for column, field in JSON_NAMES.items()}
    for name, each in schema["$defs"]["fields"]["properties"].items():
        yield code(name), code(columns.get(name, "")), each.get("description", "")


@_part("the properties of messages that are sent again", "properties of RocketMQ's own", "", "why")
def _properties_that_stay():
    kept = [name for name, each in SYSTEM_PROPERTIES.items() if each.is_resent]
    yield ", ".join(map(code, kept)), "kept", "the producer's"
    for why, names in LEFT_BEHIND_BECAUSE.items():
        yield ", ".join(map(code, names)), "left behind", why


@_part("the recorded deviations", "rule", "request", "recorded", "ours", "why")
def _recorded_deviations():
    return [(code(each.name), *rows(each.expect.__doc__)[0]) for each in DEVIATIONS]


def _unrecorded(name, differences) -> None:
    found = [(*texts, ", ".join(map(code, modules.split(", ")))) for *texts, modules in differences]
    _part(name, "what", "RocketLens", "a Java broker", "module")(lambda: found)


_unrecorded("the deviations of requests", REQUESTS)
_unrecorded("the deviations of damaged stores", DAMAGED_STORES)


@_part("the commands of mqadmin", "command", "here", "note")
def _commands_of_mqadmin():
    for names, note in NOTES.items():
        yield ", ".join(map(code, names.split())), RUNS[names.split()[0]].outcome.value, note


@_part("the parts that are not read", "part of the store", "what it is", "answers without it", "said also by")
def _parts_that_are_not_read():
    return [(code(each.name), each.what, each.without, ", ".join(map(code, each.said_by))) for each in UNREAD]


@_part("the options of the data source", "option", "default", "meaning")
def _options_of_the_data_source():
    return [(code(name), *each) for name, each in OPTIONS.items()]


_part("the requests of message queries", "command", "options", "requests", "printed, also on error")(
    lambda: MESSAGE_QUERIES
)
_part("the requests of other commands", "command", "requests", "needs, or what an error does")(lambda: OTHER_COMMANDS)


@_part("the bodies", "body", "sample")
def _sample_bodies():
    named = [(type(value).__name__, text) for value, text in SAMPLES]
    return [(name, code(text)) for name, text in (*named, *OTHER_SAMPLES.items())]


@_part("the kernels", "module", "what it does")
def _kernels():
    """What each compiled module says of itself in its first sentence."""
    for package in ("protocol", "storage", "broker"):
        for path in sorted((ROOT / package / "kernels").glob("*.pyx")):
            text = re.search(r'"""(.+?)(?:\n\n|""")', path.read_text(), re.DOTALL)
            yield code(f"{package}.kernels.{path.stem}"), " ".join(text[1].split())


def _first_sentence(text):
    return " ".join((text or "").split("\n\n")[0].split())


@_part("the folders", "from the top, those that stand in one row beside one another")
def _folders():
    """The layers of each package from the top, with the first sentence of what each folder or module says of itself."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    for contract in contracts:
        for package, layer in itertools.product(contract.get("containers", ()), contract.get("layers", ())):
            beside = []
            for name in layer.split(" | "):
                path = ROOT / package / name
                source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
                about = _first_sentence(ast.get_docstring(ast.parse(source.read_text())))
                beside.append(f"{code(f'{package}.{name}')}: {about}")
            yield (" <br> ".join(beside),)


def _class_of(path, name):
    return next(each for each in ast.parse((ROOT / path).read_text()).body if getattr(each, "name", "") == name)


@_part("the methods", "method", "answers")
def _methods():
    for each in _class_of("rocketlens/source.py", "Source").body:
        if isinstance(each, ast.FunctionDef) and not each.name.startswith("_"):
            names = [argument.arg for argument in (*each.args.args[1:], *each.args.kwonlyargs)]
            yield code(f"{each.name}({', '.join(names)})"), _first_sentence(ast.get_docstring(each))


@_part("the earlier names", "before", "now")
def _earlier_names():
    yield from ((code(f"rocketlens {n}"), code(f"rocketlens {each.now}")) for n, each in COMMANDS.items() if each.now)
    for name, command in commands().items():
        for option in command.params:
            for each in getattr(option, "earlier", ()):
                yield code(f"rocketlens {name} {each}"), code(max(option.opts, key=len))


@_part("the kinds of findings", "kind", "what it is")
def _kinds_of_findings():
    texts = {
        ast.literal_eval(member.value): ast.literal_eval(text.value)
        for member, text in itertools.pairwise(_class_of("storage/doctor/finding.py", "Kind").body)
        if isinstance(member, ast.Assign) and isinstance(text, ast.Expr)
    }
    return [(code(each), " ".join(texts[each].split())) for each in Kind]


@_part("the errors", "error", "means")
def _errors():
    named = [getattr(rocketlens, name) for name in rocketlens.__all__]
    kinds = [each for each in named if isinstance(each, type) and issubclass(each, Exception)]
    return [(code(each.__name__), _first_sentence(each.__doc__)) for each in kinds]


PARTS["the help of every command"] = command_line_reference
PARTS["the sizes of jobs"] = lambda: tables(load_kept(), ASSUMED, QUEUES_ASSUMED)["constants"]
PARTS["the memory of drivers"] = lambda: tables(load_kept(), ASSUMED, QUEUES_ASSUMED)["drivers"]


def made(page: str) -> str:
    return MARK.sub(lambda match: PARTS[match[1]](), page)


def main(paths: list[str]) -> None:
    for path in map(Path, paths):
        path.write_text(made(path.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])
