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
SOURCES = [path for package in PACKAGES for path in (ROOT / package).rglob("*")]
LAYERS = "rocketlens > broker | spark_jobs > storage > protocol"
BROKER = "in broker every folder imports what lies below it"
STORAGE = "the folders of storage import one way"
SPARK_JOBS = "the folders of spark_jobs import one way"
COMMAND = "nothing but the start of the command imports rocketlens.cli"
PYSPARK = "pyspark and pyarrow stay out of what the server imports"
CIRCLES = "no modules import one another in a circle"

VIOLATIONS = (
    ("protocol/planted.py", "import storage", LAYERS),
    ("storage/planted.py", "import broker", LAYERS),
    ("broker/planted.py", "import spark_jobs", LAYERS),
    ("spark_jobs/run/planted.py", "def late():\n    import rocketlens.cli.main", LAYERS),
    ("broker/service/planted.py", "import rocketlens.store", LAYERS),
    ("spark_jobs/run/planted.py", "import click", "nothing below the command line knows of options"),
    ("rocketlens/store.py", "def late():\n    import rocketlens.cli.find", COMMAND),
    (
        "rocketlens/store.py",
        "import broker.cluster.client",
        "what opens a store needs no server, no network and no Spark",
    ),
    ("protocol/planted.py", "import socket", "no event loop and no socket below broker"),
    ("rocketlens/own_packages.py", "import protocol", "what checks our packages imports none of them"),
    ("storage/kernels/planted.py", "import storage.files.waiting", STORAGE),
    ("storage/planted/__init__.py", "", STORAGE),
    ("broker/service/planted.py", "def late():\n    import broker.net._session", BROKER),
    ("broker/server.py", "import broker.lane.fast_lane", "nothing but the wiring imports the fast lane"),
    ("broker/net/_session.py", "import asyncio", "a session imports no event loop and no socket"),
    ("spark_jobs/doctor/planted.py", "if TYPE_CHECKING:\n    import spark_jobs.compact.compact", SPARK_JOBS),
    ("broker/service/processors/planted.py", "def late():\n    import pyspark", PYSPARK),
)

CIRCLE = (
    ("storage/log/commit_log.py", "import storage.log.segment_end"),
    ("storage/log/segment_end.py", "def late():\n    import storage.log.commit_log"),
)


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    code = "import sys; from importlinter.cli import lint_imports_command as run; run(['--no-cache'])"
    return subprocess.run([sys.executable, "-c", code], cwd=directory, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def skeleton(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages with empty modules and the project's real contracts, for planting violations."""
    directory = tmp_path_factory.mktemp("skeleton")
    shutil.copy(ROOT / "pyproject.toml", directory)
    for module in (path for path in SOURCES if path.suffix == ".py"):
        empty = directory / module.relative_to(ROOT)
        empty.parent.mkdir(parents=True, exist_ok=True)
        empty.touch()
    return directory


@pytest.fixture(scope="module")
def broken(skeleton: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is said of each contract where all violations are planted, by the contract's name."""
    directory = tmp_path_factory.mktemp("planted") / "skeleton"
    shutil.copytree(skeleton, directory)
    for path, code in (*(each[:2] for each in VIOLATIONS), *CIRCLE):
        planted = directory / path
        planted.parent.mkdir(exist_ok=True)
        with planted.open("a") as module:
            module.write(f"{code}\n")
    outcome = lint_imports(directory)
    assert outcome.returncode == 1
    headings = re.split(r"^(.+)\n-+\n", outcome.stdout.partition("Broken contracts")[2], flags=re.MULTILINE)
    return dict(zip(headings[1::2], headings[2::2], strict=True))


def test_each_planted_violation_breaks_its_contract(broken: dict[str, str]) -> None:
    for path, code, contract in VIOLATIONS:
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        imported = code.rpartition("import ")[2]
        expected = rf"\b{module} -> {imported}\b" if imported else rf"\b{module.rpartition('.')[2]}\b"
        assert re.search(expected, broken[contract]), (path, code, broken[contract])


def test_a_circle_breaks_its_contract(broken: dict[str, str]) -> None:
    assert re.search(r"segment_end -> \.commit_log|commit_log -> \.segment_end", broken[CIRCLES])


def test_no_spark_job_bears_the_name_of_another_module() -> None:
    """The folder of a submitted script comes first on `sys.path`: what lies in it hides all others of its name."""
    names = {path.stem for path in (ROOT / "spark_jobs").iterdir()} - {"__init__", "__pycache__", "py"}
    assert {"rebuild_all", "run"} < names
    assert not names & (sys.stdlib_module_names | packages_distributions().keys())


IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import\s+([^\n]+)|c?import\s+([\w.]+))", re.MULTILINE)


def test_nobody_imports_a_private_module_of_another_folder() -> None:
    """A module whose name begins with an underscore is of its folder and of those below."""
    private = {path.relative_to(ROOT).with_suffix("") for path in SOURCES if re.match(r"_[^_].*\.py$", path.name)}
    assert len(private) > 50
    for path in (path for path in SOURCES if path.suffix in (".py", ".pyi", ".pyx", ".pxd", ".pxi")):
        for module, names, whole in IMPORT.findall(path.read_text()):
            imported = [whole or module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))]
            for found in private & {Path(each.replace(".", "/")) for each in imported}:
                assert path.relative_to(ROOT).is_relative_to(found.parent), (path, found)
