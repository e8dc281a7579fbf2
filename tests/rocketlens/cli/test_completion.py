"""Environment variables that give options, and what shells complete."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cli_reference import commands
from command_line import rocketlens
from rocketlens.cli.main import main

OF_ALL = "ROCKETLENS_TIMEZONE"
"""The zone of a person is that of all commands."""

SHELLS = ("bash", "zsh", "fish")


def test_every_option_can_be_given_in_the_environment() -> None:
    named = {}
    for name, command in commands().items():
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                variables = [option.envvar] if isinstance(option.envvar, str) else option.envvar
                assert variables, (name, option.name)
                assert not set(variables) & {*named} - {OF_ALL}, variables
                named |= dict.fromkeys(variables, name)
    assert {OF_ALL, "ROCKETLENS_FIND_LIMIT", "ROCKETLENS_SERVE_TLS_CERT", "ROCKETLENS_REBUILD_INDEX_OUT"} <= set(named)


def test_an_option_in_the_environment_counts_and_a_typed_one_more(
    g1_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_flags_and_repeatable_options_are_read_from_the_environment(
    g1_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETLENS_SPACE_JSON", "1")
    monkeypatch.setenv("ROCKETLENS_SPACE_BY", "topic tag")
    kinds = {each["kind"] for each in rocketlens("space", g1_store).messages}
    assert {"topic", "tag"} <= kinds
    assert not {"queue", "host", "hour"} & kinds


def test_a_format_that_is_typed_counts_more_than_another_in_the_environment(
    g1_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETLENS_INFO_FORMAT", "msgpack")
    assert rocketlens("info", g1_store, "--json").output[:1] == b"{"
    monkeypatch.setenv("ROCKETLENS_INFO_JSON", "true")
    assert rocketlens("info", g1_store, "--format", "table").text.split()[0] == "where"
    outcome = rocketlens("info", g1_store)
    assert (outcome.code, outcome.output) == (2, b"")
    assert "--json and --format msgpack exclude each other" in outcome.errors
    assert rocketlens("info", g1_store, "--json", "--format", "table").code == 2


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_is_given_what_asks_the_command_for_completions(shell: str) -> None:
    outcome = rocketlens("completion", shell)
    assert outcome.code == 0
    assert f"_ROCKETLENS_COMPLETE={shell}_complete" in outcome.text


@pytest.mark.parametrize("shell", SHELLS)
def test_a_program_of_another_name_is_completed_too(shell: str) -> None:
    outcome = rocketlens("completion", shell, "--program", "rl")
    assert outcome.code == 0
    assert "rocketlens" not in outcome.text
    ends = {"bash": " rl\n", "zsh": "compdef _rl_completion rl\n", "fish": "--command rl "}
    assert ends[shell] in outcome.text


def test_bash_completes_what_is_typed() -> None:
    """Bash itself calls the function, and the function the program."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    asked = (
        'eval "$(cat)"; COMP_WORDS=(rocketlens find --stor); COMP_CWORD=2; _rocketlens_completion rocketlens; '
        'echo "${COMPREPLY[@]}"'
    )
    script = rocketlens("completion", "bash").output
    environment = {**os.environ, "PATH": path}
    outcome = subprocess.run(["bash", "-c", asked], input=script, capture_output=True, check=True, env=environment)
    assert outcome.stdout.split() == [b"--store", b"--storage-options"]


def test_bash_understands_it() -> None:
    script = rocketlens("completion", "bash").text
    subprocess.run(["bash", "-n"], input=script.encode(), check=True)
    known = 'eval "$(cat)"; complete -p rocketlens'
    outcome = subprocess.run(["bash", "-c", known], input=script.encode(), capture_output=True, check=True)
    assert b"_rocketlens_completion" in outcome.stdout


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("f", ["find"]),
        ("rebuild ", ["all", "clean", "fetch", "index", "queues"]),
        ("find --sto", ["--storage-options", "--store"]),
        ("query --format j", ["json"]),
        ("completion z", ["zsh"]),
    ],
)
def test_commands_options_and_values_are_completed(typed: str, expected: list[str]) -> None:
    from click.shell_completion import BashComplete

    *words, incomplete = typed.split(" ")
    found = BashComplete(main, {}, "rocketlens", "_ROCKETLENS_COMPLETE").get_completions(words, incomplete)
    assert sorted(each.value for each in found) == expected


def test_an_unknown_shell_is_wrong_usage() -> None:
    outcome = rocketlens("completion", "tcsh")
    assert outcome.code == 2
    assert "'tcsh' is not one of" in outcome.errors
