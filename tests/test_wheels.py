"""The published wheels: built for both kinds of machine, judged, installed where there is no compiler, and served from.

`make soak` runs these; `make wheels` alone builds and judges.
"""

import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from benchmarks.server_process import ServerProcess, free_port

pytestmark = pytest.mark.soak

ROOT = Path(__file__).parent.parent
MINOR_VERSIONS = range(11, 20)
ARM_PACKAGES = ("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6", "zlib1g", "libexpat1")
ARM_LIBRARIES = ("libgcc-s1", "libbz2-1.0", "liblzma5", "libffi8", "libssl3", "libuuid1", "libstdc++6")
APT_SETTINGS = """\
APT::Architectures {{ "arm64"; }};
APT::Architecture "arm64";
Dir::State "{0}/state";
Dir::State::status "{0}/state/status";
Dir::Cache "{0}/cache";
"""
CHECK_SUMS = """\
import platform, random, sys, zlib

sys.path[:0] = sys.argv[1:]
from storage.kernels import dispatching, index_entries, indexes, records, region, texts

data = random.Random(7).randbytes(1_000_003)
for size in (*range(300), 1000, 4096, 65_537, len(data)):
    assert records.crc32(data[:size]) == zlib.crc32(data[:size]), size
print(platform.machine(), records.CRC32_PATH)
"""


def find_python(minor: int) -> str | None:
    folders = os.environ["PATH"].split(os.pathsep)
    folders += [str(path) for path in Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin")]
    for folder in folders:
        command = shutil.which(f"python3.{minor}", path=folder)
        if command and subprocess.run([command, "-c", "import venv, ensurepip"], check=False).returncode == 0:
            return command
    return None


@pytest.fixture(scope="module")
def wheels() -> dict[str, Path]:
    subprocess.run(["make", "wheels"], cwd=ROOT, check=True)
    found = {path.stem.split("manylinux_2_17_")[1]: path for path in (ROOT / "dist").glob("*-cp311-abi3-*.whl")}
    assert set(found) == {"x86_64", "aarch64"}
    return found


@pytest.mark.parametrize("minor", MINOR_VERSIONS)
def test_the_wheel_serves_where_nothing_compiles(minor, wheels, g1_store, tmp_path) -> None:
    python = find_python(minor)
    if python is None:
        pytest.skip(f"there is no Python 3.{minor} here")
    environment = {"PATH": str(tmp_path / "empty"), "HOME": str(tmp_path)}
    subprocess.run([python, "-m", "venv", str(tmp_path / "venv")], check=True)
    install = [str(tmp_path / "venv/bin/python"), "-m", "pip", "install", "-q", "--only-binary", ":all:"]
    for what in (["--require-hashes", "-r", "requirements.lock"], ["--no-deps", str(wheels[platform.machine()])]):
        subprocess.run([*install, *what], cwd=ROOT, env=environment, check=True)
    command = str(tmp_path / "venv/bin/rocketlens")
    ours = [sys.executable, "-c", "from rocketlens.cli.main import main; main()", "find"]
    expected = output_of([*ours, str(g1_store), "0", "--json"])
    assert output_of([command, "find", str(g1_store), "0", "--json"]) == expected
    port = free_port()
    serve = [command, "serve", str(g1_store), "--listen", f"127.0.0.1:{port}", "--state-dir", str(tmp_path / "state")]
    with ServerProcess(serve, port, log=tmp_path / "log", directory=tmp_path) as server:
        server.wait_until_open()
        assert output_of([*ours, f"127.0.0.1:{port}", "0", "--json"]) == expected


def output_of(command: list[str]) -> bytes:
    return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout


@pytest.fixture(scope="module")
def arm_python(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    if os.getuid() or not shutil.which("apt-get"):
        pytest.skip("Python for arm64 comes from Debian's packages, which need root")
    if not shutil.which("qemu-aarch64"):
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-qq", "-y", "--no-install-recommends", "qemu-user"], check=True)
    work = tmp_path_factory.mktemp("arm64")
    for folder in ("state/lists/partial", "cache/archives/partial", "root"):
        (work / folder).mkdir(parents=True)
    (work / "state/status").touch()
    (work / "apt.conf").write_text(APT_SETTINGS.format(work))
    environment = {**os.environ, "APT_CONFIG": str(work / "apt.conf")}
    for command in (["update", "-qq"], ["download", "-qq", *ARM_PACKAGES, *ARM_LIBRARIES]):
        subprocess.run(["apt-get", *command], cwd=work, env=environment, check=True)
    for package in work.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(work / "root")], check=True)
    return ["qemu-aarch64", "-L", str(work / "root"), str(work / "root/usr/bin/python3.11")]


def test_the_kernels_for_arm64_run_there(arm_python: list[str], wheels: dict[str, Path], tmp_path: Path) -> None:
    download = [*f"{sys.executable} -m pip download -q --no-deps --only-binary :all: -d".split(), str(tmp_path)]
    platforms = ["--platform", "manylinux2014_aarch64", "--platform", "manylinux_2_28_aarch64"]
    subprocess.run([*download, *platforms, "--python-version", "3.11", "numpy>=2"], check=True)
    for wheel in (wheels["aarch64"], *tmp_path.glob("numpy-*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(tmp_path / "site")
    assert output_of([*arm_python, "-c", CHECK_SUMS, str(tmp_path / "site")]) == b"aarch64 instructions\n"
