"""Which ids a batch may have been traced by, from the records that a broker made of it."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from protocol.message import decode_message
from storage.life._batch_ids import MOST_PARTS, ids_of_batch
from storage.store.message_store import MessageStore
from store_writer import StoreWriter


def ids_by_message(writer: StoreWriter) -> dict[str, list[str]]:
    store = MessageStore.open(writer.root)
    found = {}
    for record in writer.records:
        message = decode_message(store.record_at(record.physical_offset) or b"")
        found[record.properties["UNIQ_KEY"]] = ids_of_batch(store, message, [message])
    return found


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_neighbours_of_one_moment_may_be_a_batch(sizes: list[int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        writer = StoreWriter(Path(directory))
        batches, number = [], 0
        for size in sizes:
            batches.append([f"u{number + place}" for place in range(size)])
            number += size
            born = 1_600_000_000_000 + number
            writer.append_batch("T", [{"unique_key": each, "born_timestamp": born} for each in batches[-1]])
        writer.close()
        found = ids_by_message(writer)
        for batch in batches:
            for each in batch:
                assert found[each][:1] == ([",".join(batch)] if len(batch) > 1 else [])


def test_of_many_neighbours_the_longest_parts_are_tried(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    ids = [f"u{number}" for number in range(30)]
    for each in ids:
        writer.append("T", unique_key=each, store_timestamp=1_700_000_000_000, born_timestamp=1_600_000_000_000)
    writer.close()
    parts = ids_by_message(writer)["u15"]
    assert (parts[0], len(parts)) == (",".join(ids), MOST_PARTS)


def test_a_batch_in_one_record_is_traced_by_its_own_id(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    inner = {"INNER_NUM": "1", "INNER_BASE": "0", "UNIQ_KEY": "whole"}
    writer.append_inner_batch("B", [(b"x", {"UNIQ_KEY": "part"})], properties=inner)
    writer.close()
    store = MessageStore.open(tmp_path)
    record = decode_message(store.record_at(0) or b"")
    assert ids_of_batch(store, record, record.inner_messages()) == ["whole", "part"]
