"""The benchmark of starts."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.start import cost_of

HUNDRED_MB = "import sys\nsys.held = b'x' * 100_000_000"
BUSY = "import time\nwhile time.process_time() < 0.2: pass"


def test_the_costs_are_those_of_the_command_alone(tmp_path: Path) -> None:
    def cost(code: str) -> tuple[float, float, float, float]:
        script = tmp_path / "script.py"
        script.write_text(code)
        measured = cost_of(str(script))
        return measured.cpu_seconds, measured.seconds, measured.resident, measured.private

    held = bytearray(b"x" * 300_000_000)
    (_, _, small, private), (_, _, large, private_large), (busy, seconds, *_) = map(cost, ("pass", HUNDRED_MB, BUSY))
    assert len(held) / 1e6 > large > small + 90
    assert private_large > private + 90
    assert busy >= 0.2
    assert seconds >= 0.2


def test_python_alone_is_measured_where_no_script_is_named() -> None:
    assert 0 < cost_of().private < 100


def test_a_command_that_fails_has_no_cost(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("raise SystemExit(3)")
    with pytest.raises(subprocess.CalledProcessError):
        cost_of(str(tmp_path / "script.py"))
