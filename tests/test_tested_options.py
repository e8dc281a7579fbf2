"""Every option of the command line is typed by a test of its command."""

import re
from pathlib import Path

import click

from cli_reference import commands

TESTS = Path(__file__).parent


def test_every_option_is_typed_in_a_module_that_names_its_command() -> None:
    texts = [path.read_text() for path in TESTS.rglob("test_*.py") if "node_modules" not in path.parts]
    typed = [(set(re.findall(r"[\w-]+", text)), set(re.findall(r"--[a-z][\w-]*|-\w\b", text))) for text in texts]
    for name, command in commands().items():
        words = set().union(*(options for named, options in typed if set(name.split()) <= named))
        options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
        spelled = [(*each.opts, *each.secondary_opts) for each in options]
        assert [names for names in spelled if not words & set(names)] == [], name
