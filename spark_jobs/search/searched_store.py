"""The store that a search or look-up by tasks is planned by: a directory, or a hollow copy of what lies behind a URL.

In the copy that alone is real which a plan looks at: the small files, the end of the log, and the queues of the topic
that is asked for. Single records and units are read where they lie. Everything else is a hole, and is neither asked
nor believed: the index is left out, and what a plan cannot know is searched.
"""

import contextlib
import shutil
from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from protocol.java_hash import java_hash
from protocol.message import decode_message
from protocol.system_topics import SCHEDULE_TOPIC
from spark_jobs.places.remote_file import RemoteFile
from spark_jobs.places.remote_tree import RemoteTree
from spark_jobs.scan.probe_store import GLANCE_BYTES, last_written
from spark_jobs.scan.segment_window import SegmentWindow
from spark_jobs.scan.source import StoreSource, find_source, opened_source
from spark_jobs.search._searched_segment import SearchedSegment
from storage.files.mapped_file import list_segment_files
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from storage.log.commit_log import CommitLog, Segment
from storage.queue.consume_queue import UNIT_DTYPE, ConsumeQueue
from storage.queue.consume_queue_ext import LARGEST_ADDRESS
from storage.queue.queue_files import read_units
from storage.queue.suspect_units import suspect_runs
from storage.queue.unit_struct import UNIT
from storage.search.plan import RecordAccess
from storage.store.message_store import MessageStore, Snapshot, StoreOptions

LAZY: Final = StoreOptions(scan_budget=0, check_budget=0, keeps_state=False)
"""What the index of a copy lacks is not scanned, and nothing is kept of the copy."""


class SearchedStore:
    """A store to plan by, and where its segments lie; `source` is what there is behind a URL, None of a directory."""

    def __init__(self, store: MessageStore, source: StoreSource | None = None) -> None:
        """See :func:`searched_url`."""
        self.store = store
        self._tree = None if source is None else source.tree
        self._found = source
        self._remote = {} if source is None else {place.base_offset: place.remote for place in source.segments}

    @property
    def source(self) -> StoreSource:
        """The files of the store; raises StoreError where a directory cannot be listed any more."""
        layout = self.store.layout
        return self._found or find_source(layout.root, layout.commit_log_directories)

    @property
    def access(self) -> RecordAccess:
        """How a plan looks at records and units."""
        if self._tree is None:
            return RecordAccess()
        return RecordAccess(self._find_record, partial(_has_unit, self._tree), _offsets_in_queue)

    def searched_segment(self, segment: Segment) -> SearchedSegment:
        """A segment as tasks get it."""
        remote = self._remote.get(segment.base_offset)
        path = str(segment.file.path.absolute()) if remote is None else remote.url
        return SearchedSegment(path, segment.base_offset, segment.valid_length, segment.boundary, remote)

    def _find_record(self, commit_log: CommitLog, physical_offset: int) -> tuple[int, int] | None:
        """Physical offset and store time (ms) of the first intact record at or behind an offset."""
        for segment in commit_log.segments:
            if segment.end > physical_offset:
                found = self._first_record(segment, max(physical_offset - segment.base_offset, 0))
                if found is not None:
                    return found
        return None

    def _first_record(self, segment: Segment, position: int) -> tuple[int, int] | None:
        place = self.searched_segment(segment)
        with SegmentWindow(place.path, place.base_offset, place.remote, GLANCE_BYTES) as window:
            at = window.find_candidate(position)
            while 0 <= at < segment.valid_length:
                size = window.intact_size(at)
                if size and at + size <= segment.valid_length:
                    return segment.base_offset + at, window.store_timestamp(at)
                at = window.find_candidate(at + 1)
        return None


@contextlib.contextmanager
def searched_url(url: str, storage: str, topic: str | None) -> Iterator[SearchedStore]:
    """Look at the store behind a URL, to search it for messages of a topic or, with None, of any.

    `storage` are the options of the file system, as JSON. Raises NotAStore, another StoreError or ConfigError.
    """
    with opened_source(url, (), storage) as source:
        assert source.tree is not None
        tree, root = source.tree, source.layout.root
        shutil.rmtree(source.layout.index, ignore_errors=True)
        _fetch_end(source, tree)
        if topic is None:  # where batches lie is looked at, since no index has the keys of their messages
            tree.below(BATCH_CONSUME_QUEUE).fetch(root)
        else:
            tree.below(f"{CONSUME_QUEUE}/{topic}", f"{BATCH_CONSUME_QUEUE}/{topic}").fetch(root)
        store = MessageStore.open(root, LAZY)
        if store.commit_log.damage or store.commit_log.torn_end is not None:
            # Which records behind damage count is for the queues to say.
            tree.below(CONSUME_QUEUE).fetch(root)
            store = MessageStore.open(root, LAZY)
        yield SearchedStore(store, source)


def _fetch_end(source: StoreSource, tree: RemoteTree) -> None:
    """Copy the segments that show where the log ends: from the last one on that begins with a record.

    And the first bytes of the log, which show what kind of log it is.
    """
    root = source.layout.root
    paths = {place.url: path for path, place in tree.objects().items()}
    first = source.segments[0]
    path = root / paths[first.path]
    with RemoteFile(first.path, tree.storage, first.remote) as remote, path.open("r+b") as file:
        remote.copy_range(file, 0, min(first.size, GLANCE_BYTES))
    end = last_written(source.segments)
    for place in reversed([each for each in source.segments if each.base_offset <= end]):
        name = paths[place.path]
        tree.below(name).fetch(root)
        with SegmentWindow(root / name, place.base_offset) as window:
            if window.intact_size(window.record_start(0)):
                return


def _has_unit(tree: RemoteTree, snapshot: Snapshot, record: memoryview, physical_offset: int) -> bool:
    """Whether the plain queue of a record has its unit; False, too, where that cannot be known."""
    message = decode_message(record, check_crc=False)
    directory = f"{CONSUME_QUEUE}/{message.topic}/{message.queue_id}/"
    wanted = message.queue_offset * UNIT.size
    for each in tree.files:
        name = each.path.removeprefix(directory)
        if name == each.path or not name.isdigit() or not int(name) <= wanted <= int(name) + each.size - UNIT.size:
            continue
        found = tree.object(each.path)
        with RemoteFile(found.url, tree.storage, found) as file:
            data = bytearray(UNIT.size)
            if file.read_into(memoryview(data), wanted - int(name)) == UNIT.size:
                offset, size, _ = UNIT.unpack(data)
                return bool(offset == physical_offset and size > 0)
    return False


def _offsets_in_queue(
    snapshot: Snapshot, queue: ConsumeQueue, tags: tuple[str, ...] | None, start: int, stop: int
) -> npt.NDArray[np.int64] | None:
    """As :func:`storage.search._by_queue.offsets_in_queue`, by the units alone: their records are holes here.

    Units of messages that have expired come first; where none does, a file before the first one may be lost.
    """
    log = snapshot.commit_log
    files, _ = list_segment_files(snapshot.layout.consume_queue / queue.topic / str(queue.queue_id))
    pieces, end = [np.empty(0, UNIT_DTYPE)], files[0][0] if files else 0
    for begin, path in files:
        for position, piece in read_units(path, UNIT_DTYPE):
            if begin + position != end:  # a file is lost, or there is a hole in one
                return None
            pieces.append(piece)
            end += piece.nbytes
    units = np.concatenate(pieces, dtype=UNIT_DTYPE)
    written = np.flatnonzero(units["size"])
    units = units[: written[-1] + 1 if written.size else 0]
    live = units[int(np.argmax(units["physical_offset"] >= log.minimum)) :] if units.size else units
    if not live.size or (files[0][0] and len(live) == len(units)):
        return None
    beyond = live["physical_offset"] >= log.end  # at the end of a queue that goes on where the log was cut
    live = live[: len(live) - int(np.argmin(beyond[::-1]))]
    if suspect_runs(log, 0, len(live), [(0, live)]):
        return None
    offsets = live["physical_offset"].astype(np.int64)
    wanted = (offsets >= start) & (offsets < stop)
    if tags is not None:
        codes = live["tags_code"].astype(np.int64)
        hashes = [java_hash(tag) & 0xFFFFFFFF for tag in tags]
        # What is in an extension file, and what waits for its time, may have any tag.
        wanted &= np.isin(codes & 0xFFFFFFFF, hashes) | (codes <= LARGEST_ADDRESS) | (queue.topic == SCHEDULE_TOPIC)
    return offsets[wanted]
