"""Key queries by decoded strings, for the rare key that contains U+FFFD.

Java hashes a key after decoding it, and bytes that are not valid UTF-8 decode to U+FFFD. So the same key may be stored
as different bytes, and bytes cannot be compared. Here each candidate is decoded instead, which is slow and exact.
"""

from collections.abc import Iterator

from protocol.java_hash import index_hash, java_hash
from protocol.message import decode_message
from protocol.question import KeyKind, Question
from storage.index.index_file import IndexEntry
from storage.index.index_set import IndexSet
from storage.index.tail_index import TailIndex
from storage.log.commit_log import CommitLog
from storage.queue.queue_store import QueueStore


def find_by_decoding(
    commit_log: CommitLog, index: IndexSet, tail: TailIndex, queues: QueueStore, query: Question
) -> tuple[list[tuple[int, bytes]], bool]:
    """Return matching records as (physical offset, bytes), ascending, and whether more match. Waits for the disk."""
    found: list[tuple[int, bytes]] = []
    total = 0
    for physical_offset in sorted(_candidates(index, tail, queues, query), reverse=True):
        if physical_offset >= query.before_physical_offset:
            continue
        record = commit_log.record_at(physical_offset)
        if record is None or not query.is_answered_by(decode_message(record, check_crc=False)):
            continue
        total += len(record)
        if len(found) == query.maximum or total > query.maximum_bytes:
            return found[::-1], True
        found.append((physical_offset, bytes(record)))
    return found[::-1], False


def _candidates(index: IndexSet, tail: TailIndex, queues: QueueStore, query: Question) -> set[int]:
    infix = "#T#" if query.kind is KeyKind.TAG else "#"
    key_hash = index_hash(f"{query.topic}{infix}{query.text}")
    offsets = set(tail.offsets_of(key_hash))
    for file in index.all_files:
        offsets.update(_in_chain(file.index.chain(key_hash), key_hash))
    if query.kind is KeyKind.TAG:
        for start, stop in index.without_tags():
            units = queues.offsets_with_tag(query.topic, java_hash(query.text), start, stop)
            offsets.update(int(offset) for offset in units)
    return offsets


def _in_chain(chain: Iterator[tuple[int, IndexEntry]], key_hash: int) -> Iterator[int]:
    return (entry.physical_offset for _, entry in chain if entry.key_hash == key_hash)
