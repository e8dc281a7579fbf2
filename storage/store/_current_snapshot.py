"""The current snapshot of a store: one place that all who read or change it share.

Readers take the snapshot that is there and keep it as long as they need it. The thread that follows the store hands in
a function that makes the next snapshot from the current one; one such change is made at a time.
"""

import threading
from pathlib import Path

from storage.queue.queue_holes import QueueHoles
from storage.store._log_follower import LogFollower, LogRewritten
from storage.store.snapshot import Change, Snapshot, StoreOptions, open_snapshot


class CurrentSnapshot:
    """Holds the newest snapshot of a store. Safe to use from several threads.

    ``snapshot`` are the files as they were at the last :meth:`change`, and nobody else replaces it. ``queue_holes`` is
    what is known of runs of damaged units in queues, and stays from one snapshot to the next. ``end_follower`` finds
    what comes to the log; it may only be used by a :meth:`change` that is being made.
    """

    def __init__(self, root: Path, options: StoreOptions) -> None:
        """Open the store in ``root``. Waits for the disk."""
        self._root, self._options = root, options
        self._changing = threading.Lock()
        self._is_followed = False
        self.queue_holes = QueueHoles()
        self.snapshot = open_snapshot(root, options, holes=self.queue_holes)
        self.end_follower = LogFollower(self.snapshot.layout.commit_log_directories)
        self.end_follower.adopt(self.snapshot.commit_log)

    def follow(self) -> None:
        """From now on a background scan derives what takes long from the log, and no look-up waits for it."""
        with self._changing:
            self._is_followed = True
            self._leave_to_background(self.snapshot)

    def _leave_to_background(self, snapshot: Snapshot) -> None:
        if snapshot.queues.derived is not None:
            snapshot.queues.derived.is_scanned_in_background = self._is_followed

    def change(self, work: Change) -> bool:
        """Replace the snapshot by one that `work` makes from it; returns whether there is a new one.

        A log that was cut is opened anew, and nothing is taken over from before, not even where its data ended.
        """
        with self._changing:
            try:
                changed = work(self.snapshot)
            except LogRewritten as rewritten:
                self.queue_holes.forget()
                changed = open_snapshot(self._root, self._options, rewritten.cut_at, self.queue_holes)
            else:
                if self.snapshot.is_cut:  # it may be made of zeros
                    return False
            if changed is None or changed is self.snapshot:
                return False
            self._leave_to_background(changed)
            self.snapshot = changed
            return True
