"""What a store answers that a test has damaged, held against what is still whole on its disk."""

from collections import defaultdict

import oracles
from damage_oracle import intact
from protocol.question import KeyKind, Question
from storage.query.get_message import get_message

MOST_PULLS = 1000


def check_by_offset(store, disk, written) -> None:
    for each in written:
        record = store.record_at(each.physical_offset)
        if disk.has(each):
            assert record is not None, f"the whole record at {each.physical_offset} is not answered by offset"
            assert bytes(record) == each.record
        elif record is not None:
            check_sound(bytes(record), each.physical_offset)
        else:
            assert store.explain_absence(each.physical_offset)


def check_sound(record: bytes, physical_offset: int) -> None:
    """Check that nothing that is presented is damaged as far as a checksum or a length can show."""
    sound = intact(record, 0, physical_offset)
    assert sound is not None, f"the record at {physical_offset} is presented as whole"
    assert sound.total_size == len(record)


def check_by_key(store, disk, written, *, missing=()) -> None:
    """Check that whole records are found by each of their keys; all that is found is sound and has the key."""
    missing, wanted = set(missing), defaultdict(list)
    for each in written:
        record = oracles.read_record(each.record, 0)
        if record is None or not disk.has(each) or record.sys_flag & 0xC == 0xC:
            continue
        for key in record.keys:
            wanted[each.topic, "K", key].append(each.physical_offset)
        if "UNIQ_KEY" in record.properties:
            wanted[each.topic, "U", record.properties["UNIQ_KEY"]].append(each.physical_offset)
    for (topic, kind, key), offsets in wanted.items():
        answer = store.query(Question(topic, key, KeyKind.KEY if kind == "K" else KeyKind.UNIQUE, maximum=10_000))
        lacking = set(offsets) - set(answer.physical_offsets) - missing
        assert not lacking, f"{topic} {kind} {key} does not find {sorted(lacking)}"
        position = 0
        for offset, size in zip(answer.physical_offsets, answer.sizes, strict=True):
            piece = answer.records[position : position + size]
            check_sound(piece, offset)
            found = oracles.read_record(piece, 0)
            assert found is not None
            assert oracles.has_key(found, key, kind)
            position += size


def check_by_queue(store, disk, written, *, missing=()) -> None:
    """Whole records come by pulls from their queue's beginning, each once; all that comes is sound and of the queue."""
    missing, wanted = set(missing), defaultdict(set)
    for each in written:
        record = oracles.read_record(each.record, 0)
        if record is not None and disk.has(each) and oracles.is_queued(record):
            wanted[each.topic, each.queue_id].add(each.physical_offset)
    for (topic, queue_id), offsets in wanted.items():
        pulled = pull_all(store, topic, queue_id)
        lacking = offsets - set(pulled) - missing
        assert not lacking, f"{topic} {queue_id} does not deliver {sorted(lacking)}"
        assert len(pulled) == len(set(pulled)), f"{topic} {queue_id} delivers twice"


def pull_all(store, topic, queue_id):
    """Physical offsets of all messages that a consumer gets of one queue, from its first offset to its last."""
    queue = store.queues.queue(topic, queue_id)
    if queue is None:
        return []
    found: list[int] = []
    offset = queue.min_offset
    for _ in range(MOST_PULLS):
        if offset >= queue.max_offset:
            return found
        result = get_message(store.queues, topic, queue_id, offset, 32, 2**20)
        for record in result.records:
            message = oracles.read_record(bytes(record), 0)
            assert message is not None
            check_sound(bytes(record), message.physical_offset)
            assert (message.topic, message.queue_id) == (topic, queue_id)
            found.append(message.physical_offset)
        assert result.next_begin_offset > offset, f"{topic} {queue_id} does not move on from {offset}"
        offset = result.next_begin_offset
    raise AssertionError(f"{topic} {queue_id} never ends")
