"""Builds of the kernels that nobody uses but who judges them: sanitizers, and the count of the lines that ran.

They lie in directories of their own under `build/`, beside the modules of every day. A Python that is started with
:func:`environment` takes its kernels from there, and so do its children. `make sanitize` and `make coverage-kernels`
run this file.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import compilers
from covered_lines import print_covered

ROOT = Path(__file__).resolve().parent.parent
SUPPORT = Path("tests/support")
PLANTED = SUPPORT / "planted_faults.pyx"
"""Faults that sanitizers must see; compiled for judges alone."""

PLUGIN = "running_test"
"""The plugin by which a process of pytest that dies leaves behind what it ran; named as nothing in `tests/support`."""

SANITIZERS = "sanitizers"
COVERAGE = "coverage"
_OPTIONS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
_COMMON = ["-fvisibility=hidden", "-Wno-unused-function"]
JUDGES: dict[str, dict[str, Any]] = {
    SANITIZERS: {
        # Without -fwrapv, with which UBSan says nothing of overflows.
        "extra_compile_args": ["-O1", "-g1", "-fno-wrapv", "-fno-omit-frame-pointer", *_OPTIONS, *_COMMON],
        "extra_link_args": _OPTIONS,
        "define_macros": [("ROCKETLENS_SANITIZED", "1")],
    },
    COVERAGE: {
        "extra_compile_args": ["-O0", "-g0", "--coverage", "-fprofile-update=atomic", *_COMMON],
        "extra_link_args": ["--coverage"],
    },
}
"""What `Extension` takes besides, for each judge."""

QUICKLY = "-O0"
"""How a few modules are compiled: in half of the time, and no access is left out that a fault could lie in."""

TESTS = {
    SANITIZERS: (
        "tests/fuzz",
        "tests/protocol/kernels",
        "tests/storage",
        "tests/broker/kernels",
        "tests/broker/lane/test_fast_lane.py",
        "tests/broker/lane/test_known_pulls.py",
        "tests/rocketlens/replay/test_resent.py",
    ),
    COVERAGE: (
        "tests/protocol/kernels",
        "tests/storage/kernels",
        "tests/broker/kernels",
        "tests/storage/columns",
        "tests/storage/build/test_dispatch_scan.py",
        "tests/broker/lane/test_fast_lane.py",
        "tests/broker/lane/test_known_pulls.py",
        "tests/rocketlens/replay/test_resent.py",
    ),
}
"""What drives kernels, and neither a JVM nor a browser."""

NOT_JUDGED = ("tests/storage/test_child_process.py",)
"""What measures the memory of Python's own allocator, and what plants a `sitecustomize.py` where the judges' stands."""


class Unavailable(Exception):
    """This machine has no compiler that can build for a judge; the message says what is missing."""


def build(judge: str, modules: Iterable[str] = ()) -> Path:
    """Compile what is older than its sources, all modules or those that are named; the directory that holds them.

    Raises Unavailable, and CalledProcessError where the compiler fails.
    """
    wanted = " ".join(modules)
    place = ROOT / "build" / (f"{judge}-some" if wanted else judge)
    place.mkdir(parents=True, exist_ok=True)
    if not Path(_library("libasan.so")).is_absolute():
        raise Unavailable("the judges of kernels need gcc and its libasan; on Debian or Ubuntu: apt-get install gcc")
    settings = {"ROCKETLENS_KERNELS_FOR": judge, "ROCKETLENS_KERNELS": wanted}
    command = [
        sys.executable,
        "setup.py",
        "-q",
        "build_ext",
        "--build-lib",
        str(place),
        "--build-temp",
        f"{place}/temp",
    ]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **settings}, check=True)
    shutil.copyfile(ROOT / SUPPORT / "judged_kernels.py", place / "sitecustomize.py")
    shutil.copyfile(ROOT / SUPPORT / "judged_tests.py", place / f"{PLUGIN}.py")
    source, library = ROOT / SUPPORT / "guarded_maps.c", _guarded_maps(place)
    if judge == SANITIZERS and (not library.exists() or library.stat().st_mtime < source.stat().st_mtime):
        options = ["-O1", "-Wall", "-Werror", "-fPIC", "-shared", "-o", str(library), str(source)]
        subprocess.run([*_gcc(), *options], check=True)
    return place


def environment(place: Path) -> dict[str, str]:
    """The environment in which Python runs the modules that were built into a directory.

    Options of AddressSanitizer that this process has in ASAN_OPTIONS are added to ours.
    """
    paths = [str(place), *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    if _guarded_maps(place).exists():
        settings |= {
            "LD_PRELOAD": f"{_library('libasan.so')} {_guarded_maps(place)}",
            "PYTHONMALLOC": "malloc",
            # Python leaks by its own account. SIGBUS is what file_map.h handles.
            "ASAN_OPTIONS": ":".join(
                [
                    *("detect_leaks=0", "handle_sigbus=0", "allocator_may_return_null=1", f"log_path={place}/report"),
                    *filter(None, [os.environ.get("ASAN_OPTIONS")]),
                ]
            ),
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
    return settings


def take_reports(place: Path) -> str:
    """What sanitizers wrote of all processes since this was asked for the last time, and which tests ended one."""
    texts = [path.read_text(errors="replace") for path in sorted(place.glob("report.*"))]
    texts += [f"a process ended while it ran {path.read_text()}" for path in sorted(place.glob("running.*"))]
    for path in (*place.glob("report.*"), *place.glob("running.*")):
        path.unlink()
    return "\n".join(texts)


def run_tests(place: Path, arguments: Iterable[str]) -> tuple[int, str]:
    """Run pytest with the modules that were built into a directory; its exit code, and what faults and deaths left."""
    take_reports(place)
    settings = environment(place)
    if "ASAN_OPTIONS" in settings:
        settings["ASAN_OPTIONS"] += ":handle_sigbus=1"  # of the processes of pytest alone
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:faulthandler", "-p", PLUGIN, *arguments]
    code = subprocess.run(command, cwd=ROOT, env=settings, check=False).returncode
    reports = take_reports(place)
    if code < 0:
        reports += f"\npytest was ended by {signal.Signals(-code).name}"
    return code, reports


def judge(name: str, arguments: list[str]) -> int:
    """Build for a judge and run the tests that drive kernels, or those that the arguments name; its exit code."""
    place = build(name)
    for path in place.rglob("*.gcda"):  # what ran in earlier tests
        path.unlink()
    options = ["-m", "not soak", *(f"--ignore={path}" for path in NOT_JUDGED)]
    tests = [] if any(each.startswith("tests") for each in arguments) else TESTS[name]
    code, reports = run_tests(place, [*options, *arguments, *tests])
    if reports:
        print(reports, file=sys.stderr)
    if name == COVERAGE:
        print_covered(place / "temp")
    return code or bool(reports)


def _gcc() -> list[str]:
    return shlex.split(compilers.find_compiler() or "gcc")


def _library(name: str) -> str:
    """The path of a library of the compiler's, or its bare name where it has none."""
    if not shutil.which(_gcc()[0]):
        return name
    asked = [*_gcc(), f"-print-file-name={name}"]
    return subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=False).stdout.strip() or name


def _guarded_maps(place: Path) -> Path:
    return place / "guarded_maps.so"


if __name__ == "__main__":
    try:
        sys.exit(judge(sys.argv[1], sys.argv[2:]))
    except Unavailable as missing:
        sys.exit(str(missing))
