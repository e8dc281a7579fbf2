"""The layers hold, and the contracts that say so really fail."""

import re
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from doors import House

ROOT = Path(__file__).parent.parent
PACKAGES = ("broker", "protocol", "rocketlens", "spark_jobs", "storage")
LAYERS = "rocketlens > broker | spark_jobs > storage > protocol"
BROKER = "in broker every folder imports what lies below it"
STORAGE = "the folders of storage import one way"
SPARK_JOBS = "the folders of spark_jobs import one way"
CIRCLES = "no modules import one another in a circle"

VIOLATIONS = {
    "protocol imports storage": ("protocol/planted.py", "import storage", LAYERS),
    "storage imports broker": ("storage/planted.py", "import broker", LAYERS),
    "spark_jobs imports broker": ("spark_jobs/planted.py", "import broker", LAYERS),
    "broker imports spark_jobs": ("broker/planted.py", "import spark_jobs", LAYERS),
    "broker imports the command line": ("broker/planted.py", "import rocketlens.cli.main", LAYERS),
    "a job imports the command line": (
        "spark_jobs/run/planted.py",
        "def late():\n    import rocketlens.cli.main",
        LAYERS,
    ),
    "a script for spark-submit imports its command": (
        "spark_jobs/rebuild_all.py",
        "import rocketlens.cli.rebuild_all",
        LAYERS,
    ),
    "a job has options": (
        "spark_jobs/run/planted.py",
        "import click",
        "nothing below the command line knows of options",
    ),
    "a processor imports the public face": ("broker/service/planted.py", "import rocketlens.store", LAYERS),
    "the public face imports the command line late": (
        "rocketlens/store.py",
        "def late():\n    import rocketlens.cli.find",
        "nothing but the start of the command imports rocketlens.cli",
    ),
    "what opens a store imports the client": (
        "rocketlens/store.py",
        "def late():\n    import broker.cluster.client",
        "what opens a store needs no server, no network and no Spark",
    ),
    "protocol opens sockets": ("protocol/planted.py", "import socket", "no event loop and no socket below broker"),
    "the check imports a package": (
        "rocketlens/own_packages.py",
        "import protocol",
        "what checks our packages imports none of them",
    ),
    "a kernel awaits": ("storage/kernels/planted.py", "import asyncio", "no event loop and no socket below broker"),
    "a kernel imports a folder above it": ("storage/kernels/planted.py", "import storage.files.waiting", STORAGE),
    "a log imports its index late": (
        "storage/log/planted.py",
        "def late():\n    import storage.index.index_set",
        STORAGE,
    ),
    "a service imports what brings requests to it": (
        "broker/service/planted.py",
        "def late():\n    import broker.net._session",
        BROKER,
    ),
    "the server's life imports the fast lane": (
        "broker/server.py",
        "import broker.lane.fast_lane",
        "nothing but the wiring imports the fast lane",
    ),
    "a session has a loop": (
        "broker/net/_session.py",
        "import asyncio",
        "a session imports no event loop and no socket",
    ),
    "a queue imports an index for its types": (
        "storage/queue/planted.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import storage.index.index_set",
        STORAGE,
    ),
    "a scan imports a job late": (
        "spark_jobs/scan/planted.py",
        "def late():\n    import spark_jobs.build.rebuild",
        SPARK_JOBS,
    ),
    "a job imports another for its types": (
        "spark_jobs/doctor/planted.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import spark_jobs.compact.compact",
        SPARK_JOBS,
    ),
    "a folder of spark_jobs without a layer": ("spark_jobs/planted/__init__.py", "", SPARK_JOBS),
    "a folder of storage without a layer": ("storage/planted/__init__.py", "", STORAGE),
    "the server imports pyspark": (
        "broker/service/processors/planted.py",
        "def late():\n    import pyspark",
        "pyspark and pyarrow stay out of what the server imports",
    ),
}

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
    for module in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        empty = directory / module.relative_to(ROOT)
        empty.parent.mkdir(parents=True, exist_ok=True)
        empty.touch()
    return directory


def test_the_import_contracts_hold_on_the_bare_skeleton(skeleton: Path) -> None:
    assert lint_imports(skeleton).returncode == 0


@pytest.fixture(scope="module")
def broken(skeleton: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is said of each contract where all violations are planted, by the contract's name."""
    directory = tmp_path_factory.mktemp("planted") / "skeleton"
    shutil.copytree(skeleton, directory)
    for path, code in (*(each[:2] for each in VIOLATIONS.values()), *CIRCLE):
        planted = directory / path
        planted.parent.mkdir(exist_ok=True)
        with planted.open("a") as module:
            module.write(f"{code}\n")
    outcome = lint_imports(directory)
    assert outcome.returncode == 1
    headings = re.split(r"^(.+)\n-+\n", outcome.stdout.partition("Broken contracts")[2], flags=re.MULTILINE)
    return dict(zip(headings[1::2], headings[2::2], strict=True))


def test_each_planted_violation_breaks_its_contract(broken: dict[str, str]) -> None:
    for path, code, contract in VIOLATIONS.values():
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        imported = code.rpartition("import ")[2]
        expected = rf"\b{module} -> {imported}\b" if imported else rf"\b{module.rpartition('.')[2]}\b"
        assert re.search(expected, broken[contract]), (path, code, broken[contract])


def test_a_circle_breaks_its_contract(broken: dict[str, str]) -> None:
    assert re.search(r"segment_end -> \.commit_log|commit_log -> \.segment_end", broken[CIRCLES])


def test_what_serve_imports_is_free_of_spark() -> None:
    code = (
        "import importlib, pkgutil, sys\n"
        "import rocketlens.cli.main, rocketlens.cli.serve\n"
        "for package in ('broker', 'protocol', 'storage'):\n"
        "    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + '.'):\n"
        "        importlib.import_module(module.name)\n"
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
    paths = list((ROOT / package).rglob("*.py"))
    assert paths
    for path in paths:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            assert not re.search(r"\bstruct\.(un)?pack(_from|_into)?\(", line), f"{path.relative_to(ROOT)}:{number}"


HOUSE = House(ROOT, PACKAGES)


def test_nobody_imports_a_private_module_of_another_folder() -> None:
    assert any("._" in found.imported for found in HOUSE.imports)
    assert HOUSE.intrusions() == []


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("guest/planted.py", "from house.folder import _own"),
        ("guest/planted.py", "def late():\n    from house.folder._own import name"),
        ("guest/planted.pyx", "from house.folder._own cimport name"),
        ("house/other.py", "from house.folder._own import name"),
    ],
)
def test_an_import_of_another_folders_private_module_is_found(tmp_path: Path, path: str, code: str) -> None:
    files = {
        "guest/__init__.py": "from house.folder import shown\nfrom house.folder.shown import name",
        "house/__init__.py": "",
        "house/folder/__init__.py": "from house.folder._own import name",
        "house/folder/_own.py": "name = 1",
        "house/folder/shown.py": "from house.folder._own import name",
    }
    write_tree(tmp_path, files)
    assert House(tmp_path, ["guest", "house"]).intrusions() == []
    write_tree(tmp_path, {path: code})
    (intrusion,) = House(tmp_path, ["guest", "house"]).intrusions()
    assert re.match(rf"{path}:[12] imports house\.folder\._own, ", intrusion)


def write_tree(directory: Path, files: dict[str, str]) -> None:
    for name, code in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(f"{code}\n")
