"""Others' packages that bear the names of ours are named in one sentence, and none of them is run."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from planted import plant_foreign, was_imported
from rocketlens.own_packages import PACKAGES

ROOT = Path(__file__).parents[2]
COMMAND = Path(sys.executable).with_name("rocketlens")


def run(*command: str | Path, cwd: Path, path: str = "", code: int = 2) -> "subprocess.CompletedProcess[str]":
    """Run something with a PYTHONPATH; a failure is one sentence on stderr."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    environment |= {"PYTHONPATH": path} if path else {}
    ended = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stderr
    return ended


def assert_named(ended: "subprocess.CompletedProcess[str]", path: Path) -> None:
    """The path in the way is named in one sentence, and nothing of it was run."""
    assert ended.stderr.startswith(f"RocketLens cannot run: {path} is in the way of its own package {path.stem} in ")
    assert ended.stderr.count("\n") == 1
    assert not was_imported(path.parent)


@pytest.mark.parametrize("name", ["protocol", pytest.param("storage", marks=pytest.mark.soak)])
def test_the_command_names_a_foreign_package_that_pythonpath_leads_to(name: str, tmp_path: Path) -> None:
    foreign = plant_foreign(tmp_path / "theirs", name)
    assert_named(run(COMMAND, "--help", cwd=tmp_path, path=str(foreign)), foreign / name)


@pytest.mark.parametrize("name", ["storage", pytest.param("broker", marks=pytest.mark.soak)])
def test_the_command_names_a_foreign_package_of_the_folder_that_python_looks_in_first(
    name: str, tmp_path: Path
) -> None:
    plant_foreign(tmp_path, name)
    assert_named(run(sys.executable, "-m", "rocketlens", "--help", cwd=tmp_path), tmp_path / name)


def test_the_command_itself_does_not_look_into_the_current_folder(tmp_path: Path) -> None:
    plant_foreign(tmp_path, *PACKAGES)
    assert "Usage:" in run(COMMAND, "--help", cwd=tmp_path, code=0).stdout
    assert not was_imported(tmp_path)


def test_what_was_imported_already_is_named_too(tmp_path: Path) -> None:
    foreign = plant_foreign(tmp_path / "theirs", "storage")
    code = f"import sys; sys.path.insert(0, {str(foreign)!r}); import storage; del sys.path[0]; import rocketlens"
    code += "; rocketlens.open"
    ended = run(sys.executable, "-c", code, cwd=tmp_path, code=1)
    assert f"ImportError: RocketLens cannot run: {foreign / 'storage'} is in the way" in ended.stderr


def test_a_folder_that_is_no_package_is_in_nobodys_way(tmp_path: Path) -> None:
    for name in PACKAGES:
        (tmp_path / name).mkdir()
    code = f"import sys; sys.path += [{str(ROOT)!r}]; from rocketlens.__main__ import main; main()"
    assert "Usage:" in run(sys.executable, "-c", code, "--help", cwd=tmp_path, code=0).stdout


def test_our_packages_by_another_path_are_ours(tmp_path: Path) -> None:
    (tmp_path / "ours").symlink_to(ROOT)
    code = "import rocketlens.__main__ as command, sys; sys.path.insert(0, 'ours'); command.main()"
    assert "Usage:" in run(sys.executable, "-c", code, "--help", cwd=tmp_path, code=0).stdout


def test_an_archive_that_is_imported_from_is_to_be_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "ours.zip", "w") as archive:
        for source in (ROOT / "rocketlens").rglob("*.py"):
            archive.write(source, source.relative_to(ROOT))
    code = "import rocketlens; rocketlens.open"
    ended = run(sys.executable, "-c", code, cwd=tmp_path, path=str(tmp_path / "ours.zip"), code=1)
    assert ended.stderr.splitlines()[-1] == (
        "ImportError: RocketLens cannot run: no Python loads compiled modules out of the archive "
        f"{tmp_path / 'ours.zip'}: install or unpack it"
    )


def test_the_check_knows_all_packages_of_ours() -> None:
    assert set(PACKAGES) == {path.parent.name for path in ROOT.glob("*/py.typed")} - {"rocketlens"}
    assert shutil.which("rocketlens", path=str(COMMAND.parent)) is not None
