"""Where compiled kernels are kept."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ConfigError
from storage.numba_cache import use_numba_cache

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable says anything, and home and temporary files are the test's own."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_the_option_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/elsewhere")
    assert use_numba_cache(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert os.environ["NUMBA_CACHE_DIR"] == str(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_the_variable_comes_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "elsewhere"))
    assert use_numba_cache() == tmp_path / "elsewhere"
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o700


def test_the_users_cache_comes_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert use_numba_cache() == tmp_path / "home" / ".cache" / "rocketlens" / "numba"
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert use_numba_cache() == tmp_path / "xdg" / "rocketlens" / "numba"


def test_a_temporary_folder_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/proc/none")
    found = use_numba_cache()
    assert found == tmp_path / f"rocketlens-numba-{os.getuid()}"
    assert found.stat().st_mode & 0o777 == 0o700


def test_a_temporary_folder_that_others_may_write_to_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/proc/none")
    planted = tmp_path / f"rocketlens-numba-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    found = use_numba_cache()
    assert found != planted
    assert found.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("by_option", [True, False])
@pytest.mark.parametrize("spoil", [lambda path: path.chmod(0o775), lambda path: path.chmod(0o702), "owner"])
def test_a_named_directory_that_is_not_ours_alone_is_reported_and_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, by_option: bool, spoil: Any
) -> None:
    planted = tmp_path / "planted"
    planted.mkdir(mode=0o700)
    if spoil == "owner":
        monkeypatch.setattr("os.getuid", lambda: planted.stat().st_uid + 1)
    else:
        spoil(planted)
    monkeypatch.setenv("NUMBA_CACHE_DIR", "" if by_option else str(planted))
    found = use_numba_cache(planted if by_option else None)
    assert found.parent == tmp_path
    assert found != planted
    assert found.stat().st_mode & 0o777 == 0o700
    assert os.environ["NUMBA_CACHE_DIR"] == str(found)
    name = "--numba-cache" if by_option else "NUMBA_CACHE_DIR"
    assert f"{name} {planted} is not used" in caplog.text


def test_an_option_that_cannot_be_written_to_is_refused() -> None:
    with pytest.raises(ConfigError, match="--numba-cache /proc/none/x: cannot be written to"):
        use_numba_cache(Path("/proc/none/x"))


COMPILE = (
    "import sys; from pathlib import Path; from storage.numba_cache import use_numba_cache, compile_apart; "
    "use_numba_cache(Path(sys.argv[1])); compile_apart(sys.argv[2:], lambda text: print('told', text)); "
    "from storage.kernels import CACHE_DIRECTORY; "
    "print(*sorted(path.name for path in CACHE_DIRECTORY.glob('compiled-*')), 'storage.kernels.resync' in sys.modules)"
)


def compile_apart_in(cache: Path, *modules: str) -> list[str]:
    """What a process says that has had modules compiled into a cache: what it was told, marks, kernels imported."""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH")]))
    command = [sys.executable, "-c", COMPILE, str(cache), *modules]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
    return done.stdout.splitlines()


def test_kernels_are_compiled_by_another_process_once_for_each_choice_of_modules(tmp_path: Path) -> None:
    told = "told compiling, once: this takes up to a minute, later starts about a second"
    two = "storage.kernels.crc32", "storage.kernels.java_string"
    assert compile_apart_in(tmp_path, *two) == [
        told,
        "compiled-storage.kernels.crc32+storage.kernels.java_string False",
    ]
    compiled = sorted(tmp_path.rglob("*.nbi"))
    assert compiled
    assert compile_apart_in(tmp_path, *two) == ["compiled-storage.kernels.crc32+storage.kernels.java_string False"]
    assert sorted(tmp_path.rglob("*.nbi")) == compiled
    marks = "compiled-storage.kernels.crc32+storage.kernels.java_string compiled-storage.kernels.resync False"
    assert compile_apart_in(tmp_path, "storage.kernels.resync") == [told, marks]


def test_what_cannot_be_imported_leaves_no_mark(tmp_path: Path) -> None:
    assert compile_apart_in(tmp_path, "storage.nothing_of_the_sort")[-1] == "False"
