"""Every table of bytes in `protocol` tiles the `Struct` under it, field by field; and the check itself would notice."""

import importlib
from pathlib import Path
from struct import Struct
from types import ModuleType

import numpy as np
import pytest

import protocol
from layouts import check_layout, has_layout, tables_of, tiles_of

MODULES = sorted(path.stem for path in Path(protocol.__path__[0]).glob("*.py") if has_layout(path))

DOCSTRING = """A record.

ENTRY
offset  size  type   field  meaning
0       4     i32    hash   ≥ 0
4       2     bytes  name
6       8     i64    where
"""
ENTRY = Struct(">i2sq")
DTYPE = np.dtype([("hash", ">i4"), ("name", "S2"), ("where", ">i8")])


def module_of(docstring: str, **constants: object) -> ModuleType:
    module = ModuleType("planted", docstring)
    module.__file__ = __file__
    vars(module).update(constants)
    return module


@pytest.mark.parametrize("name", MODULES)
def test_a_protocol_modules_tables_tile_its_structs(name: str) -> None:
    check_layout(importlib.import_module(f"protocol.{name}"))


def test_the_modules_with_layouts_are_found() -> None:
    assert {"host_address", "message_id", "message_layout"} <= set(MODULES)


def test_a_right_table_passes() -> None:
    check_layout(module_of(DOCSTRING, ENTRY=ENTRY, ENTRY_DTYPE=DTYPE))
    assert [row.field for row in tables_of(DOCSTRING)[0].rows] == ["hash", "name", "where"]


def test_repeat_counts_are_items_of_their_own() -> None:
    assert tiles_of(Struct(">2ih")) == [(0, 4, "i32"), (4, 4, "i32"), (8, 2, "i16")]


@pytest.mark.parametrize(
    ("docstring", "constants"),
    [
        (DOCSTRING, {}),
        (DOCSTRING, {"ENTRY": Struct(">i2sQ")}),
        (DOCSTRING, {"ENTRY": Struct(">i2s")}),
        (DOCSTRING, {"ENTRY": Struct("<i2sq")}),
        (DOCSTRING, {"ENTRY": Struct("=i2sq")}),
        (DOCSTRING.replace("6       8", "8       8"), {"ENTRY": ENTRY}),
        (DOCSTRING.replace("where", "hash"), {"ENTRY": ENTRY}),
        (DOCSTRING.replace("i64", "long"), {"ENTRY": ENTRY}),
        (DOCSTRING, {"ENTRY": ENTRY, "ENTRY_DTYPE": np.dtype([("hash", ">i4"), ("where", ">i8"), ("name", "S2")])}),
        (DOCSTRING, {"ENTRY": ENTRY, "ENTRY_DTYPE": np.dtype([("hash", "<i4"), ("name", "S2"), ("where", ">i8")])}),
        (DOCSTRING, {"ENTRY": ENTRY, "ENTRY_DTYPE": np.dtype([("hash", ">u4"), ("name", "S2"), ("where", ">i8")])}),
        (DOCSTRING, {"ENTRY": ENTRY, "ENTRY_DTYPE": np.dtype(DTYPE.descr, align=True)}),
        (DOCSTRING, {"ENTRY": ENTRY, "OTHER_DTYPE": DTYPE}),
    ],
)
def test_a_wrong_table_struct_or_dtype_fails(docstring: str, constants: dict[str, object]) -> None:
    with pytest.raises(AssertionError):
        check_layout(module_of(docstring, **constants))
