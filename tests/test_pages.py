"""What pages name is there: anchors, modules, words of the code, options, metrics, and messages that are printed."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path
from typing import Final

import click

from broker.web._metrics_families import FAMILIES, PREFIX
from cli_reference import commands
from golden_deviations import DAMAGED_STORES, REQUESTS
from rocketlens.cli.main import main
from spark_jobs.tables.every import TableMetrics

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "tests").rglob("*.md")])
SOURCES = sorted(
    path
    for package in ("broker", "protocol", "rocketlens", "storage", "spark_jobs", "build_backend")
    for path in (ROOT / package).rglob("*")
    if path.suffix in {".py", ".pyx"}
)
TROUBLESHOOTING = DOCS / "troubleshooting.md"
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
OUR_NAME = re.compile(r"\b(?:broker|protocol|storage|spark_jobs|rocketlens)(?:\.[A-Za-z_]\w*)+")

PROGRAMS = {
    "apt-get",
    "chmod",
    "docker",
    "dnf",
    "git",
    "ionice",
    "java",
    "make",
    "mqadmin",
    "nice",
    "pip",
    "spark-submit",
    "vmstat",
}
"""Whose options and words are not ours."""

TYPED = PROGRAMS | {"echo", "env", "fuser", "ls", "rocketlens", "ss", "ulimit"}
"""What commands in the text of troubleshooting begin with."""

NOT_OURS = {"Message not found!", "No route info of this topic", "Install s3fs to access S3", "Could not connect"}
"""What other programs print, as troubleshooting quotes it."""

NO_MODULES = {"broker.properties", "rocketlens.commit", "rocketlens.monitoring.svc"}
"""A file of Java brokers, a property of tables, a name of a service: written as modules are."""

OTHERS_OPTIONS = {"--require-hashes", "--rounds", "--cores", "--busy", "--core-hour", "--gb-month", "--queues"}
"""Options of pip and of the benchmarks that are named alone."""


def slugs(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    found: dict[str, int] = {}
    anchors = set()
    for heading in re.findall(r"^#+ (.+?)\s*$", FENCE.sub("", page.read_text()), re.M):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        number = found.get(slug, 0)
        found[slug] = number + 1
        anchors.add(f"{slug}-{number}" if number else slug)
    return anchors


def test_every_link_leads_to_a_file_and_to_a_heading() -> None:
    """What `mkdocs build --strict` notices in the soak, and in pages that are no part of the site too."""
    count = 0
    for page in PAGES:
        for target, anchor in LINK.findall(FENCE.sub("", page.read_text())):
            if "://" in target or target.startswith("mailto:"):
                continue
            count += 1
            assert (page.parent / target).exists(), (page, target)
            if anchor:
                assert anchor in slugs(page.parent / target if target else page), (page, target, anchor)
    assert count > 150


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or what a module has."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:size]))
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
            continue
        rest = parts[size:]
        return not rest or (len(rest) == 1 and hasattr(found, rest[0]))
    return False


def modules_named(page: Path) -> list[str]:
    """Names of modules in code."""
    spans = CODE.findall(FENCE.sub("", page.read_text()))
    return [span for span in spans if OUR_NAME.fullmatch(span) and span not in NO_MODULES]


def test_every_module_that_a_page_names_exists() -> None:
    assert [(page, name) for page in PAGES for name in modules_named(page) if not is_there(name)] == []


def test_every_module_that_a_difference_names_exists() -> None:
    named = [name for each in (*REQUESTS, *DAMAGED_STORES) for name in each.modules]
    assert len(named) > 30
    assert [name for name in named if not is_there(name)] == []


def options() -> set[str]:
    """All options of all commands."""
    return {
        spelling
        for command in commands().values()
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for spelling in (*parameter.opts, *parameter.secondary_opts, *getattr(parameter, "earlier", ()))
    } | {"--help", "--version"}


def named_options(page: Path) -> set[str]:
    """The options that a page names outside of whole commands of other programs."""
    spans = CODE.findall(FENCE.sub("", page.read_text()))
    ours = [span for span in spans if span.split()[0] not in PROGRAMS]
    return {name for span in ours for name in re.findall(r"(?<![\w-])--[a-z][\w-]*", span)}


def named_metrics(page: Path) -> set[str]:
    """The metrics that a page names, without their common prefix."""
    return set(re.findall(r"\brocketlens_([a-z_]+)\b", FENCE.sub("", page.read_text())))


def test_every_option_that_a_page_names_exists() -> None:
    known = options() | OTHERS_OPTIONS
    for page in set(DOCS.glob("*.md")) - {DOCS / "benchmarks.md"}:
        assert named_options(page) <= known, page


def named_commands(page: Path) -> list[list[str]]:
    """The words behind `rocketlens` in code that names a command."""
    spans = [span.split() for span in CODE.findall(FENCE.sub("", page.read_text()))]
    return [words[1:] for words in spans if words[:1] == ["rocketlens"] and words[1:2] and words[1][0] != "-"]


def command_of(words: list[str]) -> click.Command | None:
    """The command that some words name, None where there is none."""
    earlier = main.get_command(click.Context(main), words[0])  # one that is not listed any more
    return commands().get(" ".join(words[:2])) or commands().get(words[0]) or earlier


def test_a_command_in_a_sentence_has_its_options() -> None:
    for words in (words for page in PAGES for words in named_commands(page)):
        command = command_of(words)
        assert command is not None, words
        each_of = command.commands.values() if isinstance(command, click.Group) else [command]
        options = [option for each in each_of for option in each.params]
        of_command = {spelling for option in options for spelling in (*option.opts, *option.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= of_command | {"--help"}, words


def exposed_metrics() -> set[str]:
    """The metrics of a server, and of a command that grows a table, without prefix and ending."""
    of_tables = {family.name.removeprefix(PREFIX) for family in TableMetrics().registry.collect()}
    return of_tables | {family.name for family in FAMILIES}


def test_every_metric_that_a_page_names_exists() -> None:
    for page in DOCS.glob("*.md"):
        names = {re.sub("_(total|bucket|sum|count)$", "", name) for name in named_metrics(page)}
        assert names <= exposed_metrics(), page


ENDS: Final = " ,;:/()[]'"
"""What the fixed words of a message may begin and end with."""


@cache
def constants() -> dict[str, str]:
    """Texts of the sources that have a name of their own, which others put into their sentences."""
    assigned = re.compile(r'^([A-Z_]+)(?:: Final)? = "([^"\n]*)"$', re.M)
    return {name: text for path in SOURCES for name, text in assigned.findall(path.read_text())}


@cache
def sentences() -> str:
    """Every text in the sources and scripts but docstrings, with `…` where something is put in; a zero byte between."""
    found = [(ROOT / "tests" / "setup.sh").read_text()]
    for path in SOURCES:
        if path.suffix == ".py":
            nodes = list(ast.walk(ast.parse(path.read_text())))
            docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
            found += [_text_of(node) for node in nodes if id(node) not in docstrings]
    return "\0".join(filter(None, found))


def _text_of(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text_of, node.values))
    if isinstance(node, ast.FormattedValue):
        return constants().get(node.value.id, "…") if isinstance(node.value, ast.Name) else "…"
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"%[sdg]", "…", node.value)
    return ""


def is_said(message: str) -> bool:
    """Whether each run of a message's fixed words is in a text of the product, or joins two that are."""
    runs = [run.strip(ENDS) for run in re.split(r"…|\bN\b|[:;] ", message)]
    return all(_stands(run) or _is_two(run.split(" ")) for run in runs if len(run) > 2)


def _stands(run: str) -> bool:
    return run in sentences()


def _is_two(words: list[str]) -> bool:
    """Whether words are the end of one text and the beginning of another, which the product joins."""
    parts = [(" ".join(words[:cut]), " ".join(words[cut:])) for cut in range(1, len(words)) if len(words) > 2]
    return any(_ends_a_piece(before) and _begins_a_piece(after) for before, after in parts)


def _ends_a_piece(text: str) -> bool:
    return (f"{text}\0" if " " in text else f"\0{text}\0") in pieces()


def _begins_a_piece(text: str) -> bool:
    return (f"\0{text}" if " " in text else f"\0{text}\0") in pieces()


@cache
def pieces() -> str:
    """The fixed parts of all texts, a zero byte on both sides of each."""
    found = {piece.strip(ENDS) for piece in re.split(r"…|\0", sentences())}
    return "\0".join(["", *sorted(found - {""}), ""])


def is_typed(span: str) -> bool:
    """Whether code is a command, with variables of the environment before it or without."""
    first = span.split()[0]
    return first in TYPED or re.match(r"\w+=", first) is not None


def quoted_messages() -> list[str]:
    """What troubleshooting quotes: the code in first cells, and code in its text that is no command and no option."""
    text = FENCE.sub("", TROUBLESHOOTING.read_text())
    headings = [span for line in re.findall(r"^\| (.*?) \|", text, re.M) for span in CODE.findall(line)]
    spans = [span for span in CODE.findall(re.sub(r"^\| .*? \|", "", text, flags=re.M)) if not is_typed(span)]
    told = [
        span for span in spans if len(span.split()) > 4 or (("…" in span or len(span.split()) > 2) and span[0] != "-")
    ]
    return [span for span in (*headings, *told) if span not in NOT_OURS and " " in span]


def test_every_symptom_is_what_the_product_says() -> None:
    assert [message for message in quoted_messages() if not is_said(message)] == []
