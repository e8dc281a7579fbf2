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


def test_a_python_that_was_asked_for_and_is_too_old_is_refused(machine: Machine) -> None:
    machine.has("python3.9", "exit 1")
    machine.has_python("python3")
    outcome = machine.setup("python", PYTHON="python3.9")
    assert (outcome.returncode, outcome.stdout) == (1, "")
    assert "PYTHON=python3.9 is no Python 3.11 or later" in outcome.stderr


def test_a_python_without_venv_is_told_which_package_has_it(machine: Machine, tmp_path: Path) -> None:
    machine.has("python3", f'[[ "$2" == *venv* ]] && exit 1; exec {sys.executable} "$@"')
    outcome = machine.setup("venv", "requirements.lock", VENV=str(tmp_path / "venv"))
    assert outcome.returncode == 1
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"apt-get install python{version}-venv" in outcome.stderr
    assert not (tmp_path / "venv").exists()


def test_a_lock_that_is_not_there_is_named(machine: Machine) -> None:
    outcome = machine.setup("venv", "requirements-nosuch.lock")
    assert (outcome.returncode, outcome.stderr) == (1, "setup: no lock file requirements-nosuch.lock\n")


def test_a_jdk_17_and_maven_are_enough(machine: Machine) -> None:
    machine.has("javac", "echo javac 17.0.15")
    machine.has("mvn", "exit 0")
    outcome = machine.setup("java")
    assert (outcome.returncode, outcome.stderr) == (0, "")


@pytest.mark.parametrize("version", ["1.8.0_412", "11.0.27"])
def test_an_old_jdk_is_refused_with_what_to_install(machine: Machine, version: str) -> None:
    machine.has("javac", f"echo javac {version} >&2")
    machine.has("mvn", "exit 0")
    outcome = machine.setup("java")
    assert outcome.returncode == 1
    assert f"a JDK 17 or later (javac: {version.split('.')[0]})" in outcome.stderr
    assert "apt-get install openjdk-17-jdk-headless maven" in outcome.stderr


def test_a_missing_maven_is_refused_with_what_to_install(machine: Machine) -> None:
    machine.has("javac", "echo javac 21")
    outcome = machine.setup("java")
    assert outcome.returncode == 1
    assert "Maven (none)" in outcome.stderr


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


def test_node_npm_and_go_are_enough(machine: Machine) -> None:
    machine.has("node", "echo v18.20.4")
    machine.has("npm", "exit 0")
    machine.has("go", "echo go version go1.19.8 linux/amd64")
    outcome = machine.setup("clients")
    assert (outcome.returncode, outcome.stderr) == (0, "")


@pytest.mark.parametrize("missing", ["node", "npm", "go"])
def test_a_missing_client_runtime_is_refused_with_what_to_install(machine: Machine, missing: str) -> None:
    for name, script in {"node": "echo v20.1.0", "npm": "exit 0", "go": "echo go version go1.22.4 linux/arm64"}.items():
        if name != missing:
            machine.has(name, script)
    outcome = machine.setup("clients")
    assert outcome.returncode == 1
    assert "need Node.js 18 or later" in outcome.stderr
    assert "sudo apt-get install nodejs npm golang-go" in outcome.stderr


@pytest.mark.parametrize(("name", "printed"), [("node", "v16.20.2"), ("go", "go version go1.17.13 linux/amd64")])
def test_an_old_client_runtime_is_refused_with_what_was_found(machine: Machine, name: str, printed: str) -> None:
    machine.has("node", "echo v20.1.0")
    machine.has("npm", "exit 0")
    machine.has("go", "echo go version go1.22 linux/arm64")
    machine.has(name, f"echo {printed}")
    outcome = machine.setup("clients")
    assert outcome.returncode == 1
    assert f"found: {'16' if name == 'node' else '1.17'}" in outcome.stderr


def test_root_on_debian_gets_the_missing_client_runtimes_alone(machine: Machine, tmp_path: Path) -> None:
    machine.has("id", "echo 0")
    machine.has("node", "echo v20.1.0")
    machine.has("npm", "exit 0")
    go = tmp_path / "bin" / "go"
    install = f'echo "echo go version go1.19.8 linux/amd64" > {go}; /bin/chmod 755 {go}'
    machine.has("apt-get", f'echo "$@" >> {tmp_path}/apt.log; case "$*" in *install*) {install} ;; esac')
    outcome = machine.setup("clients")
    assert outcome.returncode == 0, outcome.stderr
    installed = [line for line in (tmp_path / "apt.log").read_text().splitlines() if "install" in line]
    assert [line.split()[-1] for line in installed] == ["golang-go"]


def test_root_where_the_installation_fails_is_told_what_to_install(machine: Machine) -> None:
    machine.has("id", "echo 0")
    machine.has("apt-get", "echo no network >&2; exit 100")
    machine.has("apt-cache", "exit 0")
    outcome = machine.setup("java")
    assert outcome.returncode == 1
    assert "need a JDK 17 or later (javac: 0) and Maven (none)" in outcome.stderr


def test_chromium_and_its_driver_are_enough(machine: Machine) -> None:
    machine.has("chromium", "exit 0")
    machine.has("chromedriver", "exit 0")
    outcome = machine.setup("browser")
    assert (outcome.returncode, outcome.stderr) == (0, "")


@pytest.mark.parametrize("missing", ["chromium", "chromedriver"])
def test_a_missing_browser_is_refused_with_what_to_install(machine: Machine, missing: str) -> None:
    for name in {"chromium", "chromedriver"} - {missing}:
        machine.has(name, "exit 0")
    outcome = machine.setup("browser")
    assert outcome.returncode == 1
    assert "(none)" in outcome.stderr
    assert "sudo apt-get install chromium chromium-driver" in outcome.stderr


def test_root_on_debian_gets_the_missing_driver_alone(machine: Machine, tmp_path: Path) -> None:
    machine.has("id", "echo 0")
    machine.has("chromium", "exit 0")
    driver = tmp_path / "bin" / "chromedriver"
    install = f'echo "exit 0" > {driver}; /bin/chmod 755 {driver}'
    machine.has("apt-get", f'echo "$@" >> {tmp_path}/apt.log; case "$*" in *install*) {install} ;; esac')
    outcome = machine.setup("browser")
    assert outcome.returncode == 0, outcome.stderr
    installed = [line for line in (tmp_path / "apt.log").read_text().splitlines() if "install" in line]
    assert [line.split()[-1] for line in installed] == ["chromium-driver"]


@pytest.mark.parametrize(("candidate", "more"), [("156.0.8078.108", ["chromium-headless-shell"]), ("(none)", [])])
def test_root_on_debian_gets_the_browser_without_a_window_where_there_is_one(
    machine: Machine, tmp_path: Path, candidate: str, more: list[str]
) -> None:
    machine.has("id", "echo 0")
    machine.has("chmod", 'exec /bin/chmod "$@"')
    install = f"for name in chromium chromedriver; do echo > {tmp_path}/bin/$name; chmod 755 {tmp_path}/bin/$name; done"
    machine.has("apt-get", f'echo "$@" >> {tmp_path}/apt.log; case "$*" in *install*) {install} ;; esac')
    machine.has("apt-cache", f'echo "$2:"; echo "  Candidate: {candidate}"')
    outcome = machine.setup("browser")
    assert outcome.returncode == 0, outcome.stderr
    (installed,) = [line for line in (tmp_path / "apt.log").read_text().splitlines() if "install" in line]
    assert installed.split()[-2 - len(more) :] == ["chromium", *more, "chromium-driver"]
