"""Extension units: the bytes that the real broker's classes wrote, and everything that may be wrong with them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_store import GOLDEN
from oracles import packed
from storage.files.open_files import OpenFiles
from storage.files.waiting import finish
from storage.queue.consume_queue_ext import ConsumeQueueExt, ConsumeQueueExtUnit, is_extension_address
from store_files import ConsumeQueueExtFiles

BASE = -(1 << 63)
RECORDED: dict[str, Any] = json.loads((GOLDEN / "filter" / "tag-bloom-vectors.json").read_text())["consume_queue_ext"]


def write(directory: Path, content: bytes, start: int = 0) -> ConsumeQueueExt:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{start:020d}").write_bytes(content)
    return ConsumeQueueExt(directory, OpenFiles())


def test_the_recorded_units_are_read_at_the_recorded_addresses(tmp_path: Path) -> None:
    for name, content in RECORDED["files_hex"].items():
        (tmp_path / name).write_bytes(bytes.fromhex(content))
    extension = ConsumeQueueExt(tmp_path, OpenFiles())
    assert len(RECORDED["puts"]) == 5
    for put in RECORDED["puts"]:
        unit = finish(extension.unit_at(put["addr"]))
        assert unit is not None
        bitmap = "null" if unit.bitmap is None else str([byte - 256 if byte > 127 else byte for byte in unit.bitmap])
        bitmap_size = 0 if unit.bitmap is None else len(unit.bitmap)
        assert put["got"] == (
            f"CqExtUnit{{size={unit.size}, tagsCode={unit.tags_code}, msgStoreTime={unit.store_timestamp}, "
            f"bitMapSize={bitmap_size}, filterBitMap={bitmap}}}"
        )


@given(
    st.lists(
        st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(0, 1 << 50), st.binary(max_size=40)), max_size=20
    )
)
def test_what_was_put_is_found(tmp_path_factory: pytest.TempPathFactory, units: list[tuple[int, int, bytes]]) -> None:
    directory = tmp_path_factory.mktemp("extension")
    files = ConsumeQueueExtFiles(directory, 150)
    addresses = [files.put(*unit) for unit in units]
    files.flush()
    extension = ConsumeQueueExt(directory, OpenFiles())
    for address, (code, stamp, bitmap) in zip(addresses, units, strict=True):
        assert finish(extension.unit_at(address)) == ConsumeQueueExtUnit(20 + len(bitmap), code, stamp, bitmap or None)


@pytest.mark.parametrize(("size", "bitmap_size"), [(19, 0), (21, 0), (23, 4), (25, 4), (20, 4), (24, 0), (24, -1)])
def test_a_unit_whose_size_is_not_that_of_its_fields_is_none(size: int, bitmap_size: int, tmp_path: Path) -> None:
    content = packed(size, 2) + packed(7, 8) + packed(8, 8) + packed(bitmap_size, 2) + b"\xff" * 40
    assert finish(write(tmp_path, content).unit_at(BASE)) is None


@pytest.mark.parametrize("code", [0, 1, -1, -(1 << 31), (1 << 31) - 1, 1_700_000_000_000, (1 << 63) - 1])
def test_a_tags_code_is_no_address(code: int, tmp_path: Path) -> None:
    assert not is_extension_address(code)
    assert finish(write(tmp_path, packed(20, 2) + bytes(18)).unit_at(code)) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"\0", packed(20, 2) + bytes(17), packed(-1, 2) + bytes(30), bytes(40), packed(19, 2) + bytes(30),
     packed(25, 2) + bytes(16) + packed(5, 2) + bytes(4)],
)  # fmt: skip
def test_where_no_whole_unit_stands_there_is_none(content: bytes, tmp_path: Path) -> None:
    assert finish(write(tmp_path, content).unit_at(BASE)) is None


def test_a_negative_bitmap_size_means_no_bitmap(tmp_path: Path) -> None:
    unit = finish(write(tmp_path, packed(20, 2) + packed(5, 8) + packed(6, 8) + packed(-3, 2)).unit_at(BASE))
    assert unit == ConsumeQueueExtUnit(20, 5, 6, None)


def test_a_unit_is_not_read_on_in_the_next_file(tmp_path: Path) -> None:
    write(tmp_path, bytes(80) + packed(34, 2) + bytes(16) + packed(14, 2))
    extension = write(tmp_path, bytes(100), start=100)
    assert finish(extension.unit_at(BASE + 80)) is None


def test_a_file_that_cannot_be_opened_any_more_has_no_units(tmp_path: Path) -> None:
    extension = write(tmp_path, packed(20, 2) + bytes(18))
    (tmp_path / f"{0:020d}").unlink()
    assert finish(extension.unit_at(BASE)) is None
