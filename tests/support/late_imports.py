"""Imports in a function or under TYPE_CHECKING, and the reason that each of them has to give.

The reason is a comment: on the import's line, above the first of some imports that follow one another, or behind
``if TYPE_CHECKING:``. What is imported late again in the same module needs no second one: a package of others counts as
one thing, of ours each module. Where a whole module or folder imports late, a paragraph of its docstring that begins
with ``Late imports:`` says why.
"""

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

NOTE = re.compile(r"^Late imports: \w+", re.MULTILINE)
INDENTED = re.compile(r"^[ \t]+(import|from) ", re.MULTILINE)
"""What a source has that has a late import; most have none, and need not be parsed."""


def unexplained_imports(root: Path, packages: Collection[str]) -> list[str]:
    """``path:line`` of each late import without a reason."""
    return [
        f"{path.relative_to(root)}:{line}"
        for package in packages
        for path in sorted((root / package).rglob("*.py"))
        if not (has_note(path) or has_note(path.with_name("__init__.py")))
        for line in unexplained_in(path.read_text(), packages)
    ]


def has_note(path: Path) -> bool:
    """Whether a module's docstring says why it imports late."""
    source = path.read_text() if path.exists() else ""
    return NOTE.search(source) is not None and NOTE.search(ast.get_docstring(ast.parse(source)) or "") is not None


def unexplained_in(source: str, ours: Collection[str]) -> list[int]:
    """The lines of late imports that neither have a reason nor import again what has one."""
    if not INDENTED.search(source):
        return []
    lines = source.splitlines()
    found = [
        (
            group[0].lineno,
            {subject for each in group for subject in subjects(each, ours)},
            has_reason(lines, body, group),
        )
        for body, group in late_groups(ast.parse(source))
    ]
    explained = {subject for _, imported, is_explained in found if is_explained for subject in imported}
    return [line for line, imported, _ in found if not imported <= explained]


def late_groups(tree: ast.Module) -> Iterator[tuple[ast.stmt, list[ast.stmt]]]:
    """The imports that stand late, those together that follow one another, with the statement around them."""
    late = [node for node in ast.walk(tree) if is_late(node)]
    seen: set[ast.stmt] = set()
    for outer in late:
        for inner in ast.walk(outer):
            for statements in bodies(inner):
                for group in import_runs(statements):
                    if group[0] not in seen:
                        seen.add(group[0])
                        yield inner, group


def is_late(node: ast.AST) -> bool:
    """Whether the imports in a statement are not made with the module's."""
    is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    return is_for_types or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements in a statement."""
    for name in ("body", "orelse", "finalbody"):
        statements = getattr(node, name, None)
        if isinstance(statements, list):
            yield statements


def import_runs(statements: Iterable[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """The imports in a list of statements, those together that follow one another."""
    run: list[ast.stmt] = []
    for statement in statements:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            run.append(statement)
        elif run:
            yield run
            run = []
    if run:
        yield run


def subjects(statement: ast.stmt, ours: Collection[str]) -> Iterator[str]:
    """What an import is about: a package of others, a module of ours."""
    names = [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else [statement.module or ""]
    for name in names:
        package = name.partition(".")[0]
        yield name if package in ours else package


def has_reason(lines: list[str], around: ast.AST, group: list[ast.stmt]) -> bool:
    """Whether a comment stands on the line of one of the imports, or above the first of them."""
    first = group[0].lineno - 1
    spans = [lines[each.lineno - 1 : each.end_lineno] for each in group]
    above = lines[first - 1].strip()
    is_behind_if = isinstance(around, ast.If) and around.lineno == first and "#" in above
    return is_behind_if or above.startswith("#") or any("#" in line for span in spans for line in span)
