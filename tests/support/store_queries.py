"""Asking a store in one line, for the tests of its answers."""

from pathlib import Path

from protocol.question import KeyKind, Question
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

KINDS = {KeyKind.ANY: "ANY", KeyKind.KEY: "K", KeyKind.UNIQUE: "U", KeyKind.TAG: "T"}
"""The oracle's names for kinds of keys."""


def found(store: MessageStore, topic: str, key: str, kind: KeyKind = KeyKind.KEY, **window: int) -> list[int]:
    return list(store.query(Question(topic, key, kind, **window)).physical_offsets)


def open_written(writer: StoreWriter, root: Path) -> MessageStore:
    writer.close()
    return MessageStore.open(root)
