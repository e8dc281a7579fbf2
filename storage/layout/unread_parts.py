"""Parts of a store that brokers write and RocketLens does not read, and what its answers lack without them.

Nothing of them is skipped in silence: each is named where it matters (docs/stores.md), with the topics or groups that
it concerns. Source: store-format §1.1, §9.1, other-formats §6.
"""

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import msgspec

from storage.amounts import counted
from storage.layout.epochs import EPOCHS

COMPACTION: Final = "compaction"
COMPACTED_LOGS: Final = Path(COMPACTION, "compactionLog")
CLEANUP_POLICY, COMPACTED = "cleanup.policy", "COMPACTION"
"""The attribute of a topic of which a broker keeps the newest message of each key, and its value there."""
ACL_DATABASES: Final = ("users", "acls")
KV_DIRECTORY: Final = "kvStore"
ROCKSDB_STORE: Final = "rocksdbstore"
TOPIC_MAPPING: Final = "topicQueueMapping.json"
ORDER_INFO: Final = "consumerOrderInfo.json"
REQUEST_MODE: Final = "messageRequestMode.json"
MOST_NAMED: Final = 5


TOPICS: Final = "{topics}"
"""Where the meaning of a part has the topics that a sentence is about."""


class UnreadPart(msgspec.Struct, frozen=True):
    """One part: where it is below the store's root, what follows, with `TOPICS` in it, and the topics that it concerns.

    `about_groups`: what is said of groups lacks it, and not what is said of messages and queues. `how` says how much of
    it is read.
    """

    name: str
    about: str
    topics: frozenset[str] = frozenset()
    about_groups: bool = False
    how: str = "is not read"

    def meaning(self, topics: Collection[str] | None = None) -> str:
        """What follows, for some of its topics, by default for all."""
        wanted = self.topics if topics is None else topics
        return self.about.replace(TOPICS, _named("topic", wanted)) if self.topics else self.about

    def sentence(self, topics: Collection[str] | None = None) -> str:
        """Describe an unread part and its consequence in one sentence; of some of its topics, by default all."""
        return f"{self.name} {self.how}: {self.meaning(topics)}"


def unread_parts(
    root: Path,
    compacted: Collection[str],
    static: Collection[str],
    ordered: Collection[str],
    modes: Collection[str],
) -> Iterator[UnreadPart]:
    """Yield the unread parts that a store has, by names of files alone.

    `compacted` are the topics of that policy, `static` those with a mapping of queues, `ordered` the groups that pop in
    order, `modes` the topics for which it is written down who pops.
    """
    topics = frozenset((*compacted, *_names_in(root / COMPACTED_LOGS)))
    if topics:
        meaning = f"of {TOPICS} a broker gives the newest message of each key from there; here is what"
        yield UnreadPart(f"{COMPACTION}/", f"{meaning} the log still has", topics)
    if static:
        meaning = (
            f"the queues of {TOPICS} are static: queues and offsets here are the broker's own, not those that clients"
        )
        meaning = f"{meaning} of all its brokers see"
        yield UnreadPart(f"config/{TOPIC_MAPPING}", meaning, frozenset(static))
    for name in ACL_DATABASES:
        if _names_in(root / "config" / name):
            what = "users" if name == "users" else "policies"
            meaning = f"{what} of ACL 2.0 are there, who have no rights by them here: accounts are those of --acl"
            yield UnreadPart(f"config/{name}", meaning)
    if ordered:
        meaning = f"which messages {_named('group', ordered)} popped in order and {_hold(ordered)} is not known"
        yield UnreadPart(f"config/{ORDER_INFO}", meaning, about_groups=True)
    if modes:
        meaning = f"of {TOPICS} some groups are to pop; here all pull"
        yield UnreadPart(f"config/{REQUEST_MODE}", meaning, frozenset(modes), about_groups=True)
    if has_kv_notes(root):
        meaning = "what groups have popped and not acknowledged is noted there, and counts as consumed"
        yield UnreadPart(f"{KV_DIRECTORY}/", meaning, about_groups=True)
    if rows_of_rocksdb_store(root):
        meaning = "what the broker keeps there of timers, transactions and keys is taken from the log instead"
        yield UnreadPart(f"{ROCKSDB_STORE}/", meaning)
    if os.path.isfile(root / EPOCHS):
        meaning = "a controller decides which end of the log counts; here it ends where its last intact record does,"
        meaning = f"{meaning} unless that is older than the last epoch"
        yield UnreadPart(EPOCHS, meaning, how="does not say it all")


def rows_of_rocksdb_store(root: Path) -> list[Path]:
    """The files of `rocksdbstore/` that may hold rows; brokers make the directory where nothing uses it too."""
    directory = root / ROCKSDB_STORE
    found = (directory / name for name in sorted(_names_in(directory)) if name.endswith((".sst", ".log")))
    return [path for path in found if _size(path)]


def _size(path: Path) -> int:
    """The bytes of a file; 0 where it has just gone."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def has_kv_notes(root: Path) -> bool:
    """Whether a store's broker keeps its notes of pops in a RocksDB, `kvStore/`."""
    return any(name.startswith("MANIFEST") or name == "CURRENT" for name in _names_in(root / KV_DIRECTORY))


def _names_in(directory: Path) -> list[str]:
    """List a directory; nothing where there is none, or none that may be listed."""
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _named(what: str, names: Collection[str]) -> str:
    listed = sorted(names)
    more = len(listed) - MOST_NAMED
    behind = f" and {counted(more, what)} more" if more > 0 else ""
    return f"{what}{'s' if len(listed) > 1 else ''} {', '.join(listed[:MOST_NAMED])}{behind}"


def _hold(names: Collection[str]) -> str:
    return "holds" if len(names) == 1 else "hold"
