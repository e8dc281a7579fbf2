"""Stores whose index is damaged, lost or switched off, and what is found in them all the same."""

import shutil

import oracles
from protocol.question import KeyKind, Question
from storage.store import _upkeep
from storage.store.message_store import MessageStore, StoreOptions
from store_queries import KINDS
from store_writer import START_TIMESTAMP, StoreWriter

SLOTS, ENTRIES = 7, 20
OWN_SLOTS, OWN_ENTRIES = 31, 101
NAMED = (("UNIQ_KEY", KeyKind.UNIQUE), ("TAGS", KeyKind.TAG))


def written(root, count=100, **options):
    sizes = {"segment_size": 4096, "index_slots": SLOTS, "index_entries": ENTRIES}
    with StoreWriter(root / "store", **{**sizes, **options}) as writer:
        append_some(writer, count)
    return writer


def append_some(writer, count, **more) -> None:
    for _ in range(count):
        number = len(writer.written)
        fields = {"keys": f"k{number} all{number % 3}", "unique_key": f"u{number}", "tags": f"t{number % 3}", **more}
        writer.append("T", bytes(20), store_timestamp=START_TIMESTAMP + 700 * number, **fields)


def answers(store, records, asked_of=None):
    """Of each key, or only those of some messages, what is found and what is right."""
    seen = set()
    for record in records if asked_of is None else asked_of:
        properties = record.properties
        asked = [(key, KeyKind.KEY) for key in oracles.split_keys(properties.get("KEYS", ""))]
        asked += [(properties[name], kind) for name, kind in NAMED if name in properties]
        for key, kind in asked:
            if (key, kind) not in seen:
                seen.add((key, kind))
                answer = store.query(Question(record.topic, key, kind, maximum=500))
                right = oracles.query(records, record.topic, key, kind=KINDS[kind], maximum=500)
                yield key, list(answer.physical_offsets), right


def assert_all_found(store, records, asked_of=None) -> None:
    for key, offsets, right in answers(store, records, asked_of):
        assert offsets == right, key


def incomplete(store: MessageStore) -> str | None:
    return store.query(Question("T", "k0")).incomplete


def make_small(monkeypatch) -> None:
    """Files of our own of a hundred entries, made when there are two hundred in memory."""
    small = {"SLOTS": OWN_SLOTS, "ENTRIES": OWN_ENTRIES, "MOST_IN_MEMORY": 12 * 200, "MOST_WAITING": 12 * 700}
    small |= {"STAYS_IN_MEMORY": 1000, "SCAN_STEP": 2000, "WORTH_KEEPING": 500, "SPARE_BYTES": 0}
    for name, value in small.items():
        monkeypatch.setattr(_upkeep, name, value)


class Kept:
    def __init__(self, root, count=300, **options) -> None:
        self.directory = root / "state" / "entries"
        self.writer = written(root, count, **options)
        shutil.rmtree(self.writer.root / "index")

    def open(self, *, keeps=True, finish=True, **options):
        def directory(identity):
            assert identity.broker_name == "broker-a"
            return self.directory

        options = {"scan_budget": 0, "entries_directory": directory, "keeps_state": keeps, **options}
        store = MessageStore.open(self.writer.root, StoreOptions(**options))
        if keeps:
            store.keep_entries()
        if finish:
            store.finish_scan()
        return store

    @property
    def names(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())
