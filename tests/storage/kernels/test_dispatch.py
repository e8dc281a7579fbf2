"""What dispatch makes of records, against the oracle that decodes and parses them one by one."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from dispatch_oracle import dispatch, is_dispatched
from dispatching import BATCH_TOPIC, make_scan, record_changes, scan_bytes, segment
from examples import examples
from kernel_memory import Bytes, record_at
from storage.build.dispatch_scan import DispatchBlock, Reason
from storage.kernels.records import BAD_MAGIC, BAD_OFFSET, BAD_SIZE
from store_files import property_bytes

BASE = 1 << 32


class TestAgainstTheOracle:
    @settings(max_examples=examples(12))
    @given(st.lists(record_changes(), max_size=6), st.booleans(), st.booleans())
    def test_entries_and_units_are_those_of_the_oracle(
        self, changes: list[dict[str, Any]], tags: bool, lmq: bool
    ) -> None:
        data, _ = segment(changes, BASE)
        scanned = scan_bytes(data, BASE, tags=tags, lmq=lmq, batch_topics=[BATCH_TOPIC])
        records = list(oracles.scan_segment(data, BASE))
        valid = [record for record in records if is_dispatched(record)]
        assert scanned.step == (len(data), Reason.LIMIT, 0)
        assert scanned.passed_over == [record.physical_offset for record in records if not is_dispatched(record)]
        profile = "5.5" if tags else "5.3"
        assert scanned.made == dispatch(valid, profile=profile, lmq=lmq, batch_topics=[BATCH_TOPIC])
        assert sum(block.records for block in scanned.blocks) == len(valid)
        last = valid[-1] if valid else None
        block = scanned.blocks[0]
        assert block.last_record == (last.physical_offset if last else -1)
        assert block.last_timestamp == (last.store_timestamp if last else 0)

    @settings(max_examples=examples(12))
    @given(st.lists(record_changes(), min_size=1, max_size=6), st.integers(1, 400), st.integers(1, 3))
    def test_it_does_not_matter_how_a_segment_is_read_and_taken(
        self, changes: list[dict[str, Any]], window: int, records: int
    ) -> None:
        data, _ = segment(changes, BASE)
        whole = scan_bytes(data, BASE, batch_topics=[BATCH_TOPIC])
        cut = scan_bytes(data, BASE, batch_topics=[BATCH_TOPIC], window=window, records=records)
        assert cut.made == whole.made
        assert cut.passed_over == whole.passed_over
        assert all(block.records <= records for block in cut.blocks)

    def test_names_of_light_queues_are_told_apart_by_their_bytes(self) -> None:
        lists = (
            b"INNER_MULTI_DISPATCH\x01%LMQ%\xa7,%LMQ%\xff,%LMQ%\xef\xbf\xbd\x02INNER_MULTI_QUEUE_OFFSET\x013,4,5\x02"
        )
        whole, _ = segment([{"properties_bytes": lists}], BASE)
        made = scan_bytes(whole, BASE).made
        names = [name for name, _, is_light in made.queues if is_light]
        assert names == [b"%LMQ%\xa7", b"%LMQ%\xff", "%LMQ%\ufffd".encode()]
        assert made == dispatch(oracles.scan_segment(whole, BASE), lmq=True)

    @settings(max_examples=examples(12))
    @given(st.lists(record_changes(), min_size=1, max_size=4), st.data())
    def test_damage_ends_a_scan_where_the_oracle_ends(self, changes: list[dict[str, Any]], data: st.DataObject) -> None:
        whole, _ = segment(changes, BASE)
        place = data.draw(st.integers(0, len(whole) - 1))
        damaged = whole[:place] + data.draw(st.binary(min_size=1, max_size=9)) + whole[place + 9 :]
        scanned = scan_bytes(damaged, BASE, checksums=True, batch_topics=[BATCH_TOPIC])
        records = list(oracles.scan_segment(damaged, BASE))
        intact = [record for record in records if oracles.property_crc_holds(_bytes_of(damaged, record))]
        if len(intact) < len(records):
            return  # a property that looks like a checksum: see below
        assert scanned.step.position == sum(record.total_size for record in records)
        assert scanned.made == dispatch(filter(is_dispatched, records), lmq=True, batch_topics=[BATCH_TOPIC])


def _bytes_of(data: bytes, record: oracles.Record) -> bytes:
    return data[record.physical_offset - BASE :][: record.total_size]


class TestWhatEndsARun:
    def test_a_record_that_starts_below_the_limit_is_read_to_its_end(self) -> None:
        data, positions = segment([{"keys": "a"}, {"keys": "b"}, {"keys": "c"}], BASE)
        scanned = scan_bytes(data, BASE, limit=positions[1] + 1)
        assert scanned.step == (positions[2], Reason.LIMIT, 0)
        assert scan_bytes(data, BASE, limit=positions[1]).step == (positions[1], Reason.LIMIT, 0)
        assert scan_bytes(data, BASE, limit=0).step == (0, Reason.LIMIT, 0)

    def test_what_is_no_record_says_what_it_is(self) -> None:
        for tail, reason, code in [
            ((40).to_bytes(4, "big") + (0xCBD43194).to_bytes(4, "big") + bytes(32), Reason.BLANK, 0),
            (bytes(8), Reason.ZERO, 0),
            (bytes(300), Reason.ZERO, 0),
            (bytes(7), Reason.NEED_MORE, 0),
            (bytes(3) + b"\1" + bytes(96), Reason.DAMAGE, BAD_MAGIC),
            (b"garbage" * 20, Reason.DAMAGE, BAD_MAGIC),
            ((90).to_bytes(4, "big") + record_at(0)[4:], Reason.DAMAGE, BAD_SIZE),
            ((-5).to_bytes(4, "big", signed=True) + record_at(0)[4:], Reason.DAMAGE, BAD_SIZE),
            (record_at(BASE), Reason.DAMAGE, BAD_OFFSET),
        ]:
            data, _ = segment([{"keys": "a"}], BASE)
            scanned = scan_bytes(data + tail, BASE)
            assert scanned.step == (len(data), reason, code)
            assert scanned.blocks[0].records == 1

    @pytest.mark.parametrize("text", ["abc", "2147483648", "-2147483649", "1.5", "-", "１"])
    def test_a_delay_that_is_no_number_is_damage_in_the_schedule_topic_alone(self, text: str) -> None:
        block = property_bytes({"DELAY": text, "KEYS": "a"})
        data, _ = segment([{"topic_bytes": b"SCHEDULE_TOPIC_XXXX", "properties_bytes": block}], BASE)
        scanned = scan_bytes(data, BASE)
        assert scanned.passed_over == [BASE]
        assert scanned.made == dispatch([])
        other, _ = segment([{"topic_bytes": b"SCHEDULE_TOPIC_XXXY", "properties_bytes": block}], BASE)
        assert scan_bytes(other, BASE).blocks[0].records == 1


class TestBlocks:
    def test_a_block_is_full_when_there_may_be_no_room_for_the_keys_of_one_record_more(self) -> None:
        many = property_bytes({"KEYS": " ".join(["k"] * 16_000)})
        data, _ = segment([{"properties_bytes": many}] * 4, BASE)
        scanned = scan_bytes(data, BASE, records=4)
        assert len(scanned.blocks) > 1
        assert max(block.record_entries.max() for block in scanned.blocks) == 16_000
        assert scanned.made == dispatch(oracles.scan_segment(data, BASE))

    def test_a_block_is_full_when_there_may_be_no_room_for_the_light_queues_of_one_record_more(self) -> None:
        count = 3_200
        names = ",".join(f"%LMQ%{i}" for i in range(count))[:24_000].rpartition(",")[0]
        lists = {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": ",".join(["7"] * (names.count(",") + 1))}
        data, _ = segment([{"properties_bytes": property_bytes(lists)}] * 12, BASE)
        scanned = scan_bytes(data, BASE, records=12)
        assert len(scanned.blocks) > 1
        assert scanned.made == dispatch(oracles.scan_segment(data, BASE), lmq=True)

    def test_offsets_that_32_bits_cannot_tell_from_each_other_are_in_different_blocks(self) -> None:
        blocks = scan_two_far_records(BASE + (1 << 32))
        assert [block.record_offsets.tolist() for block in blocks] == [[0], [0]]
        assert [block.first_offset for block in blocks] == [BASE, BASE + (1 << 32)]
        assert [block.record_offsets.tolist() for block in scan_two_far_records(BASE + 0xFFFFFFFF)] == [[0, 0xFFFFFFFF]]

    def test_entries_or_units_are_left_out_when_not_wanted(self) -> None:
        data, _ = segment([{"keys": "a"}], BASE)
        whole = scan_bytes(data, BASE).made
        entries, units = scan_bytes(data, BASE, units=False).made, scan_bytes(data, BASE, entries=False).made
        assert (entries.entries, entries.queues) == (whole.entries, {})
        assert (units.entries, units.queues) == ([], whole.queues)
        assert whole.entries
        assert whole.queues


def scan_two_far_records(far: int) -> list[DispatchBlock]:
    """Blocks of a scan of two records, the second one far behind the first."""
    scan, blocks = make_scan(), []
    for base in (BASE, far):
        held = Bytes(record_at(base, keys="a"))
        step = scan.run(held.region, 0, held.length, base, base + held.length, held.length)
        if step.reason == Reason.FULL:
            blocks.append(scan.take())
            step = scan.run(held.region, 0, held.length, base, base + held.length, held.length)
        assert step.reason == Reason.LIMIT
    return [*blocks, scan.take()]
