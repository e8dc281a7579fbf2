"""The layers hold, and the contracts that say so really fail."""

import re
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("broker", "protocol", "rocketlens", "spark_jobs", "storage")

VIOLATIONS = {
    "protocol imports storage": ("protocol/planted.py", "import storage", "broker | spark_jobs > storage > protocol"),
    "storage imports broker": ("storage/planted.py", "import broker", "broker | spark_jobs > storage > protocol"),
    "spark_jobs imports broker": ("spark_jobs/planted.py", "import broker", "broker | spark_jobs > storage > protocol"),
    "broker imports spark_jobs": ("broker/planted.py", "import spark_jobs", "broker | spark_jobs > storage > protocol"),
    "a scan imports a job": (
        "spark_jobs/scan/planted.py",
        "def late():\n    import spark_jobs.build",
        "inside spark_jobs: commands > publish > the jobs > build, read > scan > run",
    ),
    "a job imports another": (
        "spark_jobs/verify/planted.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import spark_jobs.compact",
        "inside spark_jobs: commands > publish > the jobs > build, read > scan > run",
    ),
    "broker imports its command line": (
        "broker/planted.py",
        "import broker.cli",
        "nothing but the command imports broker.cli",
    ),
    "protocol opens sockets": ("protocol/planted.py", "import socket", "no event loop and no socket below broker"),
    "the check imports a package": (
        "rocketlens/origins/planted.py",
        "import protocol",
        "what checks our packages imports none of them",
    ),
    "a kernel awaits": ("storage/kernels/planted.py", "import asyncio", "no event loop and no socket below broker"),
    "the server imports pyspark": (
        "broker/service/processors/planted.py",
        "def late():\n    import pyspark",
        "pyspark and pyarrow stay out of what the server imports",
    ),
}


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    code = "import sys; from importlinter.cli import lint_imports_command as run; run(['--no-cache'])"
    return subprocess.run([sys.executable, "-c", code], cwd=directory, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def skeleton(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages with empty modules and the project's real contracts, for planting violations."""
    directory = tmp_path_factory.mktemp("skeleton")
    shutil.copy(ROOT / "pyproject.toml", directory)
    for package in (
        "broker",
        "broker/cli",
        "broker/service",
        "broker/service/processors",
        "protocol",
        "rocketlens",
        "rocketlens/origins",
        "spark_jobs",
        "spark_jobs/build",
        "spark_jobs/compact",
        "spark_jobs/scan",
        "spark_jobs/verify",
        "storage",
        "storage/kernels",
    ):
        (directory / package).mkdir()
        (directory / package / "__init__.py").touch()
    return directory


def test_the_import_contracts_hold() -> None:
    outcome = lint_imports(ROOT)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_the_import_contracts_hold_on_the_bare_skeleton(skeleton: Path) -> None:
    assert lint_imports(skeleton).returncode == 0


@pytest.mark.parametrize(("path", "code", "contract"), VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_a_planted_violation_breaks_its_contract(skeleton: Path, path: str, code: str, contract: str) -> None:
    planted = skeleton / path
    planted.write_text(f"{code}\n")
    try:
        outcome = lint_imports(skeleton)
    finally:
        planted.unlink()
    assert outcome.returncode == 1
    assert f"{contract} BROKEN" in outcome.stdout


def test_what_serve_imports_is_free_of_spark() -> None:
    code = (
        "import importlib, pkgutil, sys\n"
        "import broker.cli.main, broker.cli.serve\n"
        "for package in ('broker', 'protocol', 'storage'):\n"
        "    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + '.'):\n"
        "        if not module.name.startswith('broker.cli.'):\n"
        "            importlib.import_module(module.name)\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules} & {'pyspark', 'pyarrow', 'py4j', 'spark_jobs'}))\n"
    )
    outcome = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.strip() == ""


def test_no_spark_job_bears_the_name_of_another_module() -> None:
    """The folder of a submitted script comes first on `sys.path`: what lies in it hides all others of its name."""
    names = {path.stem for path in (ROOT / "spark_jobs").iterdir()} - {"__init__", "__pycache__", "py"}
    assert {"rebuild_all", "run"} < names
    assert not names & (sys.stdlib_module_names | packages_distributions().keys())


@pytest.mark.parametrize("package", PACKAGES)
def test_no_source_module_spells_out_a_binary_layout_inside_a_function(package: str) -> None:
    """Layouts are named `Struct` constants under the docstring that explains them; no call takes a format string."""
    for path in (ROOT / package).rglob("*.py"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            assert not re.search(r"\bstruct\.(un)?pack(_from|_into)?\(", line), f"{path.relative_to(ROOT)}:{number}"
