"""Blocks come back as they were written, and never otherwise."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from protocol.errors import StoreError
from spark_jobs.run.blocks import Block, BlockWriter, read_block

KINDS = ["<i4", "<i8", "<u2", "|u1"]
columns = st.dictionaries(
    st.sampled_from(["hashes", "offsets", "units", "counts"]),
    st.sampled_from(KINDS).flatmap(lambda kind: arrays(kind, st.integers(0, 40))),
)


def read_blocks(path: Path) -> Iterator[Block]:
    """All blocks of a file, each from where the one before it ended."""
    with path.open("rb") as file:
        position, size = 0, os.fstat(file.fileno()).st_size
        while position < size:
            block, position = read_block(path, file.fileno(), position)
            yield block


@settings(max_examples=60)
@given(st.lists(columns, max_size=4))
def test_blocks_come_back_in_order_with_range_source_and_columns(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[dict[str, np.ndarray]]
) -> None:
    path = tmp_path_factory.mktemp("blocks") / "one.blocks"
    with BlockWriter(path, "/store/commitlog/0") as writer:
        positions = [writer.write(n, n + 1, block, queues=[[b"T", n]]) for n, block in enumerate(blocks)]
    read = list(read_blocks(path))
    assert positions == sorted(set(positions))
    assert [block.header["range"] for block in read] == [[n, n + 1] for n in range(len(blocks))]
    assert all(block.header["source"] == "/store/commitlog/0" for block in read)
    assert [block.header["queues"] for block in read] == [[[b"T", n]] for n in range(len(blocks))]
    for block, written in zip(read, blocks, strict=True):
        assert {name: column.tolist() for name, column in block.columns.items()} == {
            name: column.tolist() for name, column in written.items()
        }


@settings(max_examples=100)
@given(st.data())
def test_a_changed_byte_and_a_cut_are_noticed_and_the_file_named(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("blocks") / "one.blocks"
    with BlockWriter(path, "x") as writer:
        writer.write(5, 9, {"hashes": np.arange(50, dtype=np.int32)})
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(len(content) - 200, len(content) - 1), label="position")
    flip = data.draw(st.integers(0, 255), label="flip, or 0 for a cut")
    content[position] ^= flip
    path.write_bytes(content if flip else content[:position])
    with pytest.raises(StoreError, match=r"one\.blocks"):
        list(read_blocks(path))
