"""What is written from other sources before the kernels are compiled, so that nothing stands twice.

`record_layout.pxi`, the positions in a record, comes from the table of :mod:`protocol.message_layout`. A `.pyi` for
each `.pyx` comes from its signatures: type checkers read no Cython. C types become Python's; an argument of a Python
type may be None unless `not None` says otherwise; the type of a member stands in backticks in its comment where C knows
less. Texts stay in the `.pyx`, where `help()` finds them.
"""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYOUT = Path("storage/kernels/record_layout.pxi")

IMPORTS = {
    "from collections.abc import {}": "Callable Iterable Mapping Sequence",
    "import {}": "mmap",
    "from typing import {}": "Any Final TypeVar final",
    "from _typeshed import {}": "HasFileno ReadableBuffer WriteableBuffer",
    "from typing_extensions import {}": "Buffer disjoint_base",
    "import numpy as {}": "np",
    "import numpy.typing as {}": "npt",
}
"""What annotations may name, besides what a kernel cimports; anything else is written with its module."""

PYTHON_TYPES = {"bint": "bool", "double": "float", **dict.fromkeys(("int", "Py_ssize_t"), "int")}
PYTHON_TYPES |= {f"{sign}int{bits}_t": "int" for sign in ("", "u") for bits in (8, 16, 32, 64)}


def derive() -> None:
    """Write what is missing or has changed, below the directory in which every build starts."""
    for path, text in derived().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def derived() -> dict[Path, str]:
    """The files and what they are to say."""
    sources = sorted(Path().glob("*/kernels/*.pyx"))
    return {LAYOUT: record_layout(), **{path.with_suffix(".pyi"): stub(path) for path in sources}}


def record_layout() -> str:
    """Return the enum of a record's positions and lengths, its magic numbers and the bits of its sysFlag."""
    sys.path.insert(0, str(ROOT))
    try:
        layout, flags = map(importlib.import_module, ("protocol.message_layout", "protocol.sys_flag"))
    finally:
        sys.path.remove(str(ROOT))
    values = {}
    for table, prefix in (("V4_V4_FIXED", ""), ("INNER_HEAD", "INNER_")):
        rows = layout.__doc__.split(f"\n{table}\n")[1].split("\n\n")[0]
        for position, field in re.findall(r"^(\d+) +\d+ +\w+ +(\w+)", rows, re.MULTILINE):
            values[f"{prefix}{field.upper()}"] = int(position)
    values |= {
        "HEAD": layout.RECORD_START.size,
        "FIXED": layout.V4_V4_FIXED.size,
        "INNER_HEAD": layout.INNER_HEAD.size,
        "MINIMUM_SIZE": layout.MINIMUM_SIZE,
        "IPV6_EXTRA": layout.V6_V4_FIXED.size - layout.V4_V4_FIXED.size,
        "MAGIC_FIRST_BYTE": layout.V1_MAGIC >> 24,
        **{f"MAGIC_{name}": getattr(layout, f"{name}_MAGIC") - (1 << 32) for name in ("V1", "V2", "BLANK")},
        **{name: int(flag) for name, flag in flags.SysFlag.__members__.items()},
        "TRANSACTION_MASK": flags.TRANSACTION_MASK,
    }
    lines = "".join(f"    {name} = {value}\n" for name, value in values.items())
    return f"# From protocol/message_layout.py and sys_flag.py, by build_backend/derived.py.\ncpdef enum:\n{lines}"


def stub(source: Path) -> str:
    """Return the interface of a kernel, for type checkers."""
    out: list[str] = []
    classes: dict[str, list[str]] = {}
    finals: set[str] = set()
    within = before = ""
    for line in [*_lines(source.with_suffix(".pxd")), *_lines(source)]:
        text = line.strip()
        if not line.startswith(" "):
            within = ""
            if line.startswith("cpdef enum:"):
                within = "enum"
            elif match := re.match(r"cdef class ([A-Za-z]\w*):", line):
                within = match[1]
                classes.setdefault(within, [])
                finals |= {within} if before == "@cython.final" else set()
            elif match := re.fullmatch(r"def (\w+)\((.*)\) -> (.+):", line):
                out.append(f"def {match[1]}({_arguments(match[2])}) -> {match[3]}: ...")
            elif match := re.fullmatch(r"([A-Za-z]\w*: (?:Final = .*|[^=]+?))(?: = .*)?", line):
                out.append(match[1])
        elif within == "enum" and (match := re.match(r"(\w+)( = [^#]+)?", text)):
            out.append(f"{match[1]}: Final{(match[2] or '[int]').rstrip()}")
        elif within in classes and re.match("    [^ ]", line):
            classes[within] += _member(within, text)
        before = text
    for name, body in classes.items():
        bases = "(Buffer)" if "def __getbuffer__" in body else ""
        lines = [f"    {line}" for line in body if line != "def __getbuffer__"]
        out += ["@final" if name in finals else "@disjoint_base", f"class {name}{bases}:", *(lines or ["    pass"])]
    return "\n".join([f"# From {source.name}, by build_backend/derived.py.", *_imports(source, out), *out, ""])


def _lines(path: Path) -> Iterator[str]:
    """The logical lines of a source: what brackets hold together is one; no texts of several lines, no comments."""
    if not path.exists():
        return
    text = re.sub(r'(?s)"""(?!").*?"""', '""', path.read_text())
    whole = ""
    for line in text.splitlines():
        if match := re.match(r'include "(.+)"', line):
            yield from _lines(path.parent / match[1])
            continue
        whole = f"{whole} {line.strip()}" if whole else line
        bare = re.sub(r"#.*|b?c?\"[^\"]*\"|'[^']*'", "", whole)
        if sum(map(bare.count, "([{")) <= sum(map(bare.count, ")]}")):
            if whole.strip() and not whole.strip().startswith("#"):
                yield re.sub(r"(?<=\() |,? ?(?=\))", "", whole)
            whole = ""


def _member(owner: str, line: str) -> list[str]:
    """What a line of a class says in a stub."""
    if match := re.fullmatch(r"cdef readonly (.+?) (\w+)(?:  # `(.+?)`:.*|  #.*)?", line):
        return ["@property", f"def {match[2]}(self) -> {match[3] or PYTHON_TYPES.get(match[1], match[1])}: ..."]
    if line.startswith("@"):
        return [line]
    if line.startswith("def __getbuffer__"):
        return ["def __getbuffer__"]
    if not (match := re.fullmatch(r"def (\w+)\((.*)\) -> (.+):", line)):
        return []
    arguments = _arguments(match[2])
    if match[1] == "__cinit__":
        return [f"def __new__({arguments.replace('self', 'cls', 1)}) -> {owner}: ..."]
    return [f"def {match[1]}({arguments}) -> {match[3]}: ..."]


def _arguments(text: str) -> str:
    """The arguments of a function as Python writes them."""
    pieces: list[str] = []
    for piece in text.split(", "):  # a comma within brackets ends no argument
        if pieces and pieces[-1].count("[") + pieces[-1].count("(") > pieces[-1].count("]") + pieces[-1].count(")"):
            pieces[-1] += f", {piece}"
        else:
            pieces.append(piece)
    return ", ".join(map(_argument, pieces))


def _argument(text: str) -> str:
    match = re.fullmatch(r"(?:([\w.]+(?:\[.*?\])?) )?(\w+)( not None)?(?:: (.+?))?(?: ?= ?(.+))?", text)
    if match is None or not (match[1] or match[4]):
        return text
    kind = match[4] or PYTHON_TYPES.get(match[1]) or match[1] + ("" if match[3] else " | None")
    default = match[5] if match[5] is None or re.fullmatch(r"-?\w+|\(\)", match[5]) else "..."
    return f"{match[2]}: {kind}" + (f" = {default}" if default else "")


def _imports(source: Path, lines: list[str]) -> Iterator[str]:
    """The imports of the names in a stub."""
    code = "\n".join(lines)
    named = set(re.findall(r"(?<![\w.\"])[A-Za-z_]\w*", code))
    named |= {"TypeVar"} if "_T" in named else set()
    for form, names in IMPORTS.items():
        if found := sorted(named & set(names.split())):
            yield form.format(", ".join(found))
    for module in sorted(set(re.findall(r"(?<![\w.])((?:protocol|storage|broker)(?:\.[a-z_]+)+)\.", code))):
        yield f"import {module}"
    own = set(re.findall(r"^class (\w+)", code, re.MULTILINE))
    both = "\n".join([*_lines(source.with_suffix(".pxd")), *_lines(source)])
    cimports = re.findall(r"^from ((?:protocol|storage|broker)\S+) cimport (.+)$", both, re.MULTILINE)
    for module, names in dict.fromkeys(cimports):
        if found := sorted(named & set(re.findall(r"\b[A-Z]+[a-z]\w*", names)) - own):
            yield f"from {module} import {', '.join(found)}"
    if "_T" in named:
        yield '_T = TypeVar("_T")'
