"""What the documents tell a reader to type works, and what they point at is there."""

import importlib
import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from benchmarks.server_process import free_port
from broker.web._metrics_families import FAMILIES, PREFIX
from cli_reference import commands
from compose import image_environment, load
from golden_deviations import DAMAGED_STORES, REQUESTS
from golden_store import G1
from interop.jars import jars
from interop.official_broker import QUICK_JVM, class_archive
from made_parts import MARK, PARTS
from needed_tools import tool
from rocketlens.cli.main import main
from spark_jobs.tables.every import TableMetrics

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")])
FENCED = re.compile(r"^```(\w*)$(.*?)^```$", re.M | re.S)
TYPED = re.compile(r"^ {4,8}(?:\$ )?((?:\w+=\S+ )*(?:\S*/)?(?:make|rocketlens|docker|mqadmin) .+)$", re.M)
CODE = re.compile(r"`([^`\n]+)`")
OUR_NAME = re.compile(r"\b(?:broker|protocol|storage|spark_jobs|rocketlens)(?:\.[A-Za-z_]\w*)+")
NO_MODULES = {"broker.properties", "rocketlens.commit", "rocketlens.monitoring.svc"}
"""A file of Java brokers, a property of tables, a name of a service: written as modules are."""
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
PROGRAMS = "apt-get chmod docker dnf git ionice java make mqadmin nice pip spark-submit vmstat"
"""Whose options are not ours."""
OTHERS_OPTIONS = "--help --version --require-hashes --rounds --cores --busy --core-hour --gb-month --queues"
"""Options of every command, of pip and of the benchmarks."""
START_SECONDS = 180


def typed_commands(document: Path) -> list[list[str]]:
    """Every line of a document that is to be typed, as words, without comments and without `NAME=value` in front.

    Such lines are indented or fenced; what is fenced as text (output, help) is not for typing.
    """
    text = FENCED.sub(
        lambda match: "" if match[1] == "text" else match[2].replace("\n", "\n    "), document.read_text()
    )
    lines = [shlex.split(line, comments=True) for line in TYPED.findall(text)]
    return [list(itertools.dropwhile(lambda word: re.match(r"\w+=", word), words)) for words in lines]


def our_commands(document: Path) -> list[list[str]]:
    ours = [words[1:] for words in typed_commands(document) if Path(words[0]).name == "rocketlens"]
    return [arguments for arguments in ours if not arguments[0].startswith("-")]


def test_every_part_that_a_page_has_made_is_there_and_every_part_has_its_page() -> None:
    marks = [name for document in DOCUMENTS for name in MARK.findall(document.read_text())]
    assert sorted(marks) == sorted(PARTS)
    assert [name for name, part in PARTS.items() if len(part().splitlines()) < 3] == []


def test_every_command_and_option_has_help_that_fits_two_screens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert {"serve", "find", "search", "rebuild all", "compact index", "doctor"} <= set(commands())
    for name, command in commands().items():
        assert command.help, name
        without = [
            each.name for each in command.params if isinstance(each, click.Option) and not each.hidden | bool(each.help)
        ]
        assert without == [], name
        outcome = CliRunner().invoke(main, [*name.split(), "--help"], terminal_width=80)
        assert outcome.exit_code == 0, outcome.output
        assert name == "serve" or len(outcome.output.splitlines()) <= 2 * 50  # which has 40 options


def test_the_make_targets_and_services_that_documents_name_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    typed = [words for document in DOCUMENTS for words in typed_commands(document)]
    assert {"make", "docker"} <= {words[0] for words in typed}
    for words in typed:
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= targets, words
        if words[:2] == ["docker", "compose"]:
            assert set(words[words.index("up") + 1 :]) <= set(load({})["services"]), words


def test_our_commands_in_the_documents_have_options_that_exist(g1_store: Path) -> None:
    found = [arguments for document in DOCUMENTS for arguments in our_commands(document)]
    assert found
    for arguments in found:
        name = " ".join(arguments[:2]) if " ".join(arguments[:2]) in commands() else arguments[0]
        command = commands()[name]
        words = arguments[len(name.split()) :]
        existing = [str(g1_store) if "/" in word and ":" not in word else word for word in words]
        with click.Context(command, info_name=name) as context:
            command.parse_args(context, existing)


def without_blocks(page: Path) -> str:
    return FENCED.sub("", page.read_text())


def slugs(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    found: Counter[str] = Counter()
    anchors = set()
    for heading in re.findall(r"^#+ (.+?)\s*$", without_blocks(page), re.M):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        anchors.add(f"{slug}-{found[slug]}" if found[slug] else slug)
        found[slug] += 1
    return anchors


def test_every_link_leads_to_a_file_and_to_a_heading() -> None:
    """What `mkdocs build --strict` notices in the soak, and in pages that are no part of the site too."""
    links = [(page, *found) for page in DOCUMENTS for found in LINK.findall(without_blocks(page))]
    assert len(links) > 150
    for page, target, anchor in links:
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), (page, target)
            assert not anchor or anchor in slugs(page.parent / target if target else page), (page, target, anchor)


def is_there(name: str) -> bool:
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
    spans = CODE.findall(FENCED.sub("", page.read_text()))
    return [span for span in spans if OUR_NAME.fullmatch(span) and span not in NO_MODULES]


def test_every_test_file_that_is_named_is_there() -> None:
    """By pages, sources, other tests and the lists of tests that tools run."""
    folders = ("broker", "protocol", "rocketlens", "spark_jobs", "storage", "build_backend", "tests")
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.py") if "node_modules" not in path.parts]
    named = [
        (place, name)
        for place in [*DOCUMENTS, ROOT / "Makefile", *sources]
        for name in re.findall(r"\btests/[\w/]+\.py\b", place.read_text())
    ]
    assert len(named) > 30
    assert [each for each in named if not (ROOT / each[1]).exists()] == []


def test_every_module_that_a_page_names_exists() -> None:
    assert [(page, name) for page in DOCUMENTS for name in modules_named(page) if not is_there(name)] == []


def test_every_module_that_a_difference_names_exists() -> None:
    named = [name for *_, modules in (*REQUESTS, *DAMAGED_STORES) for name in modules.split(", ")]
    assert len(named) > 30
    assert [name for name in named if not is_there(name)] == []


def test_every_option_and_every_metric_that_a_page_names_exists() -> None:
    parameters = [each for command in commands().values() for each in command.params if isinstance(each, click.Option)]
    options = {
        spelled for each in parameters for spelled in (*each.opts, *each.secondary_opts, *getattr(each, "earlier", ()))
    }.union(OTHERS_OPTIONS.split())
    metrics = {family.name.removeprefix(PREFIX) for family in TableMetrics().registry.collect()}
    metrics |= {family.name for family in FAMILIES}
    for page in (ROOT / "docs").glob("*.md"):
        text = without_blocks(page)
        spans = [span for span in CODE.findall(text) if span.split()[0] not in PROGRAMS.split()]
        named = {name for span in spans for name in re.findall(r"(?<![\w-])--[a-z][\w-]*", span)}
        assert page.name == "benchmarks.md" or named <= options, page
        named = set(re.findall(r"\brocketlens_([a-z_]+)\b", text))
        assert {re.sub("_(total|bucket|sum|count)$", "", name) for name in named} <= metrics, page


@dataclass(frozen=True)
class Demo:
    """A running demo: what it printed, and where its commands are to be typed."""

    printed: str
    folder: Path
    process: "subprocess.Popen[str]"

    @property
    def commands(self) -> list[list[str]]:
        lines = [line.strip() for line in self.printed.split("Now type", 1)[1].splitlines()[1:-1]]
        return [shlex.split(line) for line in lines if line and not line.startswith("#")]

    def run(self, command: list[str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command, cwd=self.folder, env=image_environment(), capture_output=True, text=True, timeout=180, check=False
        )


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """`docs/demo.py` as `make demo` runs it, in an empty folder and on a free port."""
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, str(ROOT / "docs" / "demo.py"), "--port", str(free_port())]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen(command, cwd=folder, env=image_environment(), **streams, start_new_session=True)
    watchdog = threading.Timer(START_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
    watchdog.start()
    printed = ""
    for line in process.stdout:
        printed += line
        if line.startswith("Ctrl-C"):
            break
    watchdog.cancel()
    yield Demo(printed, folder, process)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    process.stdout.close()


def test_what_the_demo_says_to_type_finds_what_it_promises(demo: Demo) -> None:
    ours = [command for command in demo.commands if Path(command[0]).name == "rocketlens"]
    assert len(ours) >= 4
    for command in ours:
        outcome = demo.run(command)
        if "nosuchkey" in command:
            assert outcome.returncode == 1, outcome
        else:
            assert outcome.returncode == 0, outcome
            assert "FD000000000000000000000000000002708C30946E0968721" in outcome.stdout, command


@pytest.mark.soak  # in each run: the same command at our server, tests/interop/test_mqadmin.py
@pytest.mark.interop
def test_the_mqadmin_line_of_the_demo_works_with_the_official_mqadmin(demo: Demo) -> None:
    (command,) = [command for command in demo.commands if command[0] == "mqadmin"]
    java = [tool("java"), *QUICK_JVM, *class_archive(), f"-Duser.home={demo.folder}", "-cp", f"{jars()}/*"]
    outcome = demo.run([*java, "org.apache.rocketmq.tools.command.MQAdminStartup", *command[1:]])
    recorded = (G1 / "mqadmin-out" / "queryMsgByKey-hot.txt").read_text().strip()
    assert recorded in outcome.stdout, outcome


def test_what_the_readme_shows_is_what_its_commands_print(demo: Demo) -> None:
    """A block of text shows `$ command` lines, each followed by all that it prints."""
    shown = "".join(match[2] for match in FENCED.finditer((ROOT / "README.md").read_text()) if match[1] == "text")
    sessions = [part.split("\n", 1) for part in re.split(r"^\$ ", shown, flags=re.M)[1:]]
    assert len(sessions) >= 2
    for line, expected in sessions:
        program, *arguments = shlex.split(line)
        outcome = demo.run([str(Path(sys.executable).with_name(Path(program).name)), *arguments])
        printed = (outcome.stdout + outcome.stderr).splitlines()
        assert [row.rstrip() for row in printed] == expected.splitlines(), line
