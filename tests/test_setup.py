"""`tests/setup.sh` finds what it needs, installs it where it can, and otherwise says plainly what to install."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NEEDED = ("bash", "cat", "cksum", "dirname", "env", "grep", "realpath", "rm", "sed")


class Machine:
    """A machine whose PATH is one folder: the few tools the script needs, and whatever a test puts beside them."""

    def __init__(self, folder: Path) -> None:
        self._programs = folder / "bin"
        self._programs.mkdir()
        for name in NEEDED:
            found = shutil.which(name)
            assert found is not None, name
            (self._programs / name).symlink_to(found)
        self.has("id", "echo 1000")

    def has(self, name: str, script: str) -> None:
        """Puts a program on the PATH, in place of one that is there."""
        path = self._programs / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!{self._programs / 'bash'}\n{script}\n")
        path.chmod(0o755)

    def has_python(self, name: str) -> None:
        """Puts the running Python on the PATH under another name."""
        self.has(name, f'exec {sys.executable} "$@"')

    def setup(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Runs the script there."""
        command = [str(self._programs / "bash"), str(ROOT / "tests" / "setup.sh"), *arguments]
        variables = {"PATH": str(self._programs), "HOME": os.environ.get("HOME", "/"), **environment}
        return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_first_python_that_is_new_enough_is_taken(machine: Machine) -> None:
    machine.has("python3", "exit 1")
    machine.has_python("python3.12")
    assert machine.setup("python").stdout == "python3.12\n"


def test_a_machine_with_no_new_python_is_told_what_was_tried(machine: Machine) -> None:
    outcome = machine.setup("python")
    assert outcome.returncode == 1
    assert "no Python 3.11 or later among python3, python3.13" in outcome.stderr


def test_a_python_without_venv_is_told_which_package_has_it(machine: Machine, tmp_path: Path) -> None:
    machine.has("python3", f'[[ "$2" == *venv* ]] && exit 1; exec {sys.executable} "$@"')
    outcome = machine.setup("venv", "requirements.lock", VENV=str(tmp_path / "venv"))
    assert outcome.returncode == 1
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"apt-get install python{version}-venv" in outcome.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("version", ["1.8.0_412", "11.0.27"])
def test_an_old_jdk_is_refused_with_what_to_install(machine: Machine, version: str) -> None:
    machine.has("javac", f"echo javac {version} >&2")
    machine.has("mvn", "exit 0")
    outcome = machine.setup("java")
    assert outcome.returncode == 1
    assert f"a JDK 17 or later (javac: {version.split('.')[0]})" in outcome.stderr
    assert "apt-get install openjdk-17-jdk-headless maven" in outcome.stderr


def test_root_on_debian_gets_what_is_missing_installed(machine: Machine, tmp_path: Path) -> None:
    machine.has("id", "echo 0")
    machine.has(
        "apt-cache", '[ "$2" = openjdk-21-jdk-headless ] && echo "  Candidate: 21.0.7" || echo "  Candidate: (none)"'
    )
    programs = tmp_path / "bin"
    install = (
        f'for name in javac mvn; do echo "echo javac 21" > {programs}/$name; /bin/chmod 755 {programs}/$name; done'
    )
    machine.has("apt-get", f'echo "$@" >> {tmp_path}/apt.log; case "$*" in *install*) {install} ;; esac')
    outcome = machine.setup("java")
    assert outcome.returncode == 0, outcome.stderr
    installed = [line for line in (tmp_path / "apt.log").read_text().splitlines() if "install" in line]
    assert [line.split()[-2:] for line in installed] == [["openjdk-21-jdk-headless", "maven"]]


def test_root_where_the_installation_fails_is_told_what_to_install(machine: Machine) -> None:
    machine.has("id", "echo 0")
    machine.has("apt-get", "echo no network >&2; exit 100")
    machine.has("apt-cache", "exit 0")
    outcome = machine.setup("java")
    assert outcome.returncode == 1
    assert "need a JDK 17 or later (javac: 0) and Maven (none)" in outcome.stderr
