"""Every table of bytes of a package but `storage`, which tests its own, tiles the `Struct` under it."""

import importlib
from pathlib import Path
from struct import Struct
from types import ModuleType

import numpy as np
import pytest

from doors import module_name
from layouts import check_layout, has_layout

ROOT = Path(__file__).parent.parent
MODULES = sorted(
    module_name(ROOT, path)
    for package in ("broker", "protocol", "rocketlens", "spark_jobs")
    for path in (ROOT / package).rglob("*.py")
    if has_layout(path)
)


@pytest.mark.parametrize("name", MODULES)
def test_a_modules_tables_tile_its_structs(name: str) -> None:
    check_layout(importlib.import_module(name))


def test_the_modules_with_layouts_are_found() -> None:
    assert {"broker.net._proxy_protocol", "protocol.message_layout", "spark_jobs.run.blocks"} <= set(MODULES)


ENTRY, DTYPE = Struct(">i2sq"), np.dtype([("hash", ">i4"), ("name", "S2"), ("where", ">i8")])
DOCSTRING = """A record.

ENTRY
offset  size  type   field  meaning
0       4     i32    hash   ≥ 0
4       2     bytes  name
6       8     i64    where
"""


def module_of(docstring: str, **constants: object) -> ModuleType:
    module = ModuleType("planted", docstring)
    module.__file__ = __file__
    vars(module).update(constants)
    return module


def test_a_wrong_table_struct_or_dtype_is_noticed() -> None:
    check_layout(module_of(DOCSTRING, ENTRY=ENTRY, ENTRY_DTYPE=DTYPE))
    for docstring, constants in (
        (DOCSTRING, {}),
        (DOCSTRING, {"ENTRY": Struct(">i2sQ")}),
        (DOCSTRING, {"ENTRY": Struct(">i2s")}),
        (DOCSTRING, {"ENTRY": Struct("<i2sq")}),
        (DOCSTRING.replace("6       8", "8       8"), {"ENTRY": ENTRY}),
        (DOCSTRING.replace("where", "hash"), {"ENTRY": ENTRY}),
        (DOCSTRING.replace("i64", "long"), {"ENTRY": ENTRY}),
        (DOCSTRING, {"ENTRY": ENTRY, "ENTRY_DTYPE": np.dtype([("hash", "<i4"), ("name", "S2"), ("where", ">i8")])}),
        (DOCSTRING, {"ENTRY": ENTRY, "ENTRY_DTYPE": np.dtype(DTYPE.descr, align=True)}),
        (DOCSTRING, {"ENTRY": ENTRY, "OTHER_DTYPE": DTYPE}),
    ):
        with pytest.raises(AssertionError):
            check_layout(module_of(docstring, **constants))
