"""Names of before, completion, and how commands end when their output cannot be written."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from command_line import EARLIER_NAME, rocketlens
from read_only import as_user, reachable_directory
from rocketlens.cli import complete_names
from rocketlens.cli.main import main
from store_writer import appended, closed_store

UNIQUE_KEY = "FD000000000000000000000000000002708C30946E09687211CE0017"
OFFSET_ID = "7F00000100002A9F00000000000019B5"

SAME = [
    ("find STORE hotkey --json", "--max 3", "--limit 3"),
    ("filter STORE --topic TopicTest --json", "--sql a=5 --max 2", "--where a=5 --limit 2"),
    ("search STORE --json", "--from 2000 --to 2100", "--since 2000 --until 2100"),
]


def line_that_is_printed(*words: str) -> list[str]:
    said = CliRunner().invoke(main, words, prog_name="rocketlens").stderr.splitlines()
    (line,) = (each.partition(EARLIER_NAME)[2] for each in said if EARLIER_NAME in each)
    return shlex.split(line)


@pytest.mark.parametrize(("line", "earlier", "now"), SAME)
def test_an_earlier_spelling_is_the_new_one(line: str, earlier: str, now: str, g1_store: Path) -> None:
    words = [str(g1_store) if word == "STORE" else word for word in line.split()]
    outcomes = [rocketlens(*words, *options.split()) for options in (earlier, now)]
    printed = rocketlens(*line_that_is_printed(*words, *earlier.split()))
    assert (printed.code, printed.output) == (outcomes[1].code, outcomes[1].output)
    assert outcomes[0].output == outcomes[1].output
    assert outcomes[0].code == outcomes[1].code
    assert outcomes[0].errors.count("\n") == outcomes[1].errors.count("\n")


def test_an_earlier_name_of_a_command_works_and_prints_the_new_line(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(main, ["clean", str(tmp_path)])
    now = CliRunner().invoke(main, ["rebuild", "clean", str(tmp_path)])
    assert outcome.stderr == (
        f"rocketlens: `clean` will go with the next release, type: rocketlens rebuild clean {tmp_path}\n{now.stderr}"
    )
    assert (outcome.exit_code, outcome.stdout) == (now.exit_code, now.stdout)


OLD = [
    ("view STORE ID --damaged --topic TopicTest --body -", "find STORE ID --topic TopicTest --body -"),
    (
        "lookup STORE KEYS --as physical-offset --topic TopicTest",
        "find STORE -f KEYS --as physical-offset --topic TopicTest",
    ),
    ("query STORE --topic TopicTest --tag TagD -v", "find STORE TagD --as tag --topic TopicTest -v"),
    (
        "query STORE --topic TopicTest --key hotkey --max 2 --json",
        "find STORE hotkey --as key --topic TopicTest --limit 2 --json",
    ),
]
"""What was typed, and what does the same."""


@pytest.mark.parametrize(("line", "now"), OLD)
def test_a_command_that_find_has_taken_the_place_of_finds_the_same(line, now, g1_store, tmp_path) -> None:
    (tmp_path / "keys").write_text(f"hotkey\n{OFFSET_ID}\n0\nnowhere\n")
    places = {"STORE": str(g1_store), "U": UNIQUE_KEY, "ID": OFFSET_ID, "KEYS": str(tmp_path / "keys")}
    outcome, other = (rocketlens(*(places.get(word, word) for word in each.split())) for each in (line, now))
    name = line.split()[0]
    assert rocketlens(*line_that_is_printed(*(places.get(word, word) for word in line.split()))) == other
    assert (outcome.code, outcome.errors) == (other.code, other.errors)
    lines = other.output.splitlines(keepends=True)
    if name == "query":  # which lists the newest last
        lines = [*lines[::-1]] if "--json" in line else [*lines[:1], *lines[:0:-1]]
    assert outcome.output == b"".join(lines)


SHELLS = ("bash", "zsh", "fish")


def test_an_option_in_the_environment_counts_and_a_typed_one_more(g1_store, monkeypatch) -> None:
    arguments = ("find", g1_store, "hotkey", "--json")
    assert len(rocketlens(*arguments).messages) == 40
    monkeypatch.setenv("ROCKETLENS_FIND_TOPIC", "TopicTest")
    monkeypatch.setenv("ROCKETLENS_FIND_LIMIT", "3")
    assert len(rocketlens(*arguments).messages) == 3
    assert len(rocketlens(*arguments, "--limit", 5).messages) == 5
    monkeypatch.setenv("ROCKETLENS_FIND_LIMIT", "many")
    outcome = rocketlens(*arguments)
    assert outcome.code == 2
    assert "ROCKETLENS_FIND_LIMIT" in outcome.errors


HARMLESS = ("orders", "ordered", "%RETRY%billing")
HOSTILE = ("$(touch pwned)", "`touch pwned`", "a;touch pwned", "a|touch pwned", "a\nb", "a b", "*", "~root", "-rf")
HOSTILE += ("a,b", "'", "é")
"""Names that a store may hold, of which no shell is to see any, not even in quotes."""


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(complete_names, "SECONDS", 60.0)
    writer = closed_store(tmp_path / "store", appended("orders"))
    queues = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    topics = {name: {"topicName": name, **queues} for name in (*HARMLESS, *HOSTILE)}
    (writer.root / "config").mkdir(exist_ok=True)
    (writer.root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics, "dataVersion": {}}))
    offsets = {f"orders@{group}": {"0": 1} for group in ("billing", "binding", "a;b")}
    (writer.root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return writer.root


def completions(*words: object, incomplete: str = "") -> list[str]:
    completing = BashComplete(main, {}, "rocketlens", "_ROCKETLENS_COMPLETE")
    return [each.value for each in completing.get_completions(list(map(str, words)), incomplete)]


@pytest.mark.parametrize(
    ("words", "incomplete", "expected"),
    [
        (("tail", "STORE"), "ord", ["ordered", "orders"]),
        (("topics", "STORE"), "", ["%RETRY%billing", "ordered", "orders"]),
        (("export", "STORE", "--topic"), "ord", ["ordered", "orders"]),
        (("groups", "STORE"), "", ["billing", "binding"]),
        (("groups", "STORE", "--group"), "bill", ["billing"]),
        (("tail", "NOWHERE"), "ord", []),
        (("tail", "s3://bucket/store"), "ord", []),
    ],
)
def test_topics_and_groups_of_the_source_are_completed(words, incomplete, expected, named, tmp_path) -> None:
    places = {"STORE": named, "NOWHERE": tmp_path / "nowhere"}
    assert completions(*(places.get(word, word) for word in words), incomplete=incomplete) == expected


@pytest.mark.parametrize("damage", [None, b"{"])
def test_bash_says_nothing_where_a_store_is_damaged_and_runs_nothing_that_it_holds(damage, named, tmp_path) -> None:
    if damage is not None:
        (named / "config" / "topics.json").write_bytes(damage)
    asked = (
        f'eval "$(cat)"; cd {tmp_path}; COMP_WORDS=(rocketlens tail {named} ""); COMP_CWORD=3; '
        '_rocketlens_completion rocketlens; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    script = rocketlens("completion", "bash").output
    outcome = subprocess.run(["bash", "-c", asked], input=script, capture_output=True, check=True, env=environment)
    assert outcome.stderr == b""
    assert {*outcome.stdout.split()} <= {b"%RETRY%billing", b"ordered", b"orders"}
    assert not list(tmp_path.rglob("*pwned*"))


@pytest.mark.parametrize("shell", SHELLS)
def test_a_program_of_another_name_is_completed_too(shell: str) -> None:
    assert f"_ROCKETLENS_COMPLETE={shell}_complete" in rocketlens("completion", shell).text
    outcome = rocketlens("completion", shell, "--program", "rl")
    assert outcome.code == 0
    assert "rocketlens" not in outcome.text
    ends = {"bash": " rl\n", "zsh": "compdef _rl_completion rl\n", "fish": "--command rl "}
    assert ends[shell] in outcome.text


@pytest.mark.parametrize(
    "words",
    [
        "search STORE --json",
        "view STORE 0",
        f"life STORE {UNIQUE_KEY} --json",
        "lookup STORE KEYS",
        "doctor STORE",
        "diff STORE STORE",
    ],
)
def test_a_command_whose_output_nobody_reads_ends_quietly(g1_store, tmp_path, monkeypatch, capsys, words) -> None:
    keys = tmp_path / "keys"
    keys.write_text("hotkey\n")
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as unread:
        monkeypatch.setattr(sys, "stdout", unread)
        with pytest.raises(SystemExit) as end:
            main([{"STORE": str(g1_store), "KEYS": str(keys)}.get(word, word) for word in words.split()])
    assert end.value.code == 141
    assert "roken" not in capsys.readouterr().err


@pytest.mark.parametrize("words", ["search STORE --json", "lookup STORE KEYS"])
def test_a_disk_that_is_full_under_the_output_is_said_in_a_line(g1_store, tmp_path, monkeypatch, capsys, words) -> None:
    keys = tmp_path / "keys"
    keys.write_text("hotkey\n")
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as end:
            main([{"STORE": str(g1_store), "KEYS": str(keys)}.get(word, word) for word in words.split()])
    assert end.value.code == 2
    assert "rocketlens: the output cannot be written: No space left on device\n" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("closed", [".", "commitlog"])
def test_another_user_learns_why_a_store_cannot_be_read(closed: str) -> None:
    with reachable_directory() as directory:
        writer = closed_store(directory / "store", appended("T", b"x"))
        (writer.root / closed).chmod(0o700)
        with as_user(10001):
            outcome = rocketlens("find", writer.root, 0)
    assert (outcome.code, outcome.output) == (3, b"")
    assert "this process runs as UID 10001, which may not read" in outcome.errors
    assert outcome.errors.count("\n") == 1
