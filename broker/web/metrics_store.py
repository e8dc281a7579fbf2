"""Figures of the served store: where log and index begin and end, what is damaged, how far consumer groups are behind.

They are read from the store when they are asked for, on a thread that may wait for the disk. What one reading may cost
is bounded: clients can commit offsets under any number of names.
"""

import itertools
import time
from typing import Final

from broker.service.broker_service import BrokerService
from broker.web._metrics_families import Samples
from protocol.errors import RocketLensError
from storage.patterns.mask import mask_of
from storage.queue.queue import Queue
from storage.ranges import total_length
from storage.store.snapshot import Snapshot

MOST_PAIRS: Final = 2_000
"""Pairs of group and topic that are shown."""

MOST_QUEUES: Final = 20_000
"""Queues of all of them that are looked at."""

MOST_READS: Final = 500
"""Messages whose store time one reading looks up in the log; the others are left to the next reading."""

Place = tuple[str, int, int]
"""Topic, queue id and queue offset of a message."""


class StoreFigures:
    """Reads the figures of one service; one reading at a time."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service
        self.broker = service.broker_name
        self._stored: dict[Place, int] = {}
        """Store times in ms of the messages that groups consume next."""

    def read(self, samples: Samples) -> None:
        """Add the figures of this moment. Waits for the disk."""
        snapshot = self._service.store.snapshot
        self._read_log(samples, snapshot)
        self._read_index(samples, snapshot)
        self._read_damage(samples, snapshot)
        samples.put("store_live", float(snapshot.state.is_live), self.broker)
        samples.put("mask_hidden_whole", mask_of(self._service.options.masked).hidden_whole, self.broker)
        for denial in self._service.denials.all():
            samples.put("acl_refusals", denial.count, self.broker, *denial.want)
        samples.put("topics", len(snapshot.queues.topics()), self.broker)
        self._read_groups(samples, snapshot)

    def _read_log(self, samples: Samples, snapshot: Snapshot) -> None:
        log = snapshot.commit_log
        samples.put("commit_log_min_offset_bytes", log.minimum, self.broker)
        samples.put("commit_log_max_offset_bytes", log.end, self.broker)
        samples.put("commit_log_segments", len(log.segments), self.broker)
        first = log.first_timestamp()
        if first > 0:
            samples.put("commit_log_first_timestamp_seconds", first / 1000, self.broker)
        last = self._last_timestamp(snapshot)
        if last > 0:
            samples.put("commit_log_last_timestamp_seconds", last / 1000, self.broker)

    def _last_timestamp(self, snapshot: Snapshot) -> int:
        """Store time in ms of the newest scanned record with a key behind the index, else the index's end timestamp."""
        last = max((run.last for run in snapshot.tail.runs), default=-1)
        found = snapshot.commit_log.store_timestamp_at(last, 1) if last >= 0 else 0
        return max(found, snapshot.index.last_update[0])

    def _read_index(self, samples: Samples, snapshot: Snapshot) -> None:
        log, index, tail = snapshot.commit_log, snapshot.index, snapshot.tail
        size = log.end - log.minimum
        covered = 1.0 - total_length(tail.scope) / size if size and index.files else 0.0
        samples.put("index_files", len(index.files), self.broker)
        if index.last_update[0] > 0:
            samples.put("index_last_timestamp_seconds", index.last_update[0] / 1000, self.broker)
        samples.put("index_covered_ratio", min(max(covered, 0.0), 1.0), self.broker)
        samples.put("index_lag_bytes", snapshot.beyond_index, self.broker)
        samples.put("index_unscanned_bytes", tail.remaining_bytes, self.broker)
        samples.put("index_scanned_entries", tail.entry_count, self.broker)

    def _read_damage(self, samples: Samples, snapshot: Snapshot) -> None:
        log = snapshot.commit_log
        places = {
            "record": len(log.damage) + len(snapshot.tail.skipped),
            "hole": len(log.holes),
            "unreadable_segment": len(log.unreadable),
            "torn_end": int(log.torn_end is not None),
            "index_file": len(snapshot.index.problems),
            "queue": len(snapshot.queues.problems),
            "config": len(snapshot.config.problems),
        }
        for kind, count in places.items():
            samples.put("damage", count, self.broker, kind)
        for part in snapshot.config.unread:
            samples.put("unread_part", 1, self.broker, part.name)

    # ------------------------------------------------------------------ consumer groups

    def _read_groups(self, samples: Samples, snapshot: Snapshot) -> None:
        try:
            pairs = self._service.offsets.pairs()
        except RocketLensError:  # how far groups have come is not known; `damage` counts it
            return
        reads = itertools.count()
        stored: dict[Place, int] = {}
        looked_at = shown = 0
        for group, topic in pairs:
            if shown == MOST_PAIRS or looked_at >= MOST_QUEUES:
                break
            try:
                offsets = self._service.offsets.offsets_of(group, topic)
                behind = _behind(snapshot, topic, offsets)
            except RocketLensError:
                continue
            looked_at += len(offsets)
            samples.put("consumer_group_lag_messages", sum(lag for _, _, lag in behind), self.broker, group, topic)
            oldest = [self._stored_at(queue, offset, reads, stored) for queue, offset, lag in behind if lag]
            if None not in oldest:
                ages = [time.time() - timestamp / 1000 for timestamp in oldest if timestamp and timestamp > 0]
                age = max([0.0, *ages])
                samples.put("consumer_group_lag_seconds", age, self.broker, group, topic)
            shown += 1
        self._stored = stored
        samples.put("consumer_group_pairs_left_out", len(pairs) - shown, self.broker)

    def _stored_at(
        self, queue: Queue, queue_offset: int, reads: "itertools.count[int]", stored: dict[Place, int]
    ) -> int | None:
        """Return when a message was stored (ms), −1 if that cannot be read, None if this reading has read enough."""
        place = queue.topic, queue.queue_id, queue_offset
        known = self._stored.get(place)
        if known is None:
            if next(reads) >= MOST_READS:
                return None
            try:
                known = queue.store_timestamp_at(queue_offset)
            except RocketLensError:
                known = -1
        stored[place] = known
        return known


def _behind(snapshot: Snapshot, topic: str, offsets: dict[int, int]) -> list[tuple[Queue, int, int]]:
    """Of each queue: the next message to consume that is still there, and how many were stored that are not consumed.

    What has expired meanwhile counts, as it does in mqadmin's consumerProgress. Raises RocketLensError where a queue
    cannot be read: a lag without it would look smaller than it is.
    """
    behind: list[tuple[Queue, int, int]] = []
    for queue_id, offset in offsets.items():
        queue = snapshot.queues.queue(topic, queue_id)
        if queue is not None:
            behind.append((queue, max(offset, queue.min_offset), max(queue.max_offset - offset, 0)))
    return behind
