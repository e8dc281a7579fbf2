"""What a command reads, its SOURCE: a store, one behind a URL, or a server; and a server in the environment."""

import re
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest

from broker.endpoint import Endpoint
from command_line import Outcome, rocketlens
from golden_store import G1
from loop_engine import run_jobs_here
from store_writer import START_TIMESTAMP, StoreWriter

ROW = (G1 / "produced.tsv").read_text("utf-8").splitlines()[1].split("\t")
UNIQUE_KEY, OFFSET_ID = ROW[2], ROW[3]
NOBODY = "127.0.0.1:1"
READERS = ("find", "groups", "info", "life", "pending", "search", "space", "tail", "topics")
"""The commands that read a store or ask a server."""

IN_EACH_RUN = ("find", "topics")
"""Commands that `make test` opens in several ways; `make soak` has all."""

each_reader = pytest.mark.parametrize(
    "command", [pytest.param(each, marks=[] if each in IN_EACH_RUN else pytest.mark.soak) for each in READERS]
)


SPEED = re.compile(r"[0-9.]+ [kMG]?B/s, in .* s$", re.M)
PASSING = re.compile(rb'^.*"kind":"forecast".*\n', re.M)
"""How full the disk is, which is never the same."""


def run(command: str, *where: object) -> Outcome:
    """A question that g1 answers, put to a store or to a server."""
    questions: dict[str, tuple[object, ...]] = {
        "find": (UNIQUE_KEY,),
        "life": (UNIQUE_KEY,),
        "search": ("--topic", "TopicTest", "--contains", "hot 1"),
        "tail": ("--topic", "TopicTest", "-n", 1),
    }
    outcome = rocketlens(command, *where, *questions.get(command, ()), "--json")
    return replace(outcome, output=PASSING.sub(b"", outcome.output), errors=SPEED.sub("", outcome.errors))


@each_reader
def test_a_server_in_the_environment_is_asked_unless_a_store_is_typed_by_its_place_or_its_option(
    command: str, g1_store: Path, server: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_store, of_server = run(command, g1_store), run(command, "--server", server)
    assert of_store.code == of_server.code == (1 if command == "pending" else 0)
    assert run(command, server).output == of_server.output
    assert run(command, "--store", g1_store).output == of_store.output
    monkeypatch.setenv(f"ROCKETLENS_{command.upper()}_SERVER", str(server))
    assert run(command).output == of_server.output
    monkeypatch.setenv(f"ROCKETLENS_{command.upper()}_SERVER", NOBODY)
    monkeypatch.setenv(f"ROCKETLENS_{command.upper()}_TLS", "1")
    assert run(command, g1_store).output == of_store.output
    assert run(command).code == 3
    assert run(command, g1_store, "--server", server).code != 0


def test_what_exists_as_a_path_is_no_address(g1_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(NOBODY).symlink_to(g1_store)
    found = run("topics", NOBODY)
    assert found.output == run("topics", g1_store).output.replace(str(g1_store).encode(), NOBODY.encode())


@each_reader
def test_of_several_stores_each_row_says_which_it_is_of(command: str, g1_store: Path, tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "second")
    writer.append("TopicTest", b"hot 1 again", unique_key=UNIQUE_KEY)
    writer.close()
    both = run(command, "--store", g1_store, "--store", writer.root)
    assert both.code == (1 if command == "pending" else 0)
    rows = both.messages
    for where in (g1_store, writer.root):
        of_store = [row for row in rows if row["store"] == str(where)]
        alone = run(command, where).messages if command != "tail" or where == g1_store else []
        assert [{name: row[name] for name in row if name != "store"} for row in of_store] == alone
        rows = [row for row in rows if row not in of_store]
    assert not rows


@pytest.mark.parametrize(
    "question",
    ["find TagA --limit 2", "search TopicTest --tag TagA --explain", "tail TopicTest", "life hotkey", "topics"],
)
def test_a_table_about_several_stores_begins_with_the_store(question: str, g1_store: Path, tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "second")
    for number in range(3):
        named: dict[str, str] = {"tags": "TagA", "keys": "hotkey", "unique_key": f"U{number}"}
        writer.append("TopicTest", b"another", **named, store_timestamp=START_TIMESTAMP * 2)
    writer.close()
    command, *words = question.split()
    shown = rocketlens(command, "--store", g1_store, "--store", writer.root, *words)
    heading, *rows = shown.text.splitlines()
    assert heading.split()[0] == "STORE"
    assert {row.split()[0] for row in rows if row} <= {"STORE", str(g1_store), str(writer.root)}
    assert any(row.startswith(str(writer.root)) for row in rows)


def test_of_several_stores_the_worst_decides(g1_store: Path, tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "second")
    writer.append("TopicTest", b"another")
    writer.close()
    several = ("--store", g1_store, "--store", writer.root)
    vain = rocketlens("life", *several, "nobody")
    assert (vain.code, vain.errors.count(f"rocketlens: {writer.root}: nothing is named nobody")) == (1, 1)
    codes = [rocketlens("doctor", "--store", each, "--json").code for each in (g1_store, writer.root)]
    both = rocketlens("doctor", *several, "--json")
    assert (both.code, [each["store"] for each in both.messages]) == (max(codes), [str(g1_store), str(writer.root)])
    assert rocketlens("doctor", *several, "--store", tmp_path / "none").code == 3
    assert rocketlens("doctor", g1_store, *several).code == 2


@each_reader
def test_a_store_behind_a_url_is_read_or_the_command_says_why_not(
    command: str, g1_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_jobs_here(monkeypatch)
    place = f"memory://opening-{command}"
    memory = fsspec.filesystem("memory")
    memory.put(str(g1_store), place, recursive=True)
    try:
        found = run(command, place, "--storage-options", "{}")
    finally:
        memory.rm(place, recursive=True)
    if command == "space":
        assert (found.code, found.output) == (2, b"")
        assert "of a store behind a URL" in found.errors
    else:
        here = run(command, g1_store)
        assert (found.code, found.output) == (here.code, here.output.replace(str(g1_store).encode(), place.encode()))


@pytest.mark.parametrize("command", ["find", "doctor --json", "export --format csv"])
def test_the_address_of_a_page_is_answered_with_that_of_the_port(command: str, tmp_path: Path) -> None:
    name, *more = command.split()
    place = () if name != "export" else ("--out", tmp_path / "out")
    outcome = rocketlens(name, "http://[::1]:8080/find?text=a", *(more or ["a"]), *place)
    assert (outcome.code, outcome.output) == (2, b"")
    assert "if this is the page of a RocketLens server, name its remoting port: [::1]:PORT, 10911" in outcome.errors
    outcome = rocketlens(name, "s3://[bucket/store", *(more or ["a"]), *place)
    assert (outcome.code, outcome.errors) == (2, "rocketlens: s3://[bucket/store: Invalid IPv6 URL\n")


def test_a_topic_and_a_group_may_stand_behind_the_source(g1_store: Path) -> None:
    for command in ("tail", "topics", "pending"):
        assert rocketlens(command, g1_store, "TopicTest") == rocketlens(command, g1_store, "--topic", "TopicTest")
    behind, by_option = (
        run("search", g1_store),
        rocketlens("search", g1_store, "TopicTest", "--contains", "hot 1", "--json"),
    )
    assert behind.output == by_option.output
    assert rocketlens("groups", g1_store, "CG_FAIL") == rocketlens("groups", g1_store, "--group", "CG_FAIL")


@pytest.mark.parametrize(
    "arguments",
    [
        ("diff", NOBODY, "STORE"),
        ("diff", "STORE", NOBODY),
        ("export", NOBODY, "--out", "OUT", "--format", "csv"),
        *(("rebuild", kind, NOBODY, "--out", "OUT") for kind in ("all", "index", "queues")),
        *((command, NOBODY, "--out", "OUT") for command in ("convert", "rescue")),
        ("compact", "index", NOBODY, "--out", "OUT"),
    ],
    ids=" ".join,
)
def test_what_reads_the_files_of_a_store_says_so_of_a_server(
    arguments: tuple[str, ...], g1_store: Path, tmp_path: Path
) -> None:
    places = {"STORE": str(g1_store), "OUT": str(tmp_path / "out")}
    outcome = rocketlens(*(places.get(each, each) for each in arguments))
    assert (outcome.code, outcome.output) == (2, b"")
    assert outcome.errors.endswith(
        f"rocketlens: {NOBODY} is a server, and the files of a store are read here: name its directory\n"
    )
    assert not (tmp_path / "out").exists()
