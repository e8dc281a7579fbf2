"""Commands that are imported when they are asked for."""

import sys

import click
import pytest
from click.testing import CliRunner

from rocketlens.cli.lazy_group import Later, LazyGroup
from rocketlens.cli.main import main

NAME = "lazy_group_command"


@pytest.fixture
def group() -> click.Group:
    return LazyGroup("group", later={"later": Later(f"{NAME}:command", "Comes late."), "at": Later("nowhere:at", "")})


def test_a_command_is_imported_when_it_is_asked_for(group: click.Group, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModuleNotFoundError, match=NAME):
        CliRunner().invoke(group, ["later"], catch_exceptions=False)
    module = type(sys)(NAME)
    vars(module)["command"] = click.Command("other", callback=lambda: click.echo("late"))
    monkeypatch.setitem(sys.modules, NAME, module)
    assert CliRunner().invoke(group, ["later"]).output == "late\n"


def test_commands_are_listed_without_being_imported(group: click.Group) -> None:
    assert "Comes late." in CliRunner().invoke(group, ["--help"]).output


def test_names_are_listed_in_order_and_others_are_unknown(group: click.Group) -> None:
    context = click.Context(group)
    assert group.list_commands(context) == ["at", "later"]
    assert group.get_command(context, "never") is None


def test_every_command_of_the_program_is_where_the_list_says() -> None:
    context = click.Context(main)
    groups = [main]
    seen = set()
    while groups:
        group = groups.pop()
        listed = CliRunner().invoke(group, ["--help"]).output
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            assert f"\n  {name} " in listed
            seen.add(name)
            if isinstance(command, click.Group):
                groups.append(command)
    assert {"serve", "rebuild", "index"} <= seen
