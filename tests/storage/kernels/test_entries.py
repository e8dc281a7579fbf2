"""Segments of DLedger entries: every walk finds the records behind the heads, as the oracle reads them one by one."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from dispatch_oracle import dispatch
from dispatching import scan_bytes
from examples import examples
from kernel_memory import Bytes, record_at
from storage.build.dispatch_scan import Reason
from storage.columns.rows import ROW
from storage.columns.wanted import Wanted
from storage.kernels import message_rows
from storage.kernels.records import (
    AT_BLANK,
    AT_DAMAGE,
    ENTRY_HEAD,
    MAXIMUM_PIECES,
    check_step,
    closes_segment,
    find_record,
    scan_keys,
    walk_appended,
    walk_records,
)
from store_files import pack_entry

BASE = 1 << 32


@dataclass
class Ledger:
    """A segment as it grows; `starts` are the positions of its records."""

    data: bytes = b""
    starts: list[int] = field(default_factory=list)
    entries: int = 0

    def add(self, kind, **changes) -> None:
        """Append a record in an entry, one without a head, or an entry that has none."""
        head = ENTRY_HEAD if kind == "entry" else 0
        if kind in ("entry", "plain"):
            self.starts.append(len(self.data) + head)
            record = record_at(BASE + self.starts[-1], **changes)
            self.data += record if kind == "plain" else self._entry(record, 1)
        else:
            self.data += self._entry(b"", 2) if kind == "noop" else self._entry(b"n0-127.0.0.1:40911", 3)

    def _entry(self, body: bytes, kind: int) -> bytes:
        self.entries += 1
        return pack_entry(body, BASE + len(self.data), index=self.entries - 1, kind=kind)


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    ledger = Ledger()
    kinds = st.sampled_from(["entry", "entry", "entry", "plain", "noop", "change"])
    for number, kind in enumerate(draw(st.lists(kinds, max_size=8))):
        if kind in ("entry", "plain"):
            changes = {
                "keys": draw(st.sampled_from([None, "a", "a a b", "ключ 🔑"])),
                "unique_key": draw(st.sampled_from([None, f"U{number}"])),
                "tags": draw(st.sampled_from([None, "TagA"])),
                "sys_flag": draw(st.sampled_from([0, 4, 8, 12, 0x30])),
                "body": draw(st.binary(max_size=10)),
                "queue_offset": number,
                "property_crc": draw(st.booleans()),
            }
            ledger.add(kind, **changes)
        else:
            ledger.add(kind)
    return ledger


def keys_of(data: bytes, position: int, stop: int) -> tuple[int, set[tuple[int, int]]]:
    hashes, offsets = np.zeros(100 + MAXIMUM_PIECES, np.int32), np.zeros(100 + MAXIMUM_PIECES, np.int64)
    found = scan_keys(Bytes(data).region, position, stop, len(data), BASE, BASE + len(data), hashes, offsets)
    return found.position, set(zip(hashes[: found.entries].tolist(), offsets[: found.entries].tolist(), strict=True))


def rows_of(data: bytes, position: int, limit: int, stop: int) -> tuple[int, int, int, list[int]]:
    table = np.zeros(20, ROW)
    chosen = message_rows.choose_records(
        Bytes(data).region, position, limit, stop, BASE, BASE + len(data),
        Wanted().query(names=True, checksums=True), table.view(np.int64),
    )  # fmt: skip
    return chosen.position, chosen.reason, chosen.last, table["position"][: chosen.rows].tolist()


class TestWholeSegments:
    @settings(max_examples=examples(12))
    @given(ledgers(), st.sampled_from([b"", bytes(8), bytes(200)]))
    def test_every_walk_meets_the_records_of_the_oracle_and_ends_behind_the_last(self, ledger, behind) -> None:
        data, starts = ledger.data + behind, ledger.starts
        records = list(oracles.scan_segment(data, BASE))
        assert [record.physical_offset - BASE for record in records] == starts
        end = len(ledger.data)
        region = Bytes(data).region
        walk = walk_records(region, 0, len(data), BASE, BASE + len(data), True)
        assert (walk.position, walk.records, walk.last) == (end, len(starts), starts[-1] if starts else -1)
        appended = walk_appended(region, 0, len(data), len(data), BASE, BASE + len(data))
        assert (appended.position, appended.records, appended.last) == (end, len(starts), walk.last)
        expected = {
            (oracles.index_hash(key), record.physical_offset)
            for record in records
            if record.sys_flag & 0xC != 0xC
            for key in oracles.index_keys(record)
        }
        assert keys_of(data, 0, len(data)) == (end, expected)
        assert rows_of(data, 0, len(data), len(data))[2:] == (walk.last, starts)

    @settings(max_examples=examples(30))
    @given(ledgers(), st.integers(20, 400), st.integers(1, 3))
    def test_a_dispatch_makes_of_them_what_the_oracle_makes_however_they_are_read(
        self, ledger, window, records
    ) -> None:
        expected = dispatch(oracles.scan_segment(ledger.data, BASE), lmq=True)
        assert scan_bytes(ledger.data, BASE).made == expected
        assert scan_bytes(ledger.data, BASE, window=window, records=records).made == expected


class TestDamage:
    @settings(max_examples=examples(12))
    @given(ledgers(), st.data())
    def test_a_walk_ends_where_the_oracle_ends(self, ledger: Ledger, draw: st.DataObject) -> None:
        if not ledger.data:
            return
        place = draw.draw(st.integers(0, len(ledger.data) - 1))
        data = ledger.data[:place] + draw.draw(st.binary(min_size=1, max_size=9)) + ledger.data[place + 9 :]
        records = list(oracles.scan_segment(data, BASE))
        raw = {record: data[record.physical_offset - BASE :][: record.total_size] for record in records}
        if not all(map(oracles.property_crc_holds, raw.values())):
            return  # the oracle of a walk knows no property CRC
        region = Bytes(data).region
        end = BASE + len(data)
        assert walk_records(region, 0, len(data), BASE, end, True).records == len(records)
        assert walk_appended(region, 0, len(data), len(data), BASE, end).records == len(records)
        assert rows_of(data, 0, len(data), len(data))[3] == [each.physical_offset - BASE for each in records]
        made = scan_bytes(data, BASE, checksums=True).made
        assert made == dispatch(records, lmq=True)


class TestBlanks:
    @pytest.mark.parametrize("left", [8, 40, 100])
    def test_a_blank_of_dledgers_closes_a_segment_by_its_size(self, left: int) -> None:
        ledger = Ledger()
        ledger.add("entry")
        end = len(ledger.data)
        data = ledger.data + oracles.packed(-1, 4) + oracles.packed(left, 4) + bytes(left - 8)
        region = Bytes(data).region
        assert closes_segment(region, end, left)
        assert not closes_segment(region, end, left + 1)
        assert check_step(region, end, len(data), BASE + end, BASE + len(data)) == 0
        walk = walk_records(region, 0, len(data), BASE, BASE + len(data), True)
        assert (walk.position, walk.reason) == (end, AT_BLANK)
        appended = walk_appended(region, 0, len(data), len(data), BASE, BASE + len(data))
        assert (appended.position, appended.reason) == (end, AT_BLANK)
        assert rows_of(data, 0, len(data), len(data))[:2] == (end, AT_BLANK)
        step = scan_bytes(data, BASE).step
        assert (step.position, step.reason) == (end, Reason.BLANK)


def test_a_damaged_head_hides_no_record_from_a_search() -> None:
    ledger = Ledger()
    for number in range(3):
        ledger.add("entry", keys=f"k{number}")
    head = ledger.starts[1] - ENTRY_HEAD
    for place in (0, 4, 24, 31, 44, 47):
        data = bytearray(ledger.data)
        data[head + place] ^= 0x40
        walk = walk_records(Bytes(bytes(data)).region, 0, len(data), BASE, BASE + len(data), True)
        assert (walk.position, walk.reason) == (head, AT_DAMAGE)
        assert find_record(Bytes(bytes(data)).region, head + 1, len(data), BASE) == ledger.starts[1]


def test_an_entry_of_which_only_the_head_was_written_ends_the_log_in_front_of_it() -> None:
    ledger = Ledger()
    ledger.add("entry")
    end = len(ledger.data)
    record = record_at(BASE + end + ENTRY_HEAD)
    data = ledger.data + pack_entry(record, BASE + end, index=1)[:ENTRY_HEAD] + bytes(200)
    assert walk_appended(Bytes(data).region, 0, len(data), len(data), BASE, BASE + 5000).position == end
    assert walk_records(Bytes(data).region, 0, len(data), BASE, BASE + 5000, True).position == end
    step = scan_bytes(data, BASE).step
    assert (step.position, step.reason) == (end, Reason.ZERO)
