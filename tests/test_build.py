"""The kernels are compiled by whatever compiles C here, and by a package where nothing does."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from built_wheel import copy_sources
from storage.kernels import records

ROOT = Path(__file__).parent.parent
ONE = ("region",)
HOLD = (
    "import sys; sys.path.insert(0, '.'); from storage.kernels import region as one; "
    "data = bytes(n * 7 % 251 for n in range(10_007)); assert bytes(one.Region(data)) == data; "
)
USE = (
    "from storage.kernels import records as one; import zlib; assert one.crc32(data) == zlib.crc32(data); "
    f"assert one.CRC32_PATH == {records.CRC32_PATH!r}; "
)
SAY = "print(one.__file__)"


def on_a_machine_without_compiler(tmp_path: Path, **variables: str) -> dict[str, str]:
    empty = tmp_path / "no-programs"
    empty.mkdir(exist_ok=True)
    kept = {name: os.environ[name] for name in ("HOME",) if name in os.environ}
    return {**kept, "PATH": str(empty), **variables}


def run(code: list[str], directory: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *code]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)


def leave(sources, chosen) -> None:
    """Delete all kernels but some, which take less time; None: leave all."""
    kernels = list(sources.glob("*/kernels/*.pyx"))
    assert {path.stem for path in kernels} > set(ONE)
    for path in kernels:
        if chosen is not None and path.stem not in chosen:
            path.unlink()


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    return copy_sources(tmp_path / "sources")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    environment = on_a_machine_without_compiler(tmp_path)
    monkeypatch.setenv("PATH", environment["PATH"])
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.syspath_prepend(ROOT / "build_backend")
    monkeypatch.chdir(ROOT)
    return Path(environment["PATH"])


def asked_for() -> list[list[str]]:
    """What the build backend asks for, for a wheel and for an editable installation."""
    backend = importlib.import_module("kernel_build")
    return [backend.get_requires_for_build_wheel(), backend.get_requires_for_build_editable()]


def test_what_compiles_is_asked_for_where_nothing_does(programs: Path) -> None:
    assert asked_for() == [["ziglang"], ["ziglang"]]
    (programs / "cc").write_text("#!/bin/sh\n")
    (programs / "cc").chmod(0o755)
    assert asked_for() == [[], []]


@pytest.fixture(scope="module")
def ziglang(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("zig")
    lock = str(ROOT / "requirements-build-zig.lock")
    install = ["-m", "pip", "install", "-q", "--require-hashes", "-r", lock, "--target", str(target)]
    outcome = run(install, ROOT, dict(os.environ))
    assert outcome.returncode == 0, outcome.stderr
    return target


@pytest.mark.soak  # in each run: what compiles is asked for
@pytest.mark.parametrize(("chosen", "use"), [(ONE, HOLD + SAY), (None, HOLD + USE + SAY)], ids=["one", "all"])
def test_without_a_compiler_the_kernels_are_those_of_one(sources, tmp_path, ziglang, chosen, use) -> None:
    leave(sources, chosen)
    environment = on_a_machine_without_compiler(tmp_path)
    outcome = run(["setup.py", "-q", "build_ext", "--inplace"], sources, {**environment, "PYTHONPATH": str(ziglang)})
    assert outcome.returncode == 0, outcome.stderr
    assert "with ziglang" in outcome.stderr
    used = run(["-c", use], sources, environment)
    assert used.returncode == 0, used.stderr
    assert Path(used.stdout.strip()).is_relative_to(sources)
