"""Binary layouts are executable docstrings: a module's tables against its `Struct` and dtype constants.

A table is a heading line `offset  size  type  field  …` and the rows under it up to a blank line. The line above is the
name of the `Struct` constant; `NAME_DTYPE`, if the module has it, is the NumPy form of the same record.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from struct import Struct, calcsize

import numpy as np

HEADING = re.compile(r"offset\s+size\s+type\s+field\b")
ROW = re.compile(r"(\d+)\s+(\d+)\s+([iu](?:8|16|32|64)|bytes|pad)\s+(\w+)")
ITEM = re.compile(r"(\d*)([bBhHiIqQsx])")
TYPES = {"b": "i8", "B": "u8", "h": "i16", "H": "u16", "i": "i32", "I": "u32", "q": "i64", "Q": "u64"}
TYPES |= {"s": "bytes", "x": "pad"}


@dataclass(frozen=True)
class Row:
    offset: int
    size: int
    type: str
    field: str


@dataclass(frozen=True)
class Table:
    name: str
    rows: tuple[Row, ...]


def tables_of(docstring: str) -> list[Table]:
    """The tables of a docstring; a line of one that is no row fails."""
    lines = [line.strip() for line in docstring.splitlines()]
    tables = []
    for number, line in enumerate(lines):
        if HEADING.match(line):
            rows = []
            for text in lines[number + 1 :]:
                if not text:
                    break
                found = ROW.match(text)
                assert found, f"{text!r} is no row (offset size type field)"
                rows.append(Row(int(found[1]), int(found[2]), found[3], found[4]))
            tables.append(Table(lines[number - 1], tuple(rows)))
    return tables


def tiles_of(layout: Struct) -> list[tuple[int, int, str]]:
    """Offset, size and type of every item of a `Struct`, which must be big-endian."""
    assert layout.format.startswith(">"), f"{layout.format!r} is not big-endian"
    tiles, offset = [], 0
    for count, letter in ITEM.findall(layout.format[1:]):
        size = calcsize(f">{count}{letter}") if letter in "sx" else calcsize(f">{letter}")
        for _ in range(1 if letter in "sx" else int(count or 1)):
            tiles.append((offset, size, TYPES[letter]))
            offset += size
    assert offset == layout.size
    return tiles


def check_layout(module) -> None:
    """Fail unless every table of `module` tiles its `Struct` and equals its dtype, and no record layout lacks a table.

    A `Struct` in the machine's own order (the kernel's, say) is no layout of a file and needs none.
    """
    tables = tables_of(module.__doc__ or "")
    structs = {name: value for name, value in vars(module).items() if isinstance(value, Struct)}
    described = set()
    for table in tables:
        assert table.name in structs, f"{module.__name__}: the table {table.name!r} names no Struct constant"
        rows = [(row.offset, row.size, row.type) for row in table.rows]
        assert rows == tiles_of(structs[table.name]), f"{module.__name__}: the table {table.name} does not tile it"
        assert len({row.field for row in table.rows}) == len(rows), f"{table.name} has two fields of one name"
        described.add(_shape(structs[table.name]))
        dtype = vars(module).get(f"{table.name}_DTYPE")
        if dtype is not None:
            check_dtype(table, np.dtype(dtype))
    names = {table.name for table in tables}
    for name, value in vars(module).items():
        if isinstance(value, (np.dtype, list)) and name.endswith("_DTYPE"):
            assert name.removesuffix("_DTYPE") in names, f"{module.__name__}: {name} has no table"
    for name, layout in structs.items():
        is_record = layout.format[0] in "<>!" and len(tiles_of(layout)) > 1 and _is_defined_in(module, name)
        assert not is_record or _shape(layout) in described, f"{module.__name__}: {name} has no table"


def check_dtype(table: Table, dtype: "np.dtype[np.void]") -> None:
    """Fail unless a dtype has the table's fields: names, order, offsets, sizes, big-endian, no gaps."""
    assert dtype.names == tuple(row.field for row in table.rows)
    for row in table.rows:
        kind, offset = dtype.fields[row.field][:2]
        assert (offset, kind.itemsize) == (row.offset, row.size), f"{table.name}.{row.field}"
        wanted = {"i": "i", "u": "u", "b": "SV", "p": "V"}[row.type[0]]
        assert kind.kind in wanted, f"{table.name}.{row.field} is {kind}"
        assert kind.kind in "SV" or kind.itemsize == 1 or kind.str.startswith(">"), f"{table.name}.{row.field}: {kind}"
    assert dtype.itemsize == sum(row.size for row in table.rows)


def has_layout(path: Path) -> bool:
    """Whether a source file has something to check."""
    text = path.read_text(encoding="utf-8")
    return bool(re.search(r"^\s*offset\s+size\s+type", text, re.MULTILINE) or re.search(r"= Struct\(", text))


def _shape(layout: Struct) -> str:
    return re.sub(r"\d+s", "s", layout.format)


def _is_defined_in(module, name):
    text = Path(str(module.__file__)).read_text(encoding="utf-8")
    return bool(re.search(rf"^{name}\b.*= Struct\(", text, re.MULTILINE))


def module_name(root: Path, path: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
