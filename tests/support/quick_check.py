"""`make check`: lint, and beside it the tests of what changed, for as long as a minute allows.

What changed is what differs from where this branch left `main`, or else from the commit before. The tests nearest to it
run first: those that changed themselves, those of the module's own name, those that import it. When the time is over
the rest is left to `make test`, and that is said.
"""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

import pytest

ROOT = Path(__file__).parent.parent.parent
TOTAL_SECONDS = 45
"""When no further test is begun or waited for; the end of fixtures takes some seconds more."""

ENOUGH = 77
"""The exit code of a run that the time has ended."""

OVER = "the minute is over: make test runs what is left"

PACKAGES = ("rocketlens", "broker", "protocol", "storage", "spark_jobs", "benchmarks", "build_backend")
OF_PAGES = ("tests/test_pages.py", "tests/test_docs.py", "tests/test_internals.py")
OF_THE_REST = ("tests/test_habits.py", "tests/test_layers.py", "tests/test_docs.py")
"""What looks at make, CI, and the project's own files."""


def changed_files(root: Path = ROOT) -> list[str]:
    """What differs from where the branch began, or else from the last commit; new files too, deleted ones not."""
    new = _git(root, "ls-files", "--others", "--exclude-standard")
    for base in (_merge_base(root), "HEAD", "HEAD~1"):
        found = _git(root, "diff", "--name-only", "--diff-filter=d", base) if base else []
        if found or new:
            return sorted({*found, *new})
    return []


def _merge_base(root: Path) -> str:
    return next(iter(_git(root, "merge-base", "HEAD", "main")), "")


def _git(root: Path, *arguments: str) -> list[str]:
    """The lines that git prints; none where it fails, as for a commit that a shallow clone has not."""
    command = ["git", "-c", "core.quotePath=false", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout.splitlines()


def looking_at(changed: Iterable[str], root: Path = ROOT) -> list[str]:
    """The test files that look at some files, by their paths from the root, the nearest first."""
    changed = list(changed)
    files = {path.relative_to(root).as_posix(): path.read_text() for path in sorted(root.glob("tests/**/test_*.py"))}
    near = [name for name in changed if name in files]
    far: list[str] = []
    for name in changed:
        path = Path(name)
        if path.suffix == ".md" or path.parts[0] == "docs":
            near += OF_PAGES
        elif path.suffix in {".py", ".pyi", ".pyx", ".pxd"} and path.parts[0] in (*PACKAGES, "tests"):
            near += [own for own in files if _is_own(own, path)]
            if path.parts[0] == "rocketlens":  # whose tests use it by its own name, whichever module it comes from
                near += [each for each in files if each.startswith("tests/rocketlens/")]
            far += [each for each, text in files.items() if _imports(text, path)]
        else:
            near += OF_THE_REST
    return [name for name in dict.fromkeys([*near, *far]) if name in files]


def _is_own(test: str, path: Path) -> bool:
    """Whether a test file is the one of a module: of its name, where the tests mirror its place."""
    return test == f"tests/{path.parent.as_posix()}/test_{path.stem}.py"


def _imports(text: str, path: Path) -> bool:
    parts = [*path.parent.parts, path.stem]
    if parts[:2] == ["tests", "support"]:
        parts = parts[2:]
    module, name = re.escape(".".join(parts)), re.escape(parts[-1])
    package = re.escape(".".join(parts[:-1]))
    from_package = rf"|^from {package} import (?:.*\b)?{name}\b" if package else ""
    return re.search(rf"^(?:from|import) {module}\b{from_package}", text, re.M) is not None


class Outcomes:
    """How many tests failed, also where the time was over before pytest says so."""

    def __init__(self) -> None:
        self.failed = 0
        self.is_over = False
        self._session: pytest.Session | None = None

    def stop(self, _number: int, _frame: FrameType | None) -> None:
        """End after the running test, or within it if it goes on for too long.

        What is raised at any place may be caught there, by the product too, or may be an error inside of pytest.
        """
        if self._session is None or self.is_over:
            pytest.exit(OVER, ENOUGH)
        self.is_over, self._session.shouldstop = True, OVER

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Know what is to be stopped."""
        self._session = session

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what each test, and what it needed, came to."""
        self.failed += report.failed

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count files that cannot even be read."""
        self.failed += report.failed


def run_tests(paths: list[str], seconds: float) -> bool:
    """Run test files until the time is over; whether none failed."""
    outcomes = Outcomes()
    signal.signal(signal.SIGALRM, outcomes.stop)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1.0), 5.0)
    try:
        code = pytest.main(["-q", "--no-cov", "-m", "not soak and not interop", *paths], [outcomes])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    is_done = code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED, ENOUGH)
    return not outcomes.failed and (is_done or outcomes.is_over)


def _said(changed: list[str], paths: list[str]) -> Iterator[str]:
    yield f"check: {len(changed)} files changed; {len(paths)} test files look at them, and lint runs beside them"
    yield from (f"  {path}" for path in paths[:10])
    if len(paths) > 10:
        yield f"  and {len(paths) - 10} more"


def main() -> int:
    """Check; the exit code."""
    began = time.monotonic()
    changed = changed_files()
    paths = looking_at(changed)
    print("\n".join(_said(changed, paths)), flush=True)
    command = ["make", "--no-print-directory", "lint"]
    lint = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    passed = not paths or run_tests(paths, TOTAL_SECONDS - (time.monotonic() - began))
    printed, _ = lint.communicate()
    if lint.returncode:
        print(printed)
    print(f"check: tests {'passed' if passed else 'FAILED'}, lint {'FAILED' if lint.returncode else 'passed'}")
    return int(not passed or lint.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
