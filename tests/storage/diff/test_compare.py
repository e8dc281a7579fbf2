"""Two stores compared, beside the same comparison by dictionaries of what the oracle reads."""

import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from examples import examples
from storage.diff import _entries, compare
from storage.diff.compare import QueueRange, compare_stores
from store_writer import StoreWriter
from strategies import store_plans


def write(root: Path, numbers: range = range(60), segment_size: int = 2048, **changes: object) -> StoreWriter:
    with StoreWriter(root, segment_size=segment_size) as writer:
        for number in numbers:
            fields = {"store_timestamp": 1_700_000_000_000 + number, "tags": "A", **changes}
            writer.append(f"T{number % 2}", b"body of %d" % number, queue_id=number // 2 % 2, **fields)
    return writer


@pytest.fixture
def pair(tmp_path: Path) -> tuple[StoreWriter, Path]:
    writer = write(tmp_path / "a")
    shutil.copytree(writer.root, tmp_path / "b")
    return writer, tmp_path / "b"


def change(store: Path, physical_offset: int, data: bytes, segment_size: int = 2048) -> None:
    base = physical_offset - physical_offset % segment_size
    with (store / "commitlog" / f"{base:020d}").open("r+b") as file:
        file.seek(physical_offset - base)
        file.write(data)


def test_a_recorded_store_equals_itself_but_not_its_crash(g1_store: Path, g1_crashed_store: Path) -> None:
    assert compare_stores(g1_store, g1_store).is_none
    mine, other = (expected_keys(oracles.read_log(root / "commitlog")) for root in (g1_store, g1_crashed_store))
    found = compare_stores(g1_store, g1_crashed_store)
    assert (found.counts["missing"], found.counts["extra"]) == ((mine - other).total(), (other - mine).total())


def expected_keys(records: list[oracles.Record]) -> "Counter[tuple[object, ...]]":
    """Messages by place and content; of those in no queue, content alone."""
    keys: Counter[tuple[object, ...]] = Counter()
    for record in records:
        block = record.properties_bytes.partition(b"__CRC32#")[0]
        content = (record.body, block, record.flag, record.sys_flag, record.born_host)
        queued = record.sys_flag & 0xC in (0, 8)
        place = record.queue_offset if queued else -1
        keys[record.topic_bytes, record.queue_id, place, content, record.born_timestamp, record.reconsume_times] += 1
    return keys


@pytest.mark.parametrize("position", [63, 71], ids=["store timestamp", "store host"])
def test_any_other_byte_at_the_same_place_makes_a_message_different(pair, position) -> None:
    writer, copy = pair
    changed = writer.written[7]
    change(copy, changed.physical_offset + position, b"\x7e")
    found = compare_stores(writer.root, copy)
    assert found.ranges == [QueueRange("different", "T1", 1, 1, 1, 1, changed.physical_offset)]


def test_the_same_messages_elsewhere_are_the_same(tmp_path: Path) -> None:
    """Written anew by another broker: other places, other clock, other address."""
    a = write(tmp_path / "a")
    b = write(tmp_path / "b", segment_size=4096, store_host=("10.0.0.9", 10911), property_crc=True, born_timestamp=5)
    found = compare_stores(a.root, b.root)
    assert found.counts["different"] == 60  # born at other times
    with StoreWriter(tmp_path / "c", segment_size=8192) as c:
        for record in sorted(a.records, key=lambda record: (record.topic, record.queue_id, record.queue_offset)):
            c.append_record(replace(record, store_timestamp=record.store_timestamp + 10**6))
    found = compare_stores(a.root, c.root)
    assert found.is_none
    assert found.first_byte is not None


def test_messages_that_are_in_no_queue_are_told_apart_by_what_they_say(tmp_path: Path) -> None:
    stores = []
    for name, bodies in (("a", [b"x", b"x", b"y"]), ("b", [b"x", b"z", b"y"])):
        with StoreWriter(tmp_path / name) as writer:
            for body in bodies:
                writer.append("T", body, sys_flag=4)
        stores.append(writer.root)
    found = compare_stores(*stores)
    assert found.counts == {"missing": 1, "extra": 1, "different": 0}
    ranges = [(each.kind, each.first, each.last, each.count) for each in found.ranges]
    assert ranges == [("extra", -1, -1, 1), ("missing", -1, -1, 1)]


@settings(max_examples=examples(12))
@given(store_plans(maximum_messages=20), st.sets(st.integers(0, 19)), st.integers(1, 4))
def test_any_two_stores_differ_in_what_dictionaries_say(plan, left_out, buckets) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "bucket_count", lambda size: buckets)
        patch.setattr(_entries, "RUN_BITS", 1)
        a = plan.write(Path(directory) / "a")
        with StoreWriter(Path(directory) / "b", segment_size=4096) as b:
            for number, record in enumerate(a.records):
                if number not in left_out:
                    b.append_record(record)
            if not b.written:
                return
        found = compare_stores(a.root, b.root)
        expected = expected_keys(a.records) - expected_keys(b.records)
        assert found.counts == {"missing": expected.total(), "extra": 0, "different": 0}
        assert sum(each.count for each in found.ranges) == expected.total()


def test_a_ledger_holds_the_messages_of_a_plain_store_at_other_places(tmp_path: Path) -> None:
    plain = write(tmp_path / "a")
    with StoreWriter(tmp_path / "b", segment_size=2048, is_ledger=True) as ledger:
        for record in plain.records:
            ledger.append_record(record)
        ledger.log.write_empty_entry()
    found = compare_stores(plain.root, ledger.root)
    assert (found.counts, found.damage) == ({"missing": 0, "extra": 0, "different": 0}, {"a": [], "b": []})
    assert found.first_byte == 3
    ledger.append("T0", b"one more")
    ledger.close()
    assert compare_stores(plain.root, ledger.root).counts["extra"] == 1


def test_a_copy_is_equal_and_no_record_of_it_is_looked_into(pair, monkeypatch) -> None:
    monkeypatch.setattr(compare, "collect", None)
    writer, copy = pair
    found = compare_stores(writer.root, copy)
    assert (found.is_none, found.first_byte, found.ranges, found.first) == (True, None, [], None)
    assert found.a_range == found.b_range == (0, writer.log.end)


def test_many_ranges_are_listed_up_to_a_number_and_counted_beyond(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(compare, "MOST_RANGES", 5)
    a = write(tmp_path / "a", range(80))
    with StoreWriter(tmp_path / "b") as b:
        for written, record in zip(a.written, a.records, strict=True):
            if written.queue_offset % 2:
                b.append_record(record)
    found = compare_stores(a.root, b.root)
    assert (found.counts["missing"], len(found.ranges), found.more_ranges) == (40, 5, 35)
    assert [each.physical_offset for each in sorted(found.ranges, key=lambda each: each.physical_offset)] == [
        written.physical_offset for written in a.written if not written.queue_offset % 2
    ][:5]
