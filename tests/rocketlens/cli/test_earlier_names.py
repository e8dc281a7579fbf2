"""Names and spellings of the release before work, and are nowhere in the help."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli_reference import command_line_reference, commands
from command_line import rocketlens
from rocketlens.cli.main import COMMANDS, main
from rocketlens.cli.options import RenamedOption

KEY = ("--topic", "TopicTest", "--key", "hotkey", "--json")
SAME = [
    (f"query STORE {' '.join(KEY)}", "--max 3", "--limit 3"),
    (f"query STORE {' '.join(KEY)}", "--begin 2000 --end 2100", "--since 2000 --until 2100"),
    ("find STORE hotkey --json", "--max 3", "--limit 3"),
    ("find STORE hotkey --json", "--begin 2000 --end 2001", "--since 2000 --until 2001"),
    ("filter STORE --topic TopicTest --json", "--sql a=5 --max 2", "--where a=5 --limit 2"),
    ("tail STORE --topic TopicTest --json", "--sql a=5 --count 2", "--where a=5 --limit 2"),
    ("search STORE --json", "--from 2000 --to 2100", "--since 2000 --until 2100"),
]


@pytest.mark.parametrize(("line", "earlier", "now"), SAME)
def test_an_earlier_spelling_is_the_new_one(line: str, earlier: str, now: str, g1_store: Path) -> None:
    words = [str(g1_store) if word == "STORE" else word for word in line.split()]
    outcomes = [rocketlens(*words, *options.split()) for options in (earlier, now)]
    assert outcomes[0].output == outcomes[1].output
    assert outcomes[0].code == outcomes[1].code
    assert outcomes[0].errors.count("\n") == outcomes[1].errors.count("\n")


def test_an_earlier_variable_of_the_environment_is_the_new_one(g1_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETLENS_QUERY_MAX", "3")
    assert len(rocketlens("query", g1_store, *KEY).messages) == 3
    monkeypatch.setenv("ROCKETLENS_QUERY_LIMIT", "2")
    assert len(rocketlens("query", g1_store, *KEY).messages) == 2


def test_help_shows_no_earlier_spelling() -> None:
    renamed = {
        (name, spelling)
        for name, command in commands().items()
        for option in command.params
        if isinstance(option, RenamedOption)
        for spelling in option.earlier
    }
    assert len(renamed) >= 12
    for name, spelling in renamed - {("export", "--to")}:
        section = command_line_reference().split(f"\n## rocketlens {name}\n", 1)[1].split("\n## ", 1)[0]
        assert f"{spelling} " not in section, name


def test_an_earlier_name_of_a_command_works_and_prints_the_new_line(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(main, ["clean", str(tmp_path)])
    now = CliRunner().invoke(main, ["rebuild", "clean", str(tmp_path)])
    assert outcome.stderr == (
        f"rocketlens: `clean` will go with the next release, type: rocketlens rebuild clean URL\n{now.stderr}"
    )
    assert (outcome.exit_code, outcome.stdout) == (now.exit_code, now.stdout)


def test_the_new_line_is_one_that_can_be_typed() -> None:
    earlier = {name: each.now for name, each in COMMANDS.items() if each.now}
    assert {"clean", "fetch", "verify", "view"} <= set(earlier)
    for now in earlier.values():
        words = [word for word in now.split() if word.islower() and not word.startswith("-")]
        assert " ".join(words) in commands()
        assert words[0] not in earlier


@pytest.mark.parametrize(("typed", "meant"), [("finde", "find"), ("sarch", "search"), ("Tail", "tail")])
def test_a_slip_of_the_finger_is_answered_with_what_may_be_meant(typed: str, meant: str) -> None:
    outcome = rocketlens(typed, "x")
    assert outcome.code == 2
    assert outcome.errors.splitlines()[-1].startswith(f"Error: No such command '{typed}': ")
    assert meant in outcome.errors.splitlines()[-1]


def test_help_and_version_are_what_the_options_are() -> None:
    for names in ([], ["find"], ["rebuild", "index"]):
        assert rocketlens("help", *names).text == rocketlens(*names, "--help").text
    assert rocketlens("version").text == rocketlens("-V").text == rocketlens("--version").text
    assert isinstance(main, click.Group)
