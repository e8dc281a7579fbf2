"""Every command and every option of the command line is typed by a test, and answers what a broker recorded."""

import click
import pytest

from cli_reference import commands
from tested_options import TypedBy, typed_by_tests, typed_together

COMMANDS = {name: command for name, command in commands().items() if not isinstance(command, click.Group)}
NOTHING_RECORDED = {"completion"}
"""Commands that say nothing of a store."""


@pytest.fixture(scope="module")
def tests() -> list[TypedBy]:
    found = list(typed_by_tests())
    assert len(found) > 500
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_typed_by_a_test_of_its_command(name: str, tests: list[TypedBy]) -> None:
    words, is_golden = typed_together(tests, name)
    options = [each for each in COMMANDS[name].params if isinstance(each, click.Option) and not each.hidden]
    spelled = [(*each.opts, *each.secondary_opts) for each in options]
    assert len(spelled) > 0
    assert [names for names in spelled if not words & set(names)] == []
    assert is_golden or name in NOTHING_RECORDED


def test_an_option_that_no_test_types_is_noticed(tests: list[TypedBy]) -> None:
    words, is_golden = typed_together(tests, "find")
    assert {"--topic", "--limit"} <= words
    assert is_golden
    assert "-".join(["", "", "never", "typed"]) not in words
    assert typed_together(tests, "-".join(["no", "such", "command"])) == (set(), False)
