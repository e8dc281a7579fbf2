"""The search of a queue for messages with a tag, by the hashes in its units.

What a unit leads to may have another tag with the same hash. A message may have any tag if its extension unit is lost,
or if its unit is suspect (:mod:`storage.queue.suspect_units`).
"""

from __future__ import annotations

from protocol.system_topics import SCHEDULE_TOPIC
from storage.arrays import np, npt
from storage.files.waiting import LONG_SCAN, Lookup, long_scan, plainly
from storage.queue.consume_queue_ext import ANY_TAG
from storage.queue.queue import Queue


def offsets_with_tag_lookup(
    queue: Queue, tag_hash: int, from_physical: int, to_physical: int
) -> Lookup[npt.NDArray[np.int64]]:
    """Return the physical offsets in [from, to) of messages whose tag may have a hash (32 bits), ascending.

    They are those of the store's own log, without a tier's. Raises BeingSearched while the log is searched for messages
    of damaged units.
    """
    own = (yield from queue.measured()).parts[-1].queue
    assert own is not None  # no queue ends with a gap
    if own.unit_count * own.unit_size > LONG_SCAN:
        yield long_scan(f"all units of {queue.topic} {queue.queue_id}")
    found = [np.empty(0, np.int64)]
    for part in own.unit_arrays():
        units = yield from part
        codes = units["tags_code"].astype(np.int64)
        if queue.topic != SCHEDULE_TOPIC:  # whose units have the times of delivery instead
            wanted = (codes & 0xFFFFFFFF == tag_hash & 0xFFFFFFFF) & (codes > ANY_TAG) | (codes == ANY_TAG)
            for number in np.flatnonzero(codes < ANY_TAG).tolist():
                extension = yield from own.extension_at(int(codes[number]))
                wanted[number] = extension is None or (extension.tags_code ^ tag_hash) & 0xFFFFFFFF == 0
            units = units[wanted]
        found.append(units["physical_offset"].astype(np.int64))
    places = np.concatenate(found)
    if (np.diff(places) <= 0).any():
        places = np.unique(places)
    return places[(places >= from_physical) & (places < to_physical)]


offsets_with_tag = plainly(offsets_with_tag_lookup)
