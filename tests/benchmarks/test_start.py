"""The benchmark of starts."""

import subprocess
import sys

import pytest

from benchmarks.start import cost_of

HUNDRED_MB = "held = b'x' * 100_000_000"
BUSY = "import time\nwhile time.process_time() < 0.2: pass"


def test_the_costs_are_those_of_the_command_alone() -> None:
    held = bytearray(b"x" * 300_000_000)
    small, large, busy = (cost_of([sys.executable, "-c", code]) for code in ("pass", HUNDRED_MB, BUSY))
    assert len(held) / 1e6 > large.memory > small.memory + 90
    assert busy.cpu_seconds >= 0.2
    assert small.seconds > 0


def test_a_command_that_fails_has_no_cost() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        cost_of([sys.executable, "-c", "raise SystemExit(3)"])
