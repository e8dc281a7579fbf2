"""`make wheels`: one wheel for each kind of machine, for every Python from 3.11 on.

The kernels keep to the limited API of CPython 3.11, and are compiled by the package `ziglang` against glibc 2.17,
whatever machine this is: what comes out is the same everywhere. Then `abi3audit` and `auditwheel` judge each wheel.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from compilers import VERSION
from kernel_build import ZIG_OPTIONS

ROOT = Path(__file__).resolve().parent.parent
MACHINES = ("x86_64", "aarch64")
GLIBC = "2.17"
"""Of 2013; every system that has a Python 3.11 has a newer one."""


def copy_headers(directory: Path, machine: str) -> None:
    """Put Python's headers where a compiler for another machine finds them.

    `pyconfig.h` is this machine's: all Linux machines of 64 bits agree in what the limited API takes from it.
    """
    shutil.copytree(sysconfig.get_path("include"), directory, dirs_exist_ok=True)
    text = (directory / "pyconfig.h").read_text()
    here = re.search(rf"<({os.uname().machine}-linux-gnu/python{VERSION}/pyconfig.h)>", text)
    if here:  # Debian keeps one a machine, outside of where the others lie
        shutil.copyfile(Path(sysconfig.get_path("include")).parent / here[1], directory / "pyconfig.h")


def build(machine: str, wheels: Path) -> Path:
    """Build the wheel for one kind of machine into a directory; its path. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as work:
        headers = Path(work) / "include"
        copy_headers(headers, machine)
        target = f"-target {machine}-linux-gnu.{GLIBC} {' '.join(ZIG_OPTIONS)}"
        compiler = f"{sys.executable} -m ziglang cc {target} -I{headers}"
        environment = {
            **os.environ,
            "CC": compiler,
            "LDSHARED": f"{compiler} -shared -s",
            "ROCKETLENS_WHEEL_FOR": f"manylinux_{GLIBC.replace('.', '_')}_{machine}",
        }
        # From a copy: what an earlier build left behind would be packed too.
        source = Path(work) / "source"
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        for name in filter(None, tracked.decode().split("\0")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
        command = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--no-index",
            ".",
        ]
        subprocess.run([*command, "--wheel-dir", work], cwd=source, env=environment, check=True)
        (wheel,) = Path(work).glob("*.whl")
        wheels.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy2(wheel, wheels / wheel.name))


def judge(wheel: Path) -> None:
    """Fail unless the wheel keeps to the limited API and to the glibc that its name says."""
    subprocess.run([sys.executable, "-m", "abi3audit", "--strict", "--summary", str(wheel)], check=True)
    shown = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", str(wheel)], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    tag = wheel.stem.rpartition("-")[2]
    if f'"{tag}"' not in shown and f"{tag}\n" not in shown:
        raise SystemExit(f"{wheel.name} does not fit its name:\n{shown}")


def main() -> None:
    """Build and judge the wheels for the machines named, or for all."""
    for machine in sys.argv[1:] or MACHINES:
        print(f"compiling for {machine}; this takes a minute", file=sys.stderr, flush=True)
        wheel = build(machine, ROOT / "dist")
        judge(wheel)
        print(wheel.relative_to(ROOT))


if __name__ == "__main__":
    main()
