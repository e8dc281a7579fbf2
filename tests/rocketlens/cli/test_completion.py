"""Environment variables that give options, and what shells complete."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete

from broker_harness import service_of, serving_in_a_thread
from cli_reference import commands
from command_line import rocketlens
from rocketlens.cli import complete_names
from rocketlens.cli.main import main
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

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


HARMLESS = ("orders", "ordered", "%RETRY%billing")
HOSTILE = (
    "$(touch pwned)",
    "`touch pwned`",
    "a;touch pwned",
    "a|touch pwned",
    "a\nb",
    "a b",
    "*",
    "~root",
    "-rf",
    "a,b",
    "'",
    "é",
)
"""Names that a store may hold, of which no shell is to see any, not even in quotes."""


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(complete_names, "SECONDS", 60.0)
    writer = StoreWriter(tmp_path / "store")
    writer.append("orders")
    writer.close()
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
        (("tail", "--store", "STORE"), "ord", ["ordered", "orders"]),
        (("topics", "STORE"), "", ["%RETRY%billing", "ordered", "orders"]),
        (("export", "STORE", "--topic"), "ord", ["ordered", "orders"]),
        (("groups", "STORE"), "", ["billing", "binding"]),
        (("groups", "STORE", "--group"), "bill", ["billing"]),
        (("find", "STORE"), "ord", []),
        (("tail", "NOWHERE"), "ord", []),
        (("tail", "127.0.0.1:1"), "ord", []),
        (("tail", "s3://bucket/store"), "ord", []),
        (("tail", "--topic"), "ord", []),
    ],
)
def test_topics_and_groups_of_the_source_are_completed(
    words: tuple[str, ...], incomplete: str, expected: list[str], named: Path, tmp_path: Path
) -> None:
    places = {"STORE": named, "NOWHERE": tmp_path / "nowhere"}
    assert completions(*(places.get(word, word) for word in words), incomplete=incomplete) == expected


def test_topics_of_a_server_are_completed(named: Path) -> None:
    with serving_in_a_thread(service_of(MessageStore.open(named))) as endpoint:
        assert completions("tail", endpoint, incomplete="ord") == ["ordered", "orders"]


@pytest.mark.parametrize("damage", [None, b"{"])
def test_bash_says_nothing_where_a_store_is_damaged_and_runs_nothing_that_it_holds(
    damage: bytes | None, named: Path, tmp_path: Path
) -> None:
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
