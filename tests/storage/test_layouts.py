"""Every table of bytes in `storage` tiles the `Struct` and the dtype under it, field by field."""

import importlib
from pathlib import Path

import storage
from layouts import check_layout, has_layout, module_name
from storage.index.index_file import ENTRY, HEADER, SLOT
from storage.kernels import indexes

STORAGE = Path(storage.__path__[0])
ELSEWHERE = {
    "storage.index.index_header",  # its table is in index_file, which has the same `Struct`
    "storage.queue.unit_struct",  # in consume_queue
    "storage.filter.bloom",  # pieces of what is hashed, and no layout
}
MODULES = sorted(module_name(STORAGE.parent, path) for path in STORAGE.rglob("*.py") if has_layout(path))
MODULES = [name for name in MODULES if name not in ELSEWHERE]


def test_the_tables_of_modules_with_layouts_tile_their_structs() -> None:
    # A storage modules tables tile its structs.
    for name in MODULES:
        check_layout(importlib.import_module(name))
    # The modules with layouts are found.
    expected = {"batch_consume_queue", "checkpoint", "consume_queue", "consume_queue_ext", "dledger", "index_file"}
    assert expected <= {name.rpartition(".")[2] for name in MODULES}


def test_kernels_step_by_the_sizes_of_the_index_layouts() -> None:
    assert (HEADER.size, SLOT.size, ENTRY.size) == (indexes.INDEX_HEADER, indexes.SLOT_BYTES, indexes.ENTRY_BYTES)
