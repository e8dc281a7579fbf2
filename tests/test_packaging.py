"""What is built and installed is what the folders contain, and the locks fit what pyproject.toml asks for."""

import email
import itertools
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from built_wheel import build_sdist, shared_wheel

ROOT = Path(__file__).parent.parent
PACKAGES = ("broker", "protocol", "rocketlens", "spark_jobs", "storage")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
KINDS_OF_LOCKS = ("-spark", "-dev", "-build", "-build-zig", "-install", "-wheels", "")
ALL_LOCKS = [f"requirements{kind}.lock" for kind in KINDS_OF_LOCKS]
COMPILED = (".pyx", ".pxd", ".h")
KERNELS = [path for package in PACKAGES for path in ROOT.glob(f"{package}/kernels/*")]
MODULES = {str(path.relative_to(ROOT).with_suffix("")) for path in KERNELS if path.suffix == ".pyx"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The project's wheel, built without a network from a copy (a build folder left behind would be packed too)."""
    with zipfile.ZipFile(shared_wheel(tmp_path_factory)) as archive:
        yield archive


def files_of(wheel: zipfile.ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if ".dist-info/" not in name}


def metadata_file(wheel: zipfile.ZipFile, name: str) -> str:
    return wheel.read(f"rocketlens-{PROJECT['project']['version']}.dist-info/{name}").decode()


def pins(lock: str) -> dict[str, set[str]]:
    """Project name to its pinned versions (more than one where they depend on the Python version)."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", (ROOT / lock).read_text(), re.M):
        found.setdefault(canonicalize_name(name), set()).add(version)
    return found


def wanted_by(*extras: str) -> list[Requirement]:
    """The requirements of the project itself and some of its extras; extras of ours are left out."""
    of_extras = (PROJECT["project"]["optional-dependencies"][extra] for extra in extras)
    requirements = map(Requirement, itertools.chain(PROJECT["project"]["dependencies"], *of_extras))
    return [requirement for requirement in requirements if requirement.name != "rocketlens"]


def test_the_wheel_holds_exactly_the_files_of_the_packages_and_the_compiled_kernels(wheel: zipfile.ZipFile) -> None:
    in_folders = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (*COMPILED, ".pxi", ".so")
    }
    modules = {module + sysconfig.get_config_var("EXT_SUFFIX") for module in MODULES}
    assert len(modules) >= 2
    assert files_of(wheel) == in_folders | modules
    assert {f"{module}.pyi" for module in MODULES} <= in_folders


@pytest.mark.soak  # in each run: what the wheel holds, above
def test_a_wheel_can_be_built_from_what_the_source_distribution_holds(tmp_path: Path) -> None:
    source = build_sdist(tmp_path / "made")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    names = {path.name for path in (tmp_path / source.name.removesuffix(".tar.gz")).rglob("*")}
    wanted = {path.name for path in KERNELS if path.suffix in (*COMPILED, ".pyi")}
    assert wanted | {"setup.py", "kernel_build.py", "compilers.py", "py.typed"} <= names
    assert not any(name.endswith((".so", ".c")) for name in names)


def test_spark_is_an_extra_and_nothing_that_is_always_installed(wheel: zipfile.ZipFile) -> None:
    metadata = email.message_from_string(metadata_file(wheel, "METADATA"))
    requirements = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    spark = [one for one in requirements if one.name in {"pyspark", "pyarrow"}]
    assert {one.name for one in spark} == {"pyspark", "pyarrow"}
    assert all(one.marker is not None and not one.marker.evaluate({"extra": ""}) for one in spark)


def test_the_command_runs_from_the_wheel_alone(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path / "site")
    environment = dict(os.environ, PYTHONPATH=str(tmp_path / "site"))
    command = [sys.executable, "-P", "-m", "rocketlens", "--help"]
    outcome = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    assert "serve" in outcome.stdout


@pytest.mark.parametrize("lock", ALL_LOCKS)
def test_no_lock_names_a_host_or_a_path(lock: str) -> None:
    assert not re.search(r"://|--index|--find-links|--extra-index|@ file|^-e|^/", (ROOT / lock).read_text(), re.M)


@pytest.mark.parametrize(
    ("lock", "extras"),
    [("requirements.lock", ()), ("requirements-spark.lock", ("spark",)), ("requirements-dev.lock", ("test", "dev"))],
)
def test_each_lock_fits_what_the_project_asks_for(lock: str, extras: tuple[str, ...]) -> None:
    pinned = pins(lock)
    assert wanted_by(*extras)
    for requirement in wanted_by(*extras):
        versions = pinned.get(canonicalize_name(requirement.name), set())
        assert versions, f"{lock} does not pin {requirement.name}: make lock"
        assert all(version in requirement.specifier for version in versions), f"{lock}: {requirement}, {versions}"
