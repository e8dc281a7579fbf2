"""Find messages by one text: an offset message id, a physical offset, a unique key, a key or a tag.

A text may be several of these at once, so all are tried, in this order, and each result is reported. Keys and tags
are looked up topic by topic, for the index hashes them together with the topic's name; the newest of a topic come
first.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from protocol.errors import ConfigError
from protocol.find_place import FindPlace
from protocol.mask import NO_MASK, Mask
from protocol.message import Message, decode_message, decode_messages
from protocol.message_id import MessageId
from protocol.question import (
    PAGE,
    FoundBy,
    KeyKind,
    Listing,
    Question,
    Reading,
    concerns_tags,
    other_host,
    other_topic,
    parts_of,
    places_of,
    reading_of,
    taken_apart,
)
from storage.log.absence import explain_absence
from storage.log.commit_log import CommitLog
from storage.query.search_report import SearchReport, joined_clauses, summed
from storage.search.origin_copies import copies_of, names_as_origin, say_copies
from storage.store.message_store import MessageStore


class Finder:
    """The state of one search.

    `place` is where it goes on, None when all was looked at; `searched` counts topics, once for each of `PARTS`.
    """

    def __init__(
        self,
        store: MessageStore,
        question: Question,
        topics: Sequence[str],
        *,
        is_time_up: Callable[[], bool] = lambda: False,
        refusal: Callable[[Message], str | None] = lambda _message: None,
        mask: Mask = NO_MASK,
    ) -> None:
        """Look for the text of `question` under `topics`, which are in order of their names. Waits for the disk.

        It ends after `maximum` messages, or when `is_time_up`, which is not asked before one topic was looked into, or
        one of its messages was masked: that may take long. `refusal` says why a message may not be shown, or None. By
        what `mask` hides of messages none is found.
        """
        self._store, self._question, self._topics = store, question, topics
        self._is_time_up, self._refusal, self._mask = is_time_up, refusal, mask
        self._parts = parts_of(question.reading)
        self._at_places = places_of(question.text, question.reading)
        self._listing = Listing(question)
        self._missing: dict[bool, str | None] = {}
        self.searched = 0
        self.place: FindPlace | None = None
        self._has_looked = self._has_masked = False
        self._search: SearchReport | None = None

    def _look_at_offset(self) -> None:
        """Take the text for an offset message id, then for a physical offset, where it may be that."""
        for kind, physical_offset, message_id in self._at_places:
            self._listing.read(kind, self._at(kind, physical_offset, message_id))

    def _at(self, kind: str, physical_offset: int, message_id: MessageId | None) -> str:
        """List the message at a physical offset; a note about it."""
        message, damage = message_at(self._store, physical_offset)
        if message is None:
            copies = self._copies_of(self._question.text) if message_id is not None else []
            self._listing.take_all(kind, copies)
            return f"no message there: {damage}{f'; copies of it: {say_copies(copies)}' if copies else ''}"
        if (refusal := self._refusal(message)) is not None:
            return refusal
        if elsewhere := other_topic(message, self._question.topic):
            return elsewhere
        self._listing.take(kind, map(self._mask.message, taken_apart(message)), damage)
        return "" if "store_host" in self._mask.fields else other_host(message, message_id)

    def _copies_of(self, message_id: str) -> list[Message]:
        """List the visible copies of a message that is gone, by their visible properties."""
        shown: list[Message] = []
        for message in copies_of(self._store, message_id, self._is_time_up):
            if len(shown) >= self._question.maximum:
                break
            if self._refusal(message) is None and not other_topic(message, self._question.topic):
                masked = self._mask.message(message)
                shown += [masked] if names_as_origin(masked, message_id) else []
        return shown

    def go_on(self, place: FindPlace | None = None) -> None:
        """Look the text up as an id, a key and a tag, from a place on, until there is no room or no time."""
        is_among_ids = place is None or place.kind is KeyKind.ANY
        self._listing = Listing(self._question, goes_on=not is_among_ids, passed=place.passed if place else 0)
        if place is None or is_among_ids:
            self._look_at_offset()
            if self._listing.is_cut:
                self.place = FindPlace.behind(self.found, place)
                return
            place = FindPlace()
        for parts in self._parts:
            reading = reading_of(parts)
            refused = self._refused(parts)
            self._listing.read(reading, refused, is_refused=bool(refused))
            if refused:
                self.searched += len(self._topics)
                continue
            for topic in self._topics:
                for kind in parts:
                    before = place.left_of(parts, kind, topic)
                    if before is None:
                        continue
                    if kind is not KeyKind.KEY and self._has_looked and self._is_time_up():
                        self.place = FindPlace(kind, topic, before)
                        return
                    if not self._search_topic(reading, kind, topic, before):
                        return
                self.searched += 1

    def _refused(self, parts: Sequence[KeyKind]) -> str:
        """Why nothing may be found by the text as a key or a tag; empty where something may."""
        try:
            if KeyKind.UNIQUE in parts:
                self._mask.refuse("unique_key")
            self._mask.refuse_value(parts[-1].field, self._question.text)
        except ConfigError as error:
            if self._question.reading is not None:
                raise
            return str(error)
        return ""

    @property
    def incomplete(self) -> str | None:
        """What may be missing; of tags where nothing else was found, or the text is one."""
        of_tags = concerns_tags([each.kind for each in self.found])
        return joined_clauses((self._missing.get(False), self._missing.get(True) if of_tags else None))

    @property
    def details(self) -> str:
        """The search for keys and tags as a sentence without a full stop; "" if nothing was searched."""
        return "" if self._search is None else self._search.sentence()

    @property
    def found(self) -> list[FoundBy]:
        """The messages that are listed, each with what it was found by."""
        return self._listing.found

    @property
    def readings(self) -> list[Reading]:
        """The kinds that the text was tried as, each with the number of messages found."""
        return self._listing.readings

    @property
    def is_cut(self) -> bool:
        """Whether there are more messages than the question asks for."""
        return self._listing.is_cut

    def _search_topic(self, reading: str, kind: KeyKind, topic: str, before: int) -> bool:
        """Look one topic's messages up; False if not all of them fit into the answer."""
        self._has_looked = True
        while True:
            asked = msgspec.structs.replace(
                self._question,
                topic=topic,
                kind=kind,
                maximum=min(self._listing.room + 1, PAGE),
                before_physical_offset=before,
            )
            answer = self._store.query(asked)
            is_tag = kind is KeyKind.TAG
            self._missing[is_tag] = joined_clauses((self._missing.get(is_tag), answer.incomplete))
            self._search = answer.search if self._search is None else summed((self._search, answer.search))
            if answer.refusal:
                self._listing.read(reading, answer.refusal)
            for message in reversed(list(decode_messages(answer.records))):  # newest first
                is_late = self._has_masked and self._is_time_up()
                if is_late or not self._listing.take(kind.words, self._shown(kind, asked.messages_in(message))):
                    self.place = FindPlace(kind, topic, before, self._listing.passed)
                    return False
                self._has_masked = bool(self._mask)
                before = message.physical_offset
            if answer.cursor is None:
                return True
            before = answer.cursor

    def _shown(self, kind: KeyKind, messages: Sequence[Message]) -> Iterator[Message]:
        """Return the visible messages of a record, masked, the newest first."""
        for message in reversed(messages):
            if self._refusal(message) is None:
                shown = self._mask.message(message)
                # What has the text may be hidden together with what stands beside it.
                is_named = not self._mask or self._question.text in (*shown.keys, shown.unique_key)
                if is_named or kind is KeyKind.TAG:
                    yield shown


def message_at(store: MessageStore, physical_offset: int) -> tuple[Message | None, str | None]:
    """Return the message at a physical offset and the damage of its record, None for an intact one; or None and why."""
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
