"""What travels arrives in a worker that was sent our packages, or has them; elsewhere one sentence says what to do."""

import gc
import os
import pickle
import shutil
import subprocess
import sysconfig
import zipfile
import zlib
from pathlib import Path

import pytest
from pyspark.serializers import CloudPickleSerializer

from planted import plant_foreign, was_imported
from spark_cluster import python_without_rocketlens
from spark_jobs.run._spark_calls import Guarded
from spark_jobs.run.arrival import DIRECTORY, this_python
from spark_jobs.run.session import pack_packages
from storage.kernels import records

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
WORKER = """
import pickle, sys
from pyspark import SparkFiles

SparkFiles._root_directory, SparkFiles._is_running_on_worker = sys.argv[1], True
checksum = pickle.loads(open(sys.argv[2], "rb").read())
from storage.kernels import records
print(checksum(b"123456789"), records.__file__)
"""
"""What a worker of Spark's does before it runs a task."""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_without_rocketlens(tmp_path_factory.mktemp("bare") / "venv")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("packages")
    with zipfile.ZipFile(pack_packages(work / "packed.zip")) as opened:
        opened.extractall(work / "unpacked")
    return work / "unpacked"


class Executor:
    def __init__(self, python: Path, unpacked: Path, root: Path) -> None:
        self._python, self._unpacked, self._root = python, unpacked, root
        self.packages = root / DIRECTORY

    def is_sent(self) -> None:
        shutil.copytree(self._unpacked, self.packages)

    def runs(self, function=records.crc32, before="", **environment):
        sent = self._root / "command"
        sent.write_bytes(CloudPickleSerializer().dumps(Guarded(function)))
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [self._python, "-P", "-c", before + WORKER, self._root, sent]
        variables |= environment
        return subprocess.run(command, env=variables, cwd=self._root, capture_output=True, text=True, check=False)

    def kernel_that_ran(self, before: str = "") -> Path:
        ended = self.runs(before=before)
        assert ended.returncode == 0, ended.stderr
        checksum, path = ended.stdout.split()
        assert int(checksum) == zlib.crc32(b"123456789")
        return Path(path)

    def sentence(self, function=records.crc32, before="", **environment):
        ended = self.runs(function, before, **environment)
        assert ended.returncode == 1
        kind, _, sentence = ended.stderr.splitlines()[-1].partition(": ")
        assert kind == "ImportError"
        assert sentence.startswith("RocketLens cannot run: ")
        return sentence


@pytest.fixture
def executor(bare: Path, unpacked: Path, tmp_path: Path) -> Executor:
    return Executor(bare, unpacked, tmp_path)


def test_what_it_imports_is_no_garbage_to_look_at_behind_each_task(executor: Executor) -> None:
    """Spark's daemon collects garbage there; what arrives later and brings nothing new is collected as ever."""
    executor.is_sent()
    ended = executor.runs(lambda _: gc.get_freeze_count())
    assert int(ended.stdout.split()[0]) > 10_000
    before = gc.get_freeze_count()
    assert pickle.loads(CloudPickleSerializer().dumps(Guarded(records.crc32)))(b"123456789") == zlib.crc32(b"123456789")
    assert gc.get_freeze_count() == before


def test_without_our_packages_the_sentence_says_to_install_them(executor: Executor) -> None:
    said = f"({this_python()}) does not have it; install requirements-spark.lock there, and RocketLens"
    assert said in executor.sentence()


def of_another_python(kernels: Path) -> None:
    for module in kernels.glob("*.so"):
        module.rename(module.with_name(module.name.replace(SUFFIX, ".cpython-399-x86_64-linux-gnu.so")))


def test_compiled_modules_that_do_not_fit_are_named_with_what_to_install(executor: Executor) -> None:
    executor.is_sent()
    of_another_python(executor.packages / "storage" / "kernels")
    sentence = executor.sentence()
    assert f"({this_python()}) does not load what comes from {this_python()}: " in sentence
    assert sentence.endswith("; install requirements-spark.lock there, and RocketLens")
    assert "storage" in sentence


class TestWhereItIsInstalled:
    """The same version is taken as it is there, since it fits that machine; another one gives way to what was sent."""

    def installed(self, executor: Executor, tmp_path: Path, version: str) -> str:
        executor.is_sent()
        site = tmp_path / "site"
        executor.packages.rename(site)
        executor.is_sent()
        (site / "rocketlens-1.dist-info").mkdir()
        metadata = f"Metadata-Version: 2.1\nName: rocketlens\nVersion: {version}\n"
        (site / "rocketlens-1.dist-info" / "METADATA").write_text(metadata)
        return f"import sys; sys.path.append({str(site)!r})\n"

    def test_the_same_version_runs(self, executor: Executor, tmp_path: Path) -> None:
        from importlib.metadata import version

        before = self.installed(executor, tmp_path, version("rocketlens"))
        of_another_python(executor.packages / "storage" / "kernels")
        assert executor.kernel_that_ran(before) == tmp_path / "site" / "storage" / "kernels" / f"records{SUFFIX}"


class TestForeignPackages:
    """Others' packages that bear the names of ours are named, whatever way they come."""

    def test_one_that_pythonpath_leads_to(self, executor: Executor, tmp_path: Path) -> None:
        executor.is_sent()
        foreign = plant_foreign(tmp_path / "theirs", "spark_jobs", "storage")
        sentence = executor.sentence(PYTHONPATH=str(foreign))
        said = f"{foreign / 'spark_jobs'} is in the way of its own package spark_jobs in {executor.packages}"
        assert said in sentence
        assert not was_imported(foreign)
