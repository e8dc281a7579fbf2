"""No pattern that somebody writes runs anywhere in the product but in a process that can be killed."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = ("broker", "protocol", "rocketlens", "spark_jobs", "storage")
RULES = "protocol/mask.py"

FUNCTIONS = {"compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"}


def sources(words):
    """Modules in whose text a pattern is: to parse all others takes seconds, and they have nothing to find."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text("utf-8")
            if re.search(words, text):
                yield str(path.relative_to(ROOT)), ast.parse(text)


def calls(tree):
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def is_of_ours(pattern: ast.expr) -> bool:
    """Whether a pattern is written out in the source, perhaps with names of our constants."""
    if isinstance(pattern, ast.JoinedStr):
        names = (part.value for part in pattern.values if isinstance(part, ast.FormattedValue))
        return all(isinstance(name, ast.Name | ast.Attribute) for name in names)
    return isinstance(pattern, ast.Constant) or (isinstance(pattern, ast.Name) and pattern.id.isupper())


def test_no_pattern_that_is_not_in_the_source_is_compiled_elsewhere() -> None:
    functions = [
        (name, inner)
        for name, tree in sources(r"\bre\b")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for inner in calls(node)
    ]
    found = {
        name
        for name, call in functions
        if isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "re"
        and call.func.attr in FUNCTIONS
        and not is_of_ours(call.args[0])
    }
    assert found == {RULES, "storage/patterns/_literal.py", "storage/patterns/_pattern_process.py"}


def test_paths_and_patterns_are_compiled_and_masks_applied_by_the_process_alone() -> None:
    inner = {"storage.patterns._json_path", "storage.patterns._literal"}
    paths, makers, importing = set[str](), set[str](), set[str]()
    for name, tree in sources(r"jsonpath|_json_path|_literal|\bMask\b"):
        for node in ast.walk(tree):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            paths |= {name for each in names if each.split(".")[0] == "jsonpath"}
            importing |= {name for each in names if each in inner}
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Mask":
                makers.add(name)
    assert paths == {RULES, "storage/patterns/_json_path.py"}
    assert makers == {RULES, "storage/patterns/_pattern_process.py"}
    assert importing == {"storage/patterns/_pattern_process.py"}
