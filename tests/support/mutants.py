"""How many of 200 small faults in the pure Python of the product the tests find: `make mutants`.

`mutants.py record` copies the tree to build/mutants with all faults in it, switched off, and runs the tests over the
copy; each fault that is met notes which test meets it. `mutants.py run` switches on one fault after the other and runs
the tests that meet it, the nearest first, until one fails. A fault is an expression that can take another value:

    if position < end:  →  if (position <= end if __mutant__(17) else (position < end)):

The faults are chosen by a seed, once: tests/mutants.tsv keeps them with what came of each, and later runs look for the
same. So two states of the tests can be compared; faults whose line is gone are left out.
"""

import ast
import csv
import importlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
TREE = ROOT / "build" / "mutants" / "tree"
MET = TREE.parent / "met.tsv"
RESULT = ROOT / "tests" / "mutants.tsv"
COLUMNS = ("number", "outcome", "path", "function", "nth", "source", "faulty", "by")
PACKAGES = ("broker", "protocol", "rocketlens", "spark_jobs", "storage")
LEFT_OUT = ("tests/broker/web/browser", "tests/spark_jobs/run/test_cluster.py")
"""Tests of the packages in a browser or on a cluster: they cost most, and little is met by them alone."""

SEED = 44
NUMBER = 200
AT_ONCE = 2
MOST_SECONDS, MOST_TESTS = 20, 200
"""What is run for one fault, by the seconds of the recorded run."""
BROKEN = 99
LIMIT_SECONDS = 150

SWITCH = """
import os
active_number = int(os.environ.get("MUTANT", "0"))
met = os.environ.get("MUTANTS_MET")
written = set()
def active(number):
    if met is not None:
        test = os.environ.get("PYTEST_CURRENT_TEST", "")
        if (number, test) not in written:
            written.add((number, test))
            try:  # a test may have taken rights or descriptors away
                with open(met, "a", encoding="utf-8", errors="surrogateescape") as file:
                    file.write(f"{number}\\t{test.rpartition(' ')[0]}\\n")
            except OSError:
                pass
    return number == active_number
"""

PAIRS = (
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)),
    *((ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.FloorDiv), (ast.LShift, ast.RShift)),
    (ast.BitAnd, ast.BitOr),
)
OTHERS = {**dict(PAIRS), **{second: first for first, second in PAIRS}, ast.Mod: ast.FloorDiv}


class Fault(NamedTuple):
    path: str
    function: str
    nth: int
    start: int
    end: int
    source: str
    faulty: str

    @property
    def identity(self) -> tuple[str, ...]:
        return self.path, self.function, str(self.nth), _on_one_line(self.source), self.faulty


def _on_one_line(source: str) -> str:
    return " ".join(source.split())


def faulty(node: ast.expr) -> str | None:
    """Return the source of another value for an expression; None for an expression of a kind that is left alone."""
    match node:
        case ast.Compare(left, [operator], [right]) if type(operator) in OTHERS:
            return ast.unparse(ast.Compare(left, [OTHERS[type(operator)]()], [right]))
        case ast.BoolOp(operator, values):
            return ast.unparse(ast.BoolOp(OTHERS[type(operator)](), values))
        case ast.UnaryOp(ast.Not(), operand):
            return ast.unparse(operand)
        case ast.BinOp(left, operator, right) if type(operator) in OTHERS and not _is_text(left) | _is_text(right):
            return ast.unparse(ast.BinOp(left, OTHERS[type(operator)](), right))
        case ast.Constant(bool() as value):
            return str(not value)
        case ast.Constant(int() as value):
            return str(value + 1)
    return None


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _faults_as_a_whole(node):
    match node:
        case ast.If(test) | ast.IfExp(test):
            yield test, f"not ({ast.unparse(test)})"
        case ast.Return(ast.expr() as value) if not isinstance(value, ast.Constant):
            yield value, "None"
        case ast.Expr(ast.Call() | ast.Await() as value):
            yield value, "None"


def _expressions(node, names, in_function):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            body = ast.Module(child.body, [])
            yield from _expressions(body, (*names, child.name), not isinstance(child, ast.ClassDef))
        elif isinstance(child, ast.JoinedStr | ast.pattern | ast.arguments) or child is getattr(node, "annotation", 0):
            continue
        else:
            if in_function:
                name = ".".join(names)
                yield from ((name, expression, text) for expression, text in _faults_as_a_whole(child))
                if isinstance(child, ast.expr) and (text := faulty(child)) is not None:
                    yield name, child, text
            yield from _expressions(child, names, in_function)


def all_faults(root: Path) -> list[Fault]:
    found = []
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
        source, lines = path.read_bytes(), [0]
        alike: Counter[tuple[str, ...]] = Counter()
        for line in source.splitlines(keepends=True):
            lines.append(lines[-1] + len(line))
        for function, node, text in _expressions(ast.parse(source), (), False):
            start = lines[node.lineno - 1] + node.col_offset
            end = lines[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            name = path.relative_to(root).as_posix()
            here = source[start:end].decode()
            nth = alike[key := (function, _on_one_line(here), text)]
            alike[key] += 1
            found.append(Fault(name, function, nth, start, end, here, text))
    return found


def chosen(root: Path) -> dict[int, Fault]:
    """Return the faults of the last run that the tree still has, by their number; without a last run, new ones."""
    found = all_faults(root)
    if RESULT.exists():
        by_identity = {fault.identity: fault for fault in found}
        kept = {int(row["number"]): by_identity.get(tuple(row[name] for name in COLUMNS[2:7])) for row in last_run()}
        return {number: fault for number, fault in kept.items() if fault is not None}
    picked: list[Fault] = []
    for fault in random.Random(SEED).sample(found, len(found)):
        apart = (each.path != fault.path or each.end <= fault.start or fault.end <= each.start for each in picked)
        if len(picked) < NUMBER and all(apart):
            picked.append(fault)
    return dict(enumerate(sorted(picked), 1))


def last_run() -> list[dict[str, str]]:
    with RESULT.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def plant(planted: dict[int, Fault]) -> None:
    shutil.rmtree(TREE, ignore_errors=True)
    command = ["git", "ls-files", "-coz", "--exclude-standard"]
    listed = os.fsdecode(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout).split("\0")
    compiled = [str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.so")]
    for name in filter(None, [*listed, *compiled]):
        if (ROOT / name).exists():
            (TREE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, TREE / name, follow_symlinks=False)
    (TREE / "protocol" / "mutant_switch.py").write_text(SWITCH)
    for path in {fault.path for fault in planted.values()}:
        source = (ROOT / path).read_bytes()
        for number, fault in sorted(planted.items(), key=lambda item: -item[1].start):
            if fault.path == path:
                switched = f"({fault.faulty} if __mutant__({number}) else ({fault.source}))".encode()
                source = source[: fault.start] + switched + source[fault.end :]
        head = [node for node in ast.parse(source).body[:2] if isinstance(node, ast.Expr) or _is_future(node)]
        lines = source.splitlines(keepends=True)
        last = max((node.end_lineno or 0 for node in head), default=0)
        lines.insert(last, b"from protocol.mutant_switch import active as __mutant__\n")
        (TREE / path).write_bytes(b"".join(lines))


def _is_future(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def environment(**more: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return inherited | {"PYTHONPATH": f"{TREE}:{TREE / 'tests'}:{TREE / 'tests' / 'support'}"} | more


def record(arguments: list[str]) -> None:
    """Run the tests over the copy; keep which passed, how long each took, and which faults it met."""
    plant(chosen(ROOT))
    met, junit = TREE.parent / "met", TREE.parent / "junit.xml"
    met.unlink(missing_ok=True)
    paths = [f"tests/{name}" for name in PACKAGES] + [f"--ignore={name}" for name in LEFT_OUT]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not soak", f"--junitxml={junit}"]
    command += arguments or ["-n", str(AT_ONCE + 1), *paths]
    subprocess.run(command, cwd=TREE, env=environment(MUTANTS_MET=str(met)), check=False)
    seconds = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        if all(case.find(bad) is None for bad in ("failure", "error", "skipped")):
            seconds[f"{case.get('classname')}::{case.get('name')}"] = float(case.get("time", "0"))
    lines = set(met.read_text(encoding="utf-8", errors="surrogateescape").splitlines())
    with MET.open("w", encoding="utf-8", errors="surrogateescape") as file:
        for number, test in sorted(line.split("\t", 1) for line in lines):
            file_name, _, rest = test.partition("::")
            *classes, name = rest.split("::") if "[" not in rest else [*rest.partition("[")[0].split("::")]
            name += rest[rest.index("[") :] if "[" in rest else ""
            case_name = ".".join([file_name.removesuffix(".py").replace("/", "."), *classes])
            if (took := seconds.get(f"{case_name}::{name}")) is not None:
                file.write(f"{number}\t{took}\t{test}\n")


def tests_of(fault: Fault, met: list[tuple[float, str]], found_by: str) -> list[str]:
    """Return tests that meet a fault: what found it last, those of its own file, then the nearest, up to a limit."""
    mirror = f"tests/{Path(fault.path).parent}/test_{Path(fault.path).name}".split("/")

    def distance(test: str) -> int:
        parts = zip(mirror, test.partition("::")[0].split("/"), strict=False)
        return -sum(one == other for one, other in parts)

    taken: list[str] = []
    left = float(MOST_SECONDS)
    for took, test in sorted(met, key=lambda each: (each[1] != found_by, distance(each[1]), each[0])):
        if took <= left and len(taken) < MOST_TESTS:
            taken.append(test)
            left -= took
    return taken


def run(arguments: list[str]) -> None:
    """Run the tests of some faults by their numbers, or of all, and write what came of each beside the tests."""
    if "MUTANTS_RUN" not in os.environ:
        os.chdir(TREE)
        os.execve(sys.executable, [sys.executable, "-u", __file__, *sys.argv[1:]], environment(MUTANTS_RUN="yes"))
    faults = chosen(ROOT)
    rows = {int(row["number"]): (row["outcome"], row["by"]) for row in last_run()} if RESULT.exists() else {}
    met: dict[int, list[tuple[float, str]]] = defaultdict(list)
    for line in MET.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        name, took, test = line.split("\t", 2)
        met[int(name)].append((float(took), test))
    found_by = {int(row["number"]): row["by"] for row in last_run()} if RESULT.exists() else {}
    for path in sorted({fault.path for fault in faults.values()}):
        importlib.import_module(path.removesuffix(".py").replace("/", ".").removesuffix(".__init__"))
    running: dict[int, tuple[int, float]] = {}
    left = [int(each) for each in arguments] or list(faults)
    while left or running:
        while left and len(running) < AT_ONCE:
            number = left.pop(0)
            tests = tests_of(faults[number], met[number], found_by.get(number, ""))
            if tests:
                running[_start(number, tests)] = number, time.monotonic()
            else:
                rows[number] = "not met", ""
        ended, status = os.waitpid(-1, os.WNOHANG)
        if not ended:
            time.sleep(0.05)
            for pid, (_, since) in running.items():
                if time.monotonic() > since + LIMIT_SECONDS:
                    os.killpg(pid, signal.SIGKILL)
            continue
        number, since = running.pop(ended)
        rows[number] = _outcome(number, os.waitstatus_to_exitcode(status))
        fault = faults[number]
        print(f"{number:4} {rows[number][0]:9} {time.monotonic() - since:5.1f} s  {fault.identity} {rows[number][1]}")
        write_result(faults, rows)
    counted = Counter(rows[number][0] for number in faults)
    print(f"{counted['killed']} of {len(faults)} faults are found: {dict(counted)}")


def write_result(faults: dict[int, Fault], rows: dict[int, tuple[str, str]]) -> None:
    with RESULT.open("w", newline="", encoding="utf-8") as file:
        write = csv.writer(file, delimiter="\t", lineterminator="\n").writerow
        write(COLUMNS)
        for number, fault in sorted(faults.items()):
            outcome, by = rows.get(number, ("", ""))
            write([number, outcome, *fault.identity, by])


def _start(number: int, tests: list[str]) -> int:
    if child := os.fork():
        return child
    os.setsid()
    printed = os.open(TREE.parent / f"{number}.txt", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    os.environ["MUTANT"] = str(number)
    importlib.import_module("protocol.mutant_switch").__dict__["active_number"] = number
    code = BROKEN
    try:
        ignored = "ignore::pytest.PytestAssertRewriteWarning"  # the product may import a package that has a plugin
        code = int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "--tb=short", "-W", ignored, *tests]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _outcome(number: int, code: int) -> tuple[str, str]:
    if code == pytest.ExitCode.OK:
        return "survived", ""
    printed = (TREE.parent / f"{number}.txt").read_text(errors="replace")
    failed = re.search(r"^(?:FAILED|ERROR) (tests/\S.*?)(?: - .*)?$", printed, re.MULTILINE)
    if code == BROKEN and not failed:
        raise SystemExit(f"pytest itself failed: see {TREE.parent / f'{number}.txt'}")
    return "killed", failed[1] if failed else f"exit code {code}"


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(sys.argv[2:])
    else:
        run(sys.argv[2:])
