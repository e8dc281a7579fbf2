"""A store opened for an examination: its pieces as the checks need them, none of which need be sound."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from protocol.errors import StoreError
from storage.index.index_set import IndexSet
from storage.index.state_cache import StateCache
from storage.layout.checkpoint import Checkpoint
from storage.layout.store_config import StoreConfig
from storage.layout.store_layout import StoreLayout, recognise_store
from storage.log.commit_log import CommitLog
from storage.queue.queue_holes import QueueHoles
from storage.queue.queue_place import has_another
from storage.queue.queue_store import QueueStore
from storage.store.snapshot import StoreOptions, derived_queues
from storage.store.stale_tail import without_stale_tail
from storage.store.store_state import StoreState, read_store_state


@dataclass(frozen=True)
class OpenedStore:
    """The opened store with the data that all checks share. `checkpoint` is None if it is unreadable."""

    layout: StoreLayout
    state: StoreState
    commit_log: CommitLog
    queues: QueueStore
    index: IndexSet
    config: StoreConfig
    checkpoint: Checkpoint | None
    given_directories: tuple[Path, ...]

    @classmethod
    def open(
        cls, root: Path, commit_log_directories: tuple[Path, ...] = (), vouched: tuple[int, int] | None = None
    ) -> "OpenedStore":
        """Open a directory; `vouched` are slots and entries of index files. NotAStore, or StoreError without a log."""
        layout = recognise_store(root, commit_log_directories)
        state = read_store_state(root)
        commit_log = CommitLog.open(layout.commit_log_directories, is_left_over=partial(has_another, root))
        commit_log = without_stale_tail(commit_log, layout, state)
        holes = QueueHoles()
        holes.connect(hand_on=lambda: None)  # what takes long is left to the deep check
        return cls(
            layout=layout,
            state=state,
            commit_log=commit_log,
            queues=QueueStore(
                root, commit_log, holes=holes, derived=derived_queues(layout, commit_log, StoreOptions())
            ),
            index=IndexSet.open(layout.index, commit_log, vouched, StateCache(None)),
            config=StoreConfig.load(root),
            checkpoint=_checkpoint(layout.checkpoint),
            given_directories=commit_log_directories,
        )

    @property
    def has_queue_files(self) -> bool:
        """Whether there are queues to compare with the log: not where RocksDB alone has them."""
        return self.queues.derived is None or self.queues.derived.only_light

    def command(self, name: str) -> str:
        """A command line of ours for this store, as a shell takes it."""
        return command_line(name, self.layout.root, self.given_directories)


def command_line(name: str, root: Path, given_directories: Sequence[Path]) -> str:
    """A command line of ours for a store, as a shell takes it."""
    path = str(root)
    parts = ["rocketlens", *name.split(), f"./{path}" if path.startswith("-") else path]
    if given_directories:
        parts += ["--commit-log", ",".join(map(str, given_directories))]
    return shlex.join(parts)


def _checkpoint(path: Path) -> Checkpoint | None:
    try:
        return Checkpoint.read(path)
    except StoreError:  # named by the check of the checkpoint
        return None
