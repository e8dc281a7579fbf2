"""Commands that are imported when they are asked for."""

import sys

import click
import pytest
from click.testing import CliRunner

from broker.cli.lazy_group import LazyGroup

NAME = "lazy_group_command"


@pytest.fixture
def group() -> click.Group:
    group = LazyGroup("group", later={"later": f"{NAME}:command"})
    group.add_command(click.Command("now", callback=lambda: click.echo("now")))
    return group


def test_a_command_is_imported_when_it_is_asked_for(group: click.Group, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CliRunner().invoke(group, ["now"]).output == "now\n"
    with pytest.raises(ModuleNotFoundError, match=NAME):
        CliRunner().invoke(group, ["later"], catch_exceptions=False)
    module = type(sys)(NAME)
    vars(module)["command"] = click.Command("other", callback=lambda: click.echo("late"), help="Comes late.")
    monkeypatch.setitem(sys.modules, NAME, module)
    assert CliRunner().invoke(group, ["later"]).output == "late\n"
    assert "Comes late." in CliRunner().invoke(group, ["--help"]).output


def test_names_are_listed_in_order_and_others_are_unknown(group: click.Group) -> None:
    context = click.Context(group)
    assert group.list_commands(context) == ["later", "now"]
    assert group.get_command(context, "never") is None
