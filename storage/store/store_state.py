"""Whether a broker runs on a store, or ran on it until it crashed, and which broker that was.

A running broker holds a POSIX record lock on byte 0 of `lock`; it is asked for (F_GETLK), never taken. `abort` is
there from the end of a start to the end of a clean stop and holds the broker's process id. So: held means live,
`abort` without the lock means crashed, or copied while live; neither means stopped cleanly, or a copy without
`abort`. Locks are seen on this kernel only. Source: store-format §1.5.
"""

import fcntl
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final

from protocol.errors import StoreError
from protocol.message_layout import locate
from protocol.properties import CLUSTER, property_value
from protocol.system_topics import DEFAULT_TOPIC, MEMBER_TOPIC_PREFIX, REPLY_TOPIC_SUFFIX, REVIVE_TOPIC_PREFIX
from storage.files.mapped_file import open_read_only, read_small_file
from storage.layout.store_config import INHERIT, StoreConfig
from storage.layout.store_layout import ABORT, StoreLayout, recognise_store
from storage.layout.tier_layout import TierLayout
from storage.log.commit_log import CommitLog

__all__ = [
    "StoreIdentity",
    "StoreLayout",
    "StoreState",
    "infer_identity",
    "read_store_state",
    "recognise_store",
]

FLOCK: Final = Struct("hhqqi4x")
"""struct flock of 64-bit Linux, in native order: type, whence, start, length, process id."""
LOCKED_HERE: Final[set[tuple[int, int]]] = set()
"""Device and inode of `lock` files that this process holds itself, as a job does that publishes into a store."""
DEFAULT_CLUSTER: Final = "DefaultCluster"
DEFAULT_BROKER_NAME: Final = "broker-a"
_RECORDS_ASKED: Final = 64
_LONGEST_PROCESS_ID: Final = 20


@dataclass(frozen=True, slots=True)
class StoreState:
    """`abort`: the file is there; `lock_held`: a process on this machine holds the lock, `lock_pid` (0: not known
    here).

    `broker_pid` is what `abort` says, None without it or when it says nothing.
    """

    abort: bool
    lock_held: bool
    lock_pid: int
    broker_pid: int | None

    @property
    def is_live(self) -> bool:
        """Whether a broker runs on the store now, as far as this machine can see."""
        return self.lock_held

    @property
    def has_crashed(self) -> bool:
        """Whether the broker did not stop cleanly, or the store was copied from under it."""
        return self.abort and not self.lock_held

    @property
    def word(self) -> str:
        """The state of the broker in a word: ``live``, ``crashed`` or ``stopped``."""
        return "live" if self.is_live else "crashed" if self.has_crashed else "stopped"


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """The names under which the broker that wrote a store was known."""

    cluster: str
    broker_name: str
    ambiguities: tuple[str, ...] = ()
    """Sentences about a name where the store names several, as after a broker was renamed."""


def read_store_state(root: Path) -> StoreState:
    """Look at `lock` and `abort` under a store's root; takes no lock and never fails."""
    held, pid = _probe_lock(root / "lock")
    abort = root / ABORT
    return StoreState(abort.exists(), held, pid, _process_id_in(abort))


def _probe_lock(path: Path) -> tuple[bool, int]:
    """Whether another process holds an exclusive or shared lock on byte 0 of a file, and which."""
    if is_locked_here(path):
        return False, 0
    try:
        descriptor = open_read_only(path)
    except StoreError:  # no file, or none that may be read: no holder can be seen
        return False, 0
    try:
        # Closing the descriptor drops locks that this process holds on the file: it holds none, as was asked above.
        asked = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind, _, _, _, pid = FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    except OSError:
        return False, 0
    finally:
        os.close(descriptor)
    return kind != fcntl.F_UNLCK, max(pid, 0) if kind != fcntl.F_UNLCK else 0


def is_locked_here(path: Path) -> bool:
    """Whether this process itself holds a `lock`, which opening and closing the file once more would drop."""
    try:
        return identity_of(os.stat(path)) in LOCKED_HERE
    except OSError:
        return False


def identity_of(status: os.stat_result) -> tuple[int, int]:
    """Device and inode: no other file has the same while this one is there."""
    return status.st_dev, status.st_ino


def _process_id_in(path: Path) -> int | None:
    try:
        text = read_small_file(path, _LONGEST_PROCESS_ID).strip()
    except (OSError, StoreError):
        return None
    return int(text) if text.isdigit() else None


def infer_identity(
    config: StoreConfig, commit_log: CommitLog | None = None, tier: TierLayout | None = None
) -> StoreIdentity:
    """The cluster and the broker's name, from the topics that a broker makes for itself.

    A 5.x broker has topics whose names contain either; every broker has one topic named like the cluster and one
    named like itself, known by their permission to inherit and their numbers of queues. The cluster is also in
    properties of records, and both are in the names of a tier's directories. What remains unknown gets a broker's
    defaults. Of several names between which nothing decides, the last one that is written down is taken.
    """
    topics = config.topics
    clusters = [
        [topic.removeprefix(REVIVE_TOPIC_PREFIX) for topic in topics if topic.startswith(REVIVE_TOPIC_PREFIX)],
        [topic.removesuffix(REPLY_TOPIC_SUFFIX) for topic in topics if topic.endswith(REPLY_TOPIC_SUFFIX)],
        _named_after(config, 16),
    ]
    members = [topic.removeprefix(MEMBER_TOPIC_PREFIX) for topic in topics if topic.startswith(MEMBER_TOPIC_PREFIX)]
    brokers = [members, _named_after(config, 1)]
    cluster, broker_name = _the_one(clusters) or _cluster_in_records(commit_log), _the_one(brokers)
    if tier is not None:
        cluster, broker_name = cluster or tier.cluster, broker_name or tier.broker_name
    ambiguities = []
    if cluster is None and (several := next(filter(None, clusters), [])):
        cluster = several[-1]
        ambiguities.append(_ambiguity("cluster", several))
    if broker_name is None and (several := next(filter(None, brokers), [])):
        broker_name = several[-1]
        ambiguities.append(_ambiguity("broker", several))
    return StoreIdentity(cluster or DEFAULT_CLUSTER, broker_name or DEFAULT_BROKER_NAME, tuple(ambiguities))


def _the_one(sources: Iterable[list[str]]) -> str | None:
    """The name that the first source gives that gives one and no more."""
    return next((names[0] for names in sources if len(names) == 1), None)


def _ambiguity(what: str, names: Sequence[str]) -> str:
    option = "--broker-name" if what == "broker" else "--cluster"
    return (
        f"the topics of this store are those of several {what}s, as after it was renamed ({', '.join(names)}): it is "
        f"taken for {names[-1]}; serve {option} decides"
    )


def _named_after(config: StoreConfig, queues: int) -> list[str]:
    """The topics that may be inherited from and have so many queues: 16 the cluster's, 1 the broker's own."""
    return [
        name
        for name, topic in config.topics.items()
        if topic.perm & INHERIT
        and (topic.read_queue_nums, topic.write_queue_nums) == (queues, queues)
        and name != DEFAULT_TOPIC
        and not name.startswith(MEMBER_TOPIC_PREFIX)
    ]


def _cluster_in_records(commit_log: CommitLog | None) -> str | None:
    """The cluster that a broker wrote into one of the first records."""
    if commit_log is None:
        return None
    physical_offset = commit_log.minimum
    for _ in range(_RECORDS_ASKED):
        physical_offset = commit_log.record_start(physical_offset)
        record = commit_log.record_at(physical_offset)
        if record is None:
            return None
        places = locate(record)
        cluster = property_value(record[places.properties : places.total_size], CLUSTER)
        if cluster:
            return cluster
        physical_offset += places.total_size
    return None
