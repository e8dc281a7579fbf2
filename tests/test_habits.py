"""The habits of this house as far as files keep them: the site, a release, skipped tests, oracles."""

import ast
import hashlib
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

from build_backend import derived
from build_backend.release import CannotRelease, Release, notes, with_release, with_version

ROOT = Path(__file__).parent.parent
TESTS = ROOT / "tests"
PACKAGES = ("broker", "protocol", "rocketlens", "spark_jobs", "storage")


@pytest.mark.soak
def test_the_pages_become_a_site_without_a_warning() -> None:
    outcome = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    assert "WARNING -" not in outcome.stdout + outcome.stderr
    for page in ("index.html", "docs/troubleshooting.html", "docs/internals/architecture.html"):
        assert (ROOT / "build" / "site" / page).exists(), page


PROJECT = '[project]\nname = "rocketlens"\nversion = "0.1.0"\n'
NEWS = "# Changelog\n\n## Unreleased\n\n- Something new.\n\n## 0.1.0\n\nFirst version.\n"


class Commands:
    """Runs what git does, and notes all else."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.others: list[str] = []

    def run(self, command) -> None:
        if command[0] == "git":
            subprocess.run(command, cwd=self._root, check=True)
            return
        self.others.append(" ".join(command[:2]).partition("=")[0])
        if command[:2] == ["make", "wheels"]:
            (self._root / "dist").mkdir()
            (self._root / "dist" / "some.whl").write_text("a wheel")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "CHANGELOG.md").write_text(NEWS)
    (tmp_path / ".gitignore").write_text("/dist/\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "config", "user.name", "A. Tester")
    git(tmp_path, "config", "user.email", "tester@example.com")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "Begin")
    return tmp_path


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_a_release_is_committed_built_and_tagged_in_this_order(tree: Path) -> None:
    commands = Commands(tree)
    Release(tree, "0.2.0", commands.run, with_image=False).make()
    assert commands.others == [".ci/run", "make wheels", *["env PYTHONPATH"] * 2]
    assert 'version = "0.2.0"' in git(tree, "show", "v0.2.0:pyproject.toml")
    assert "## 0.2.0\n" in git(tree, "show", "v0.2.0:CHANGELOG.md")
    assert git(tree, "log", "--format=%s").splitlines() == ["Release 0.2.0", "Begin"]
    assert "- Something new." in git(tree, "tag", "--list", "--format=%(contents)", "v0.2.0")
    assert git(tree, "status", "--porcelain") == ""
    digest = hashlib.sha256(b"a wheel").hexdigest()
    assert (tree / "dist" / "SHA256SUMS").read_text() == f"{digest}  some.whl\n"


def test_what_fails_leaves_no_tag_and_the_same_command_goes_on(tree: Path) -> None:
    def fail(command) -> None:
        raise subprocess.CalledProcessError(1, list(command))

    with pytest.raises(subprocess.CalledProcessError):
        Release(tree, "0.2.0", fail, with_image=False).make()
    assert git(tree, "tag") == ""
    Release(tree, "0.2.0", Commands(tree).run, with_image=False).make()
    assert git(tree, "tag") == "v0.2.0\n"


def test_nothing_is_released_of_what_is_not_committed_nor_twice(tree: Path) -> None:
    (tree / "module.py").write_text("")
    with pytest.raises(CannotRelease, match=r"module\.py is not committed"):
        Release(tree, "0.2.0", Commands(tree).run, with_image=False).make()
    (tree / "module.py").unlink()
    git(tree, "tag", "v0.2.0")
    with pytest.raises(CannotRelease, match=r"there is a tag v0\.2\.0 already"):
        Release(tree, "0.2.0", Commands(tree).run, with_image=False).make()


def test_this_project_can_be_released_as_it_is() -> None:
    project, changelog = (ROOT / "pyproject.toml").read_text(), (ROOT / "CHANGELOG.md").read_text()
    version = re.search(r'^version = "(.*)"$', project, re.M)[1]  # type: ignore[index]
    assert with_version(project, version) == project
    assert len(notes(with_release(changelog, version), version)) > 100


def test_no_folder_of_tests_has_a_name_that_pytest_leaves_out(pytestconfig: pytest.Config) -> None:
    """`build` was one: its tests were not run, and nothing said so."""
    folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py") if "node_modules" not in path.parts}
    names = {name for folder in folders for name in folder.relative_to(ROOT).parts}
    assert {"tests", "build", "storage"} <= names
    left_out = pytestconfig.getini("norecursedirs")
    assert [name for name in names if any(fnmatch(name, pattern) for pattern in left_out)] == []


SKIPS = {
    "rocketlens/cli/test_command_line.py": "root alone can become somebody else",
    "support/base_directory.py": "only root may mount a disk",
    "interop/test_consumers.py": "what a broker that writes does beside those that only we do",
    "fuzz/test_planted_files.py": "root alone can be led to what is somebody else's",
    "spark_jobs/publish/test_open_writers.py": "root alone can become somebody else",
    "spark_jobs/publish/test_publish.py": "memory and disk may be one file system",
    "spark_jobs/publish/test_published_files.py": "root alone can give files away",
    "spark_jobs/publish/test_store_lock.py": "root alone can give files away",
    "storage/doctor/test_next_start.py": "root alone can give a directory away",
    "storage/files/test_mapped_file.py": "not every file system keeps holes",
    "storage/files/test_own_directories.py": "root alone can give files away, and mount a directory",
    "storage/kernels/test_store_view.py": "a machine may have no compiler but ziglang",
    "storage/test_child_process.py": "root alone can become somebody else",
    "support/needed_tools.py": "a machine may have Python alone; CI looks first that all is there",
    "test_deploy.py": "a machine may have no systemd",
    "spark_jobs/test_hard_disks.py": "only root may mount a file system",
    "test_sanitizers.py": "a compiler may have no sanitizers",
    "test_wheels.py": "a machine may have few Pythons, and no root for those of another processor",
}
"""Modules of which tests may be left out, and where: nowhere is it because something was not recorded or installed."""

SKIPPING = re.compile(r"pytest\.(skip|importorskip|xfail)\(|pytest\.mark\.(skip|xfail)")


def test_no_test_is_left_out_without_a_reason() -> None:
    paths = [path for path in TESTS.rglob("*.py") if "node_modules" not in path.parts and path.name != "test_habits.py"]
    assert len(paths) > 300
    skipping = {str(path.relative_to(TESTS)) for path in paths if SKIPPING.search(path.read_text())}
    assert skipping == set(SKIPS)


SHARED = {
    "record_proxy": {"broker.grpc.messages": {"service_pb2"}},
    "search_oracle": {"storage.search.criteria": {"SearchPlace"}},
    "sql92_oracle": {
        "protocol.errors": {"FilterEvaluationError", "quote"},
        "storage.filter.sql92.form": {
            "All", "Compared", "AnyOf", "IsNull", "Negated", "AlwaysNull", "OneOf", "Searched", "BareProperty",
        },
        "storage.filter.sql92.node": {"PartKind", "Type"},
    },
}  # fmt: skip
"""What an oracle has of the product: how a search is asked for, and the tree that the evaluation of SQL92 is given,
which the answers of RocketMQ's own classes judge. The oracle of the search has its expressions in Python. Calls by gRPC
are made of messages that protoc makes of Apache's fields and numbers."""

STARTS_THE_PRODUCT = "forked_command"
"""A module that imports the product to run it in other processes, as the judged server."""

WHERE_IT_SERVES = ("broker.endpoint", "Endpoint")
"""An address, by which what starts a server says where it serves."""


def imported(path, seen):
    """Module and name of each import of a module of the tests, and of those of the tests that it imports."""
    seen.add(path)
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names = [(each.name, "") for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [(node.module, each.name) for each in node.names]
        else:
            continue
        for module, name in names:
            if module == STARTS_THE_PRODUCT or (module, name) == WHERE_IT_SERVES:
                continue
            homes = [home / Path(*module.split(".")).with_suffix(".py") for home in (TESTS / "support", TESTS)]
            if own := next((each for each in homes if each.is_file()), None):
                yield from imported(own, seen) if own not in seen else ()
            else:
                yield module, name


def test_an_oracle_shares_nothing_with_what_it_judges() -> None:
    """Nor does what drives the official programs, or records what they answer."""
    oracles = sorted((TESTS / "support").glob("*oracle*.py"))
    assert len(oracles) > 8
    drivers = [path for folder in ("interop", "golden/record") for path in sorted((TESTS / folder).glob("*.py"))]
    oracles += [path for path in drivers if not path.name.startswith(("test_", "conftest"))]
    assert len(oracles) > 20
    for path in oracles:
        found: dict[str, set[str]] = {}
        for module, name in imported(path, set()):
            assert module != "jsonpath", f"{path}: a search of ours reads JSONPath with it"
            if module.split(".")[0] in PACKAGES:
                found.setdefault(module, set()).add(name)
        assert found == SHARED.get(path.stem, {}), path


def test_what_is_derived_is_that_of_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    made = derived.derived()
    assert len(made) > 20
    assert {path for path, text in made.items() if path.read_text() != text} == set(), "make .dev writes them"


def test_a_class_name_means_one_thing_in_the_product() -> None:
    places: dict[str, list[str]] = {}
    for package in ("broker", "protocol", "storage", "spark_jobs", "rocketlens"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for name in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE):
                places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert len(places) > 800
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}
