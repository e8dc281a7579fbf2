"""Every benchmark that the pages name starts as they say: `python -m benchmarks.NAME`."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_benchmark_that_a_page_names_starts() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    names = sorted({name for page in pages for name in re.findall(r"python -m (benchmarks[\w.]*)", page.read_text())})
    assert len(names) > 12
    helps = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    imported = subprocess.run(
        [sys.executable, "-c", helps, *names], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert imported.returncode == 0, imported.stderr
