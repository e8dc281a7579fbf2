"""Runs a `rocketlens` command inside the test's process."""

import json
from dataclasses import dataclass

from click.testing import CliRunner

from rocketlens.cli.main import main

EARLIER_NAME = "will go with the next release, type: rocketlens "
"""What is said of a command's earlier name; tests/rocketlens/cli/test_command_line.py asserts it."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended: exit code, stdout as bytes, stderr as text, but for the line about an earlier name."""

    code: int
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        return self.output.decode()

    @property
    def messages(self):
        return [json.loads(line) for line in self.output.splitlines()]


def rocketlens(*arguments: object) -> Outcome:
    outcome = CliRunner().invoke(main, list(map(str, arguments)), prog_name="rocketlens")
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
        raise outcome.exception
    errors = "".join(line for line in outcome.stderr.splitlines(keepends=True) if EARLIER_NAME not in line)
    return Outcome(outcome.exit_code, outcome.stdout_bytes, errors)
