"""A program that reads everything a store holds, in every way the storage layer offers. Run under a guard by tests."""

import sys
from pathlib import Path

from protocol.message import decode_messages
from protocol.question import KeyKind, Question
from storage.query.get_message import get_message
from storage.store.message_store import MessageStore, StoreOptions


def main() -> None:
    """Open the store given as argument, use it, refresh it, use it again; a second one keeps findings elsewhere."""
    root = Path(sys.argv[1])
    store = MessageStore.open(root)
    messages = tour(store)
    store.refresh()
    assert tour(store) == messages
    options = StoreOptions(state_directory=Path(sys.argv[2]), scan_budget=0)
    for _ in range(2):
        kept = MessageStore.open(root, options)
        kept.finish_scan()
        assert tour(kept) == messages
    print(f"read {messages} messages")


def tour(store: MessageStore) -> int:
    """Walk the log, ask for every key, read every queue; the number of messages."""
    log, count = store.commit_log, 0
    offset = log.minimum
    while offset < log.end:
        record = store.record_at(offset)
        if record is None:
            store.explain_absence(offset)
            store.damaged_record_at(offset)
            offset = log.next_segment_start(offset) or log.end
            continue
        (message,) = decode_messages(record)
        store.explain_absence(offset + 1)
        for key in [*message.keys, message.unique_key, message.tags]:
            for kind in KeyKind:
                store.query(Question(message.topic, key or "", kind)).search.sentence()
        offset += len(record)
        count += 1
    for topic in store.queues.topics():
        for queue_id in store.queues.queue_ids(topic):
            get_message(store.queues, topic, queue_id, 0, 32, 1 << 20)
            queue = store.queues.queue(topic, queue_id)
            queue.entries(queue.min_offset, 10)
    assert store.config is not None
    assert store.state is not None
    return count
