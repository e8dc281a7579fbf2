"""Who imports whom among our modules, wherever the import stands: in a function, under TYPE_CHECKING or in a kernel.

A module whose name begins with an underscore belongs to its folder: only modules of that folder, and of those below it,
import it.
"""

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

SUFFIXES = (".py", ".pyx", ".pxd", ".pyi")
CIMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import\s+(.+)|cimport\s+([\w.]+))", re.MULTILINE)


class Import(NamedTuple):
    """One import of a module of ours."""

    path: Path
    line: int
    importer: str
    imported: str


class House:
    """The packages of some names under a directory."""

    def __init__(self, root: Path, packages: Iterable[str]) -> None:
        self.root = root
        self.paths = sorted(path for package in packages for path in (root / package).rglob("*") if is_source(path))
        self.modules = {module_name(root, path) for path in self.paths}

    @functools.cached_property
    def imports(self) -> tuple[Import, ...]:
        """All imports of modules of ours, read once."""
        return tuple(self._read_imports())

    def _read_imports(self) -> Iterator[Import]:
        for path in self.paths:
            read = python_imports if path.suffix in (".py", ".pyi") else kernel_imports
            importer = module_name(self.root, path)
            for line, module, name in read(path.read_text()):
                imported = f"{module}.{name}" if f"{module}.{name}" in self.modules else module
                if imported in self.modules:
                    yield Import(path.relative_to(self.root), line, importer, imported)

    def entered_folders(self, found: Import) -> Iterator[tuple[str, str]]:
        """Each folder that an import enters from outside, and what of it is imported."""
        parts = found.imported.split(".")
        for depth in range(1, len(parts)):
            folder = ".".join(parts[:depth])
            if found.importer != folder and not found.importer.startswith(f"{folder}."):
                yield folder, parts[depth]

    def intrusions(self) -> list[str]:
        """Imports of another folder's private modules."""
        return [
            f"{found.path}:{found.line} imports {found.imported}, which is private to {folder}"
            for found in self.imports
            for folder, name in self.entered_folders(found)
            if name.startswith("_")
        ]


def is_source(path: Path) -> bool:
    """Whether a file is a module: Python, a stub, or a kernel."""
    return path.suffix in SUFFIXES and "__pycache__" not in path.parts


def module_name(root: Path, path: Path) -> str:
    """The dotted name of a file's module."""
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def python_imports(source: str) -> Iterator[tuple[int, str, str]]:
    """(line, module, name) of all imports; of ``import a.b`` the name is empty."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, ""
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield node.lineno, node.module, alias.name


def kernel_imports(source: str) -> Iterator[tuple[int, str, str]]:
    """As :func:`python_imports` for Cython, which only Cython parses: ``from a.b cimport c`` and ``cimport a.b``."""
    for found in CIMPORT.finditer(source):
        line = source.count("\n", 0, found.start(0) + len(found[0]) - len(found[0].lstrip())) + 1
        if found[3]:
            yield line, found[3], ""
        else:
            for name in re.findall(r"\w+", found[2]) or [""]:
                yield line, found[1], name
