"""Asking a store in one line; look-ups taken one step, as the event loop does."""

from protocol.question import KeyKind, Question
from storage.files.waiting import Unfinished, begin
from storage.store.message_store import MessageStore

KINDS = {KeyKind.ANY: "ANY", KeyKind.KEY: "K", KeyKind.UNIQUE: "U", KeyKind.TAG: "T"}
"""The oracle's names for kinds of keys."""


def found(store: MessageStore, topic: str, key: str, kind: KeyKind = KeyKind.KEY, **window: int) -> list[int]:
    return list(store.query(Question(topic, key, kind, **window)).physical_offsets)


def open_written(writer, root):
    writer.close()
    return MessageStore.open(root)


def wait_of(lookup):
    """What a look-up waits for; the test fails where it waits for nothing."""
    step = begin(lookup)
    assert isinstance(step, Unfinished), f"it did not wait, and found {step}"
    return step.wait


def at_once(lookup):
    """What a look-up finds without waiting; the test fails where it waits."""
    step = begin(lookup)
    assert not isinstance(step, Unfinished), f"it waits: {step.wait}"
    return step
