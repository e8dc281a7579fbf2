"""Many keys and ids looked up at once: first the index gone over once, then each record that may be meant, in order.

Hashes only propose; what counts is what the record says, so a collision finds nothing wrong.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from protocol.java_hash import java_hash
from protocol.message import Message, decode_message
from protocol.message_id import MessageId
from protocol.question import (
    OFFSET_ID,
    PHYSICAL_OFFSET,
    KeyKind,
    message_id_of,
    other_topic,
    parts_of,
    physical_offset_of,
    taken_apart,
)
from storage.amounts import counted
from storage.index.tail_index import Hashes, Offsets
from storage.search._ascending import ascending
from storage.search.progress import ProgressReport
from storage.search.wanted_entries import index_bytes, offsets_of_hashes
from storage.store.message_store import MessageStore
from storage.store.snapshot import lacks_of

HASHES_AT_ONCE: Final = 1 << 25
"""Keys times topics that are looked for in one pass: memory for them is bounded."""

RECORDS_A_STEP: Final = 2000

_UNITS: Final = "utf-16-le"


class KeyHashes:
    """Keys prepared to be hashed with any of many topics.

    A Java hash goes on where another ends: that of `topic#key` is that of `topic#`, times 31 to the power of the key's
    length in UTF-16 units, plus that of the key. So each key is hashed once, whatever number of topics there are.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        lengths = np.array([_length(key) for key in keys], np.uint32)
        powers = np.full(int(lengths.max(initial=0)) + 1, 31, np.uint32)
        powers[0] = 1
        self._powers: npt.NDArray[np.uint32] = np.cumprod(powers, dtype=np.uint32)[lengths]
        self._hashes = np.array([java_hash(key) & 0xFFFFFFFF for key in keys], np.uint32)

    def within(self, topic: str) -> Hashes:
        """The index hashes of all keys in a topic."""
        prefix = np.uint32(java_hash(f"{topic}#") & 0xFFFFFFFF)
        # As in Java, the smallest int has no absolute value; a broker stores 0 for it.
        signed = (self._powers * prefix + self._hashes).view(np.int32)
        return np.where(signed == -(1 << 31), 0, np.abs(signed)).astype(np.int32)

    def within_any(self, topics: Iterable[str]) -> Hashes:
        """The index hashes of all keys in any of some topics, ascending, each once."""
        return ascending(np.concatenate([np.empty(0, np.int32), *map(self.within, topics)]))


def _length(key: str) -> int:
    return len(key) if key.isascii() else len(key.encode(_UNITS, "surrogatepass")) // 2


@dataclass(frozen=True, slots=True)
class Match:
    """One message that was asked for."""

    text: str
    """What was asked for."""
    kind: str
    """What the message was found by: its ``unique key``, a ``key``, or the id or offset that the text is."""
    message: Message
    store: str = ""
    """The directory of the message's store, where several stores are asked."""


@dataclass(frozen=True, slots=True)
class LookupStep:
    """Matches ascending by physical offset, and how far it is; ``notes`` at the end say what may be missing."""

    matches: tuple[Match, ...]
    progress: ProgressReport
    notes: tuple[str, ...] = ()


class LookupSource(Protocol):
    """The data that a look-up reads; all of it may wait for the disk, or for others."""

    @property
    def store(self) -> MessageStore:
        """The store, of which topics are asked."""
        ...

    @property
    def index_bytes(self) -> int:
        """About how many bytes of entries :meth:`offsets_of` goes over."""
        ...

    @property
    def incomplete(self) -> str | None:
        """Why look-ups may be incomplete, None if they are complete."""
        ...

    def begin(self, should_stop: Callable[[], bool]) -> None:
        """Get ready to look for keys."""
        ...

    def ids_here(self, ids: Mapping[str, MessageId]) -> Container[str]:
        """Which of some texts are the ids of messages of the store: those with its own host in them."""
        ...

    def offsets_of(self, hashes: Hashes) -> Iterator[tuple[Offsets, int]]:
        """Physical offsets of all records that may have one of some hashes, and bytes of index gone over for them."""
        ...

    def records_at(self, places: Offsets) -> Iterator[Sequence[tuple[int, memoryview | None]]]:
        """The intact records at physical offsets, which ascend, with these; None where there is none."""
        ...


@dataclass(frozen=True)
class LookupHere:
    """The files of a store, by this thread; a :class:`LookupSource`."""

    store: MessageStore

    @property
    def index_bytes(self) -> int:
        """Bytes of the entries of index files and of those that were scanned."""
        return index_bytes(self.store.snapshot)

    @property
    def incomplete(self) -> str | None:
        """As the snapshot says."""
        return self.store.snapshot.incomplete

    def begin(self, should_stop: Callable[[], bool]) -> None:
        """Scan the parts of the log that the index does not cover."""
        self.store.finish_scan(should_stop)

    def ids_here(self, ids: Mapping[str, MessageId]) -> Container[str]:
        """Look at each record."""
        return {text for text, each in ids.items() if self.store.message_by_offset_id(each) is not None}

    def offsets_of(self, hashes: Hashes) -> Iterator[tuple[Offsets, int]]:
        """Go over index files and scanned entries."""
        return offsets_of_hashes(self.store.snapshot, hashes)

    def records_at(self, places: Offsets) -> Iterator[Sequence[tuple[int, memoryview | None]]]:
        """Some at a time, from the map."""
        log = self.store.commit_log
        for first in range(0, len(places), RECORDS_A_STEP):
            yield [(offset, log.record_at(offset)) for offset in places[first : first + RECORDS_A_STEP].tolist()]


def look_up(
    source: LookupSource,
    texts: Iterable[str],
    *,
    topic: str | None = None,
    kind: str | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[LookupStep]:
    """All messages that texts name, in one topic or in any. Equal texts count once. Waits for the disk.

    With a ``kind``, one of the readings of :mod:`protocol.question` but not a tag, texts are taken for that alone;
    without, for offset message ids where they look so and name a message of the store, else for unique keys and keys.
    The host in an id that is said to be one need not be the store's, since archives move. What the index lacks is
    scanned first. Ends early, without a note, when ``should_stop``.
    """
    return _Lookup(source, texts, topic, kind, should_stop).steps()


class _Lookup:
    """One batch under way."""

    def __init__(
        self,
        source: LookupSource,
        texts: Iterable[str],
        topic: str | None,
        kind: str | None,
        should_stop: Callable[[], bool],
    ) -> None:
        self._source, self._store = source, source.store
        self._topic = topic
        self._kind = kind
        self._parts = [part for parts in parts_of(kind) for part in parts if part is not KeyKind.TAG]
        self._should_stop = should_stop
        self._started = time.monotonic()
        self._by_offset: dict[int, list[tuple[str, str]]] = defaultdict(list)
        self._keys: dict[str, None] = {}
        self._searched = self._found = self._strays = 0
        every = dict.fromkeys(texts)
        ids = {text: found for text in every if (found := self._id_of(text)) is not None}
        here = source.ids_here(ids) if kind is None and ids else ids
        for text in every:
            self._sort_in(text, ids.get(text) if text in here else None)
        self._key_hashes = KeyHashes(list(self._keys))

    def _sort_in(self, text: str, message_id: MessageId | None) -> None:
        """Note what one text may name, which is an offset message id if there is one."""
        place = self._place_of(text, message_id)
        if place is not None:
            offset, kind = place
            self._by_offset[offset].append((text, kind))
        elif self._parts:
            self._keys[text] = None

    def _place_of(self, text: str, message_id: MessageId | None) -> tuple[int, str] | None:
        if self._kind == PHYSICAL_OFFSET:
            physical_offset = physical_offset_of(text)
            return None if physical_offset is None else (physical_offset, PHYSICAL_OFFSET)
        return None if message_id is None else (message_id.physical_offset, OFFSET_ID)

    def _id_of(self, text: str) -> MessageId | None:
        """Parse a text as an offset message id; None if it is not one, or ids are not wanted."""
        return message_id_of(text) if self._kind in (None, OFFSET_ID) else None

    def steps(self) -> Iterator[LookupStep]:
        """Go over the index, then over the records."""
        if self._keys:
            self._source.begin(self._should_stop)
        groups = list(self._groups())
        entry_bytes = self._source.index_bytes * len(groups)
        offsets = [np.array(list(self._by_offset), np.int64)]
        for group in groups:
            for found, size in self._source.offsets_of(self._key_hashes.within_any(group)):
                if self._should_stop():
                    return
                offsets.append(found)
                self._searched += size
                yield self._step((), entry_bytes)
        places = ascending(np.concatenate(offsets))
        yield from self._records(places, entry_bytes)
        yield self._step((), self._searched, self._notes())

    def _groups(self) -> Iterator[Sequence[str]]:
        """Topics that are looked for together."""
        if not self._keys:
            return
        config, queues = self._store.config, self._store.queues
        topics = [self._topic] if self._topic is not None else sorted({*queues.topics(), *config.topics})
        at_once = max(HASHES_AT_ONCE // len(self._keys), 1)
        for first in range(0, len(topics), at_once):
            yield topics[first : first + at_once]

    def _records(self, places: Offsets, entry_bytes: int) -> Iterator[LookupStep]:
        for records in self._source.records_at(places):
            if self._should_stop():
                return
            matches: list[Match] = []
            for offset, record in records:
                if record is None:
                    self._strays += 1
                else:
                    for message in taken_apart(decode_message(record, check_crc=False)):
                        matches += self._matches(message, offset)
            yield self._step(matches, entry_bytes)

    def _matches(self, message: Message, offset: int) -> Iterator[Match]:
        if other_topic(message, self._topic):
            return
        for text, kind in self._by_offset.get(offset, ()):
            yield Match(text, kind, message)
        if not self._keys:
            return
        unique_key = message.unique_key if KeyKind.UNIQUE in self._parts else None
        if unique_key in self._keys:
            yield Match(unique_key, KeyKind.UNIQUE.words, message)
        for key in dict.fromkeys(message.keys) if KeyKind.KEY in self._parts else ():
            if key in self._keys and key != unique_key:
                yield Match(key, KeyKind.KEY.words, message)

    def _step(self, matches: Sequence[Match], total: int, notes: tuple[str, ...] = ()) -> LookupStep:
        self._found += len(matches)
        seconds = time.monotonic() - self._started
        return LookupStep(tuple(matches), ProgressReport(self._searched, total, self._found, seconds), notes)

    def _notes(self) -> tuple[str, ...]:
        log_alone = "; ".join(lacks_of(self._store.commit_log)) or None  # ids and offsets are not looked for elsewhere
        incomplete = self._source.incomplete if self._keys else log_alone
        notes = [] if incomplete is None else [f"something may be missing: {incomplete}"]
        if self._topic is None and (unknown := self._store.queues.why_unknown()) is not None:
            notes.append(f"topics may be missing: {unknown}")
        if self._strays:
            notes.append(f"no intact message is at {counted(self._strays, 'place')} that the index or an id names")
        return tuple(notes)
