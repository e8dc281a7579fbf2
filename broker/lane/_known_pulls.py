"""Which pulls the fast lane knows: those of which two were answered on the ordinary way since anything changed.

A consumer asks the same again and again but for the offset. What the ordinary way found out for such a pull (that the
group may read the topic, by which filter it chooses, where the queue's units lie, what the answer's header says) holds
until the store's snapshot or the members of the groups change; then everything is forgotten. All of this is the event
loop's.
"""

import weakref
from collections import deque
from contextlib import suppress

from broker.kernels import lane as kernel
from broker.service.broker_service import BrokerService
from broker.service.consumers.pulled_offsets import PlaceOfGroup, Pulled
from broker.service.dispatcher import ClientConnection
from broker.service.processors.pull_message import FoundPull, found_fields, limits_of
from protocol.codes import SerializeType
from protocol.command import Response
from protocol.errors import StoreError
from protocol.headers import PullMessageRequestHeader
from protocol.kernels.responses import OPAQUE, ResponseTemplate
from storage.files.mapped_file import MappedFile
from storage.files.open_files import most_queue_files
from storage.files.waiting import Lookup, begin
from storage.kernels.pulls import BY_EXPRESSION, BY_TAG, EVERYTHING
from storage.query.get_message import PATIENT_SCAN, PATIENT_STEPS, GetMessageStatus, returned_bytes, scanned_units
from storage.queue.queue import SourceQueue, UnitRange
from storage.store.message_store import Snapshot

KEPT = 256
"""Pulls that wait to be taken in; of more, the oldest are forgotten."""

ROWS = 16384
"""As many as queue files may be open: a pull that is known takes a fifth of one on the ordinary way."""
SLOTS = 4 * ROWS

SEEN = 4 * ROWS
"""Kinds of pulls of which it is remembered that one was answered, by their hashes."""

LONGEST_SUBSCRIPTION = 4096
"""Characters of a subscription that is kept."""

RUN_SHIFT = kernel.RUN_SHIFT
UNBOUNDED = 1 << 60
COSTS = {EVERYTHING: 0, BY_TAG: 1, BY_EXPRESSION: 16}
"""The cost of going through a unit, in sixteenths of a step along an index's chain; for an expression, of each part."""

NEXT_OFFSET = '"nextBeginOffset":"'
"""The text before the next offset in an answer's header: besides the opaque, the only number that differs."""


class KnownPulls:
    """The pulls that may take the lane, in the `table` that it looks them up in."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service
        self.table = kernel.KnownPulls(ROWS, SLOTS)
        self._headers: list[PullMessageRequestHeader] = []
        self._files: weakref.WeakSet[MappedFile] = weakref.WeakSet()
        self._most_files = most_queue_files()
        self._snapshot_end: weakref.ref[Snapshot] | None = None
        self._seen: set[int] = set()
        self._group_changes = service.clients.changes
        self._clients, self._polls = service.clients, service.polls
        self.found: deque[FoundPull] = deque(maxlen=KEPT)
        """What was answered on the ordinary way and was not taken in yet."""
        self._pulled = service.pulled
        self._pulled.read_also(self.pulled)

    @property
    def is_stale(self) -> bool:
        """Whether what is known of groups and of ourselves need not hold any more."""
        return self._clients.changes != self._group_changes or self._polls.is_stopping

    def prepare(self, snapshot: Snapshot) -> None:
        """Take in what was answered on the ordinary way, or forget everything that need not hold any more."""
        is_stopping = self._polls.is_stopping
        if self.is_stale:
            self._group_changes = self._clients.changes
            self.forget()
        while self.found:
            pull = self.found.popleft()
            is_current = pull.snapshot() is snapshot and pull.group_changes == self._group_changes
            if is_current and not is_stopping and self._is_seen(pull.header):
                # What would have to wait, or is gone, is for the ordinary way; here it would cost the connection.
                with suppress(StoreError):
                    begin(self._take_in(pull, snapshot))

    def forget(self) -> None:
        """Know no pull any more."""
        if self._headers:
            self._pulled.take(self.pulled(0))
            self.table.clear()
            self._headers.clear()
            self._files.clear()
        self._seen.clear()

    def pulled(self, second: int) -> list[tuple[PlaceOfGroup, Pulled]]:
        """Where the pulls of each kind go on that were made from a second of the monotonic clock on."""
        return [
            ((header.consumer_group, header.topic, header.queue_id), (tick, offset))
            for header, (offset, tick) in zip(list(self._headers), self.table.pulled(), strict=False)
            if tick and tick >= second
        ]

    def hand_on(self, commits: list[tuple[int, int]], connection: ClientConnection | None) -> None:
        """Remember the offsets that pulls have committed, all of one connection; None has no group."""
        for number, offset in commits:
            header = self._headers[number]
            if connection is not None:
                commit = self._service.commits.commit
                commit(connection, header.consumer_group, header.topic, header.queue_id, offset)

    def _is_seen(self, header: PullMessageRequestHeader) -> bool:
        """Whether a pull like this one was answered before: to know one that comes once costs more than it saves."""
        key = hash((header.queue_id, header.queue_offset >> RUN_SHIFT, header.topic, header.consumer_group))
        if key in self._seen:
            return True
        if len(self._seen) == SEEN:
            self._seen.clear()
        self._seen.add(key)
        return False

    def _take_in(self, pull: FoundPull, snapshot: Snapshot) -> Lookup[None]:
        """Know pulls like this one, unless they are known."""
        header = pull.header
        queues, offset = snapshot.queues, header.queue_offset
        queue, is_whole = yield from queues.readable_lookup(header.topic, header.queue_id, offset)
        if not is_whole or not isinstance(queue, SourceQueue) or queue.log is not snapshot.commit_log:
            return
        scan = scanned_units(limits_of(header, self._service.options)[0], queue.unit_size)
        if scan > PATIENT_SCAN or pull.choice.cost * scan > PATIENT_STEPS:
            return
        if len(header.subscription or "") > LONGEST_SUBSCRIPTION:
            return
        if self.table.is_full or len(self._files) >= self._most_files:
            self.forget()
        units = yield from queue.units_at(offset, UNBOUNDED)
        if units is None or not isinstance(units.file, MappedFile):  # what was made of the log is kept elsewhere
            return
        known = yield from self._known_pull(pull, queue, units)
        if self.table.add(known, offset):
            self._headers.append(header)
            self._hold(units.file, snapshot)

    def _hold(self, file: MappedFile, snapshot: Snapshot) -> None:
        """Count a file that rows keep mapped while the snapshot lives: one that is gone then waits for no request."""
        if not self._files:
            table = self.table
            self._snapshot_end = weakref.ref(snapshot, lambda _: table.release())
        self._files.add(file)

    def _known_pull(self, pull: FoundPull, queue: SourceQueue, units: UnitRange) -> Lookup[kernel.KnownPull]:
        """What holds for pulls like this one that start in the same run of units and in the same file."""
        header, choice = pull.header, pull.choice
        messages, record_bytes = limits_of(header, self._service.options)
        run = header.queue_offset >> RUN_SHIFT << RUN_SHIFT
        start, stop = max(run, units.first, queue.min_offset), min(run + (1 << RUN_SHIFT), units.stop)
        if start == units.first != header.queue_offset and (yield from queue.units_at(start, 1)) is None:
            start += 1  # no pull by the kernel may begin there
        return kernel.KnownPull(
            _kind_of(pull.code, header),
            *units,
            start,
            stop,
            scanned_units(messages, queue.unit_size),
            messages,
            returned_bytes(record_bytes),
            choice,
            COSTS[choice.kind] * choice.cost,
            self._template(queue, pull),
        )

    def _template(self, queue: SourceQueue, pull: FoundPull) -> ResponseTemplate:
        """The header of the answers, as the ordinary way renders it."""
        fields = found_fields(0, queue.max_offset, queue.min_offset, pull.topic_sys_flag, pull.group_sys_flag)
        response = Response(0, GetMessageStatus.FOUND.name, fields)
        return ResponseTemplate(SerializeType.JSON, response, (NEXT_OFFSET, OPAQUE))


def _kind_of(code: int, header: PullMessageRequestHeader) -> kernel.PullKind:
    topic, group = _encoded(header.topic), _encoded(header.consumer_group)
    assert topic is not None
    assert group is not None
    return kernel.PullKind(
        code,
        topic,
        group,
        _encoded(header.subscription),
        _encoded(header.expression_type),
        header.queue_id,
        header.max_msg_nums,
        header.max_msg_bytes,
        header.sys_flag,
        header.sub_version,
    )


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogatepass")
