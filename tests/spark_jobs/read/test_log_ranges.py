"""The log as ranges that are read apart, in a directory, behind a URL, and in a part; damage is named, or an error."""

import zlib

import fsspec
import pytest

from column_rows import expected_rows, rows_of
from protocol.errors import ConfigError, CorruptRecord, NotAStore, StoreError
from spark_jobs.read.log_ranges import end_of, find_ranges
from spark_jobs.read.read_range import RangeReader
from spark_jobs.scan.source import find_source
from storage.columns.names import KINDS
from storage.columns.wanted import Wanted
from store_writer import StoreWriter
from verifying import in_memory


@pytest.fixture
def store(tmp_path):
    with StoreWriter(tmp_path / "store", segment_size=2048) as writer:
        for number in range(60):
            writer.append("T", b"body of %d" % number)
    return writer


@pytest.fixture
def memory(store):
    with in_memory(store.root) as url:
        yield url


def read(found):
    rows = []
    for range_ in found.ranges:
        reader = RangeReader(range_, Wanted(), tuple(KINDS), fails_fast=True)
        rows += [row for columns in reader.read() for row in rows_of(columns)]
    return rows


class TestBehindUrls:
    def test_the_same_messages_are_read_and_a_missing_segment_is_known(self, store: StoreWriter, memory: str) -> None:
        found = find_ranges(memory)
        assert [each.base_offset for each in found.ranges] == list(store.log.segments)
        assert read(found) == expected_rows(store.records)
        assert found.ranges[-1].base_offset + end_of(found.ranges[-1]) == store.log.end
        assert read(find_ranges(f"{memory}/commitlog")) == expected_rows(store.records)
        assert read(find_ranges(memory, [f"{memory}/commitlog"])) == expected_rows(store.records)
        fsspec.filesystem("memory").rm(f"{memory}/commitlog/00000000000000002048")
        assert [(each.physical_offset, each.length) for each in find_ranges(memory).problems] == [(2048, 2048)]
        with pytest.raises(NotAStore):
            find_ranges(f"{memory}/config")
        with pytest.raises(ConfigError, match="nosuch"):
            find_ranges("nosuch://store")


@pytest.mark.parametrize("name", [2**63 - 1, 2**63 - 4096])
def test_a_segment_that_reaches_beyond_the_largest_offset_is_named(tmp_path, name) -> None:
    with StoreWriter(tmp_path) as writer:
        writer.append("T", b"x")
    path = tmp_path / "commitlog" / f"{name:020d}"
    path.write_bytes(bytes(4096 + 8))
    for look in (lambda: find_source(tmp_path, ()), lambda: find_ranges(f"local://{tmp_path}")):
        with pytest.raises(StoreError, match=f"{name:020d}: of 4104 bytes reaches beyond"):
            look()


@pytest.fixture
def damaged(tmp_path):
    with StoreWriter(tmp_path) as writer:
        for number in range(9):
            writer.append("T", b"body of %d" % number)
    writer.overwrite(writer.written[4].physical_offset + 90, b"#")
    return writer


def reader(damaged: StoreWriter, **more: bool) -> RangeReader:
    (range_,) = find_ranges(str(damaged.root)).ranges
    return RangeReader(range_, Wanted(), ("body",), **more)


def test_damage_is_an_error_for_who_wants_it_and_so_is_a_body_that_cannot_be_decompressed(damaged, tmp_path) -> None:
    with pytest.raises(CorruptRecord, match="its body does not match its CRC"):
        list(reader(damaged, fails_fast=True).read())
    with StoreWriter(tmp_path / "packed") as packed:
        packed.append("T", zlib.compress(b"good"), sys_flag=1)
        packed.append("T", b"bad\xff\x01", sys_flag=1)
    with pytest.raises(CorruptRecord, match="cannot be decompressed"):
        list(reader(packed, fails_fast=True).read())
