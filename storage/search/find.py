"""Find messages by one text: an offset message id, a physical offset, a unique key, a key or a tag.

A text may be several of these at once, so all are tried, in this order, and each result is reported. Keys and tags
are looked up topic by topic, for the index hashes them together with the topic's name; the newest of a topic come
first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from protocol.errors import ConfigError
from protocol.mask import NO_MASK, Mask
from protocol.message import Message, decode_message, decode_messages
from protocol.message_id import decode_message_id, is_offset_message_id_candidate
from storage.log.absence import explain_absence
from storage.log.commit_log import CommitLog
from storage.query.lookup_call import MAXIMUM_OFFSET, KeyKind, KeyQuery
from storage.query.search_report import SearchReport, summed
from storage.store.message_store import MessageStore

FindKind: TypeAlias = Literal["key", "tag"]

KINDS: Final[dict[FindKind, KeyKind]] = {"key": KeyKind.ANY, "tag": KeyKind.TAG}
LONGEST_OFFSET: Final = len(str(MAXIMUM_OFFSET))
PAGE: Final = 64


@dataclass(slots=True)
class TriedKind:
    """One meaning of the text: how many messages were found by it, and a note."""

    kind: str
    found: int = 0
    note: str = ""


class FoundBy(NamedTuple):
    """A message, the meaning of the text that names it, and what is wrong with its record, if anything is."""

    message: Message
    kind: str
    damage: str | None = None


class FindPlace(NamedTuple):
    """Where a search goes on: the meaning of the text, the topic, and the physical offset in it."""

    kind: FindKind = "key"
    topic: str = ""
    before: int = MAXIMUM_OFFSET


@dataclass(frozen=True, slots=True, kw_only=True)
class FindLimits:
    """What narrows a search: messages of one `topic`, stored in a time (ms), which unique keys do not mind.

    It ends after `maximum` messages, or when `is_time_up`, which is not asked before one topic was looked into, or one
    of its messages was masked: that may take long.
    `refusal` says why a message may not be shown, or None. By what `mask` hides of messages none is found.
    """

    topic: str | None = None
    begin_timestamp: int = 0
    end_timestamp: int = MAXIMUM_OFFSET
    maximum: int = 50
    is_time_up: Callable[[], bool] = lambda: False
    refusal: Callable[[Message], str | None] = lambda _message: None
    mask: Mask = NO_MASK


class Finder:
    """The state of one search.

    `place` is where it goes on, None when all was looked at; `searched` counts topics, once for each of `KINDS`;
    `incomplete` says what may be missing.
    """

    def __init__(self, store: MessageStore, text: str, topics: Sequence[str], limits: FindLimits) -> None:
        """Look for `text` under `topics`, which are in order of their names. Waits for the disk."""
        self._store, self._text, self._topics, self._limits = store, text, topics, limits
        self.found: list[FoundBy] = []
        self.tried: dict[str, TriedKind] = {}
        self.incomplete: str | None = None
        self.searched = 0
        self.place: FindPlace | None = None
        self._has_looked = self._has_masked = False
        self._search: SearchReport | None = None

    def look_at_offset(self) -> None:
        """Take the text for an offset message id, then for a physical offset."""
        text = self._text
        if is_offset_message_id_candidate(text):
            message_id = decode_message_id(text)
            self._look_at("offset message id", message_id.physical_offset, str(message_id.address))
        digits = text.lstrip("0") or "0"
        is_number = text.isascii() and text.isdecimal() and len(digits) <= LONGEST_OFFSET
        if is_number and int(digits) <= MAXIMUM_OFFSET:
            self._look_at("physical offset", int(digits), None)

    def _look_at(self, kind: str, physical_offset: int, host: str | None) -> None:
        tried = self.tried.setdefault(kind, TriedKind(kind))
        message, damage = message_at(self._store, physical_offset)
        if message is None:
            tried.note = f"no message there: {damage}"
        elif (refusal := self._limits.refusal(message)) is not None:
            tried.note = refusal
        elif self._limits.topic not in (None, message.topic):
            tried.note = f"the message there is one of topic {message.topic}"
        else:
            tried.found = 1
            is_told = "store_host" not in self._limits.mask.fields
            if host is not None and host != str(message.store_host) and is_told:
                tried.note = f"the id names {host}, the message there was stored by {message.store_host}"
            self.found.append(FoundBy(self._limits.mask.message(message), kind, damage))

    def go_on(self, place: FindPlace) -> None:
        """Look the text up as a key and as a tag, from a place on, until there is no room or no time."""
        for kind in KINDS:
            self.tried.setdefault(kind, TriedKind("unique key or key" if kind == "key" else kind))
            if (refused := self._refused(kind)) is not None:
                self.tried[kind].note = refused
                self.searched += len(self._topics)
                continue
            if kind == "key" and place.kind == "tag":
                self.searched += len(self._topics)
                continue
            for topic in self._topics:
                if place.kind == kind and topic < place.topic:
                    self.searched += 1
                    continue
                before = place.before if (kind, topic) == place[:2] else MAXIMUM_OFFSET
                if self._limits.is_time_up() and self._has_looked:
                    self.place = FindPlace(kind, topic, before)
                    return
                if not self._search_topic(kind, topic, before):
                    return
                self.searched += 1

    def _refused(self, kind: FindKind) -> str | None:
        """Why nothing may be found by the text as a key or a tag; None where something may."""
        mask = self._limits.mask
        try:
            if kind == "key":
                mask.refuse("unique_key")
            mask.refuse_value("keys" if kind == "key" else "tags", self._text)
        except ConfigError as error:
            return str(error)
        return None

    @property
    def details(self) -> str:
        """What was searched for keys and tags, as a sentence without a full stop; empty where nothing was."""
        return "" if self._search is None else self._search.sentence()

    def _search_topic(self, kind: FindKind, topic: str, before: int) -> bool:
        """Look one topic's messages up; False if not all of them fit into the answer."""
        self._has_looked = True
        while True:
            room = self._limits.maximum - len(self.found)
            answer = self._store.query(
                KeyQuery(
                    topic=topic,
                    key=self._text,
                    kind=KINDS[kind],
                    maximum=min(room, PAGE) if room > 0 else 1,
                    begin_timestamp=self._limits.begin_timestamp,
                    end_timestamp=self._limits.end_timestamp,
                    before_physical_offset=before,
                )
            )
            self.incomplete = self.incomplete or answer.incomplete
            self._search = answer.search if self._search is None else summed((self._search, answer.search))
            if answer.refusal:
                self.tried[kind].note = answer.refusal
            if answer.count and room <= 0:
                self.place = FindPlace(kind, topic, before)
                return False
            for message in reversed(list(decode_messages(answer.records))):  # newest first
                if self._has_masked and self._limits.is_time_up():
                    self.place = FindPlace(kind, topic, before)
                    return False
                self._has_masked = bool(self._limits.mask)
                before = message.physical_offset
                if (found := self._shown(kind, message)) is not None:
                    self.found.append(found)
                    self.tried[kind].found += 1
            if not (answer.truncated and answer.count):
                return True
            before = answer.physical_offsets[0]

    def _shown(self, kind: FindKind, message: Message) -> FoundBy | None:
        """A message of an answer without what is hidden, None where it may not be shown."""
        if self._limits.refusal(message) is not None:
            return None
        shown = self._limits.mask.message(message)
        if kind == "key" and self._text not in (*shown.keys, shown.unique_key):
            return None  # hidden together with what stands beside it
        is_unique_key = kind == "key" and message.unique_key == self._text
        return FoundBy(shown, "unique key" if is_unique_key else kind)


def message_at(store: MessageStore, physical_offset: int) -> tuple[Message | None, str | None]:
    """The message at a physical offset and what is wrong with its record, None for nothing; or None and why."""
    found, damage = message_in_log(store.commit_log, physical_offset)
    return (None, store.explain_absence(physical_offset)) if found is None else (found, damage)


def message_in_log(log: CommitLog, physical_offset: int) -> tuple[Message | None, str | None]:
    """The message at a physical offset of a log, which may be that of a queue in a tier; else as `message_at`."""
    record, damage = log.record_at(physical_offset), None
    if record is None:
        damage = explain_absence(log, physical_offset)
        record = log.damaged_record_at(physical_offset) if physical_offset < log.end else None
        if record is None:
            return None, damage
    return decode_message(record, physical_offset=physical_offset, check_crc=False), damage
