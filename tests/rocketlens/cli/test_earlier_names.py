"""Names and spellings of the release before work, and are nowhere in the help."""

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli_reference import commands
from command_line import EARLIER_NAME, rocketlens
from rocketlens.cli.main import COMMANDS, main

UNIQUE_KEY = "FD000000000000000000000000000002708C30946E09687211CE0017"
OFFSET_ID = "7F00000100002A9F00000000000019B5"

SAME = [
    ("find STORE hotkey --json", "--max 3", "--limit 3"),
    ("filter STORE --topic TopicTest --json", "--sql a=5 --max 2", "--where a=5 --limit 2"),
    ("search STORE --json", "--from 2000 --to 2100", "--since 2000 --until 2100"),
]


def line_that_is_printed(*words: str) -> list[str]:
    """The words behind `rocketlens` of the line that a call prints which is typed otherwise now."""
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
    ("view STORE ID --json", "find STORE ID --json"),
    ("view STORE ID --damaged --topic TopicTest --body -", "find STORE ID --topic TopicTest --body -"),
    ("lookup STORE KEYS", "find STORE -f KEYS"),
    (
        "lookup STORE KEYS --as physical-offset --topic TopicTest",
        "find STORE -f KEYS --as physical-offset --topic TopicTest",
    ),
    ("query STORE --topic TopicTest --tag TagD -v", "find STORE TagD --as tag --topic TopicTest -v"),
    ("query STORE --topic T --key k --copies --json", "find STORE k --as key --topic T --copies --json"),
    (
        "query STORE --topic TopicTest --key hotkey --max 2 --json",
        "find STORE hotkey --as key --topic TopicTest --limit 2 --json",
    ),
]
"""What was typed, and what does the same."""


@pytest.mark.parametrize(("line", "now"), OLD)
def test_a_command_that_find_has_taken_the_place_of_finds_the_same(
    line: str, now: str, g1_store: Path, tmp_path: Path
) -> None:
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


def test_the_new_line_is_one_that_can_be_typed() -> None:
    earlier = {name: each.now for name, each in COMMANDS.items() if each.now}
    assert {"clean", "fetch", "lookup", "query", "verify", "view"} <= set(earlier)
    for now in earlier.values():
        words = [word for word in now.split() if word.islower() and not word.startswith("-")]
        assert " ".join(words) in commands()
        assert words[0] not in earlier
