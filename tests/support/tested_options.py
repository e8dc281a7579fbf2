"""Which tests type which commands and options, as the texts of the tests say it.

A test types a word if a literal in it has it, in a function, fixture or constant that it uses, or in theirs, in its own
module or one that it imports from. A text in a docstring does not count.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

TESTS = Path(__file__).parents[1]
SUPPORT = TESTS / "support"
OPTION = '"--'
"""What a module without which types no option."""
GOLDEN_NAMES = frozenset({"g1_store", "g1_crashed_store", "G1", "G2", "GOLDEN", "golden_store"})
"""What a test uses that reads what a real broker wrote or answered."""


@dataclass(frozen=True)
class Part:
    """A function, class or assignment at the top of a module: the words in its literals, and the names it uses.

    `leads` are those words that begin a literal, as the name of a command does.
    """

    words: frozenset[str]
    leads: frozenset[str]
    names: frozenset[str]


@dataclass(frozen=True)
class TypedBy:
    """What one test types, and whether it uses what a broker recorded."""

    test: str
    words: frozenset[str]
    leads: frozenset[str]
    is_golden: bool


@dataclass(frozen=True, eq=False)
class Module:
    """A module of the tests."""

    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax."""
        return ast.parse(self.path.read_bytes())

    @cached_property
    def parts(self) -> dict[str, Part]:
        """Its parts by name."""
        found = {}
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found[node.name] = part_of(node)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for name in (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)):
                    found[name] = part_of(node)
        return found

    @cached_property
    def imported(self) -> dict[str, tuple[Path, str]]:
        """Where the names come from that it imports from other modules of the tests."""
        found = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                path = Path(*node.module.split(".")).with_suffix(".py")
                for home in (SUPPORT, TESTS, TESTS.parent):
                    if (home / path).is_file() and (home / path).is_relative_to(TESTS):
                        found |= {each.asname or each.name: (home / path, each.name) for each in node.names}
        return found


def part_of(node: ast.AST) -> Part:
    """What a piece of syntax has in it; docstrings do not count."""
    nodes = list(ast.walk(node))
    documents = {id(each.value) for each in nodes if isinstance(each, ast.Expr)}
    literals = (each for each in nodes if isinstance(each, ast.Constant) and id(each) not in documents)
    texts = [each.value.split() for each in literals if isinstance(each.value, str)]
    words = {word for text in texts for word in text}
    names = {each.id for each in nodes if isinstance(each, ast.Name)}
    names |= {each.arg for each in nodes if isinstance(each, ast.arg)}
    names |= {each.attr for each in nodes if isinstance(each, ast.Attribute)}
    names |= words  # fixtures may be asked for by their names as texts
    leads = {text[0] for text in texts if text}
    return Part(frozenset(words), frozenset(leads), frozenset(names))


def typed_by_tests() -> Iterator[TypedBy]:
    """Every test, and what it types."""
    modules: dict[Path, Module] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        if OPTION not in path.read_text():
            continue
        for name in modules.setdefault(path, Module(path)).parts:
            if name.startswith(("test_", "Test")):
                used = list(parts_used(modules, path, name))
                words = frozenset(word for part in used for word in part.words)
                leads = frozenset(word for part in used for word in part.leads)
                names = {each for part in used for each in part.names}
                yield TypedBy(f"{path.relative_to(TESTS)}::{name}", words, leads, bool(names & GOLDEN_NAMES))


def parts_used(modules: dict[Path, Module], path: Path, name: str) -> Iterator[Part]:
    """A part of a module, those that it uses, and those that they use."""
    seen, waiting = set(), [(path, name)]
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        module = modules.setdefault(place[0], Module(place[0]))
        part = module.parts.get(place[1])
        if part is not None:
            yield part
            waiting += [(place[0], each) for each in part.names if each in module.parts]
            waiting += [module.imported[each] for each in part.names if each in module.imported]


def typed_together(tests: Iterable[TypedBy], command: str) -> tuple[set[str], bool]:
    """All words that tests type which type a command, and whether one of them uses what a broker recorded."""
    found = [each for each in tests if set(command.split()) <= each.words and command.split()[0] in each.leads]
    return {word for each in found for word in each.words}, any(each.is_golden for each in found)
