"""Which C compiler builds the kernels, and whether Python's own headers are there: what `tests/setup.sh` asks, too.

Nothing is imported here but the standard library, since it is asked before anything is installed.
"""

import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

ZIG = "ziglang"
"""The package that compiles C where no compiler is installed; 100 MB, so nobody else gets it."""

KERNELS = (Path("protocol/kernels"), Path("storage/kernels"), Path("broker/kernels"), Path("benchmarks/kernels"))
"""Where the sources lie, from the project's directory, in which every build starts. The last is in no wheel."""

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def find_compiler() -> str | None:
    """The command that compiles C: $CC, else what Python was built with, gcc, clang or cc. None where none is found."""
    if os.environ.get("CC"):
        return os.environ["CC"]
    for command in (sysconfig.get_config_var("CC"), "gcc", "clang", "cc"):
        if command and shutil.which(shlex.split(command)[0]):
            return str(command)
    return None


def python_header() -> Path:
    """Where Python.h of the running Python lies, or should."""
    return Path(sysconfig.get_path("include")) / "Python.h"


def missing_header() -> str:
    """What to install, as a sentence, where Python.h is missing; empty where it is there."""
    if python_header().exists():
        return ""
    return (
        f"compiling RocketLens needs {python_header()}, which is missing; on Debian or Ubuntu: "
        f"apt-get install python{VERSION}-dev; on Fedora: dnf install python3-devel"
    )


def sources(*patterns: str) -> list[Path]:
    """The sources whose names match."""
    return sorted(path for kernels in KERNELS for pattern in patterns for path in kernels.glob(pattern))


def modules() -> list[Path]:
    """The modules that compiling in place leaves beside the sources."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return [path.with_suffix(suffix) for path in sources("*.pyx")]


ANSWERS = {
    "compiler": lambda: find_compiler() or "",  # nothing where none is found
    "header": missing_header,
    "modules": lambda: "\n".join(map(str, [*modules(), *sources("*.pyi", "*.pxi")])),
}

if __name__ == "__main__":
    print(ANSWERS[sys.argv[1]]())
