"""Records of a topic by its queues' units, as long as none of them is damaged."""

from pathlib import Path

import pytest

from doctoring import make_store, put
from queue_stores import unit_bytes
from storage.search._by_queue import offsets_by_queue
from storage.store.message_store import MessageStore

END = 1 << 60


@pytest.mark.parametrize("tags", [None, ("t",)])
def test_a_damaged_unit_leaves_the_search_to_a_scan(tmp_path: Path, tags: tuple[str, ...] | None) -> None:
    writer, written = make_store(tmp_path, 200)
    written += [writer.append("T", b"", tags="t", queue_id=queue_id) for queue_id in (2, 3)]
    writer.close()
    everything = [each.physical_offset for each in written]
    found = offsets_by_queue(MessageStore.open(tmp_path).snapshot, "T", tags, 0, END)
    assert found is not None
    assert found.tolist() == everything
    other = written[4]
    for damage in (bytes(20), b"\x7f" * 20, b"\xff" * 20, unit_bytes(other.physical_offset, other.size, 0)):
        path = tmp_path / "consumequeue" / "T" / "1" / f"{0:020d}"
        whole = path.read_bytes()
        put(path, 20 * 30, damage)
        assert offsets_by_queue(MessageStore.open(tmp_path).snapshot, "T", tags, 0, END) is None
        put(path, 0, whole)
