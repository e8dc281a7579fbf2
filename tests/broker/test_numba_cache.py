"""Where compiled kernels are kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker.numba_cache import use_numba_cache
from protocol.errors import ConfigError

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


def test_the_variable_comes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/elsewhere")
    assert use_numba_cache() == Path("/elsewhere")


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


def test_an_option_that_cannot_be_written_to_is_refused() -> None:
    with pytest.raises(ConfigError, match="--numba-cache /proc/none/x: cannot be written to"):
        use_numba_cache(Path("/proc/none/x"))


def test_kernels_are_compiled_by_another_process_once(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from broker.numba_cache import use_numba_cache, compile_apart; "
        "use_numba_cache(Path(sys.argv[1])); compile_apart(); "
        "from storage.kernels import CACHE_DIRECTORY; "
        "print((CACHE_DIRECTORY / 'all-compiled').exists(), 'storage.kernels.lookup' in sys.modules)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout.split() == ["True", "False"]
    assert len(list(tmp_path.rglob("*.nbi"))) > 5
