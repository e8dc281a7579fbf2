"""One box for anything: an offset message id, a physical offset, a unique key, a key, a tag, or a topic's name.

A text may be several of these at once, so all are tried, in this order, and the answer says what each came to. Keys and
tags are looked up topic by topic, for the index hashes them together with the topic's name; the newest of a topic come
first. Offsets and ids are looked up for the first answer only; its cursor goes on with keys and tags.
"""

from collections.abc import Iterator
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from broker.web.api.cursors import decode_cursor, encode_cursor
from broker.web.api.endpoint import LARGEST, Cursor, Limit, Milliseconds, Question, Time, Topic
from broker.web.api.errors import ApiError
from broker.web.api.messages import MessageLine, line_of, read_message
from broker.web.api.request_context import RequestContext
from protocol.message import decode_messages
from protocol.message_id import decode_message_id, is_offset_message_id_candidate
from storage.query.lookup_call import KeyKind, KeyQuery

MOST_TOPICS: Final = 20
"""Topics whose names hold the text that are told."""

KINDS: Final = {"key": KeyKind.ANY, "tag": KeyKind.TAG}
LONGEST: Final = 4096
LONGEST_OFFSET: Final = len(str(LARGEST))


class FindQuestion(Question):
    """What to find, in one topic or in all; stored between two times, which unique keys do not mind."""

    text: Annotated[str, Meta(min_length=1, max_length=LONGEST)]
    topic: Topic | None = None
    begin: Time = 0
    end: Time = LARGEST
    limit: Limit = 50
    milliseconds: Milliseconds = 1000
    cursor: Cursor | None = None


class Tried(msgspec.Struct, rename="camel", kw_only=True):
    """One thing that the text may be: how many messages this answer has of it, and what else is to be said."""

    kind: str
    found: int
    note: str = ""


class FindAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """What was found, what was tried, and topics whose name holds the text; `topics_left_out` are more of these.

    `cursor` is there when not all was looked at: because of the limit, or of the time. `incomplete` says what may be
    missing even so.
    """

    messages: list[MessageLine]
    tried: list[Tried]
    topics: list[str]
    topics_left_out: int
    topics_searched: int
    topics_to_search: int
    incomplete: str | None
    cursor: str | None


class FindPlace(NamedTuple):
    """Where a search goes on: what for, from which topic on, below which physical offset there."""

    kind: Literal["key", "tag"] = "key"
    topic: str = ""
    before: int = LARGEST


def find(asked: RequestContext, question: FindQuestion) -> FindAnswer:
    """Find the messages that any id, key or tag names, and say what it was taken for."""
    asked.allow(question.milliseconds)
    if question.topic is not None:
        asked.require_right(question.topic)
    names = asked.topics() if question.topic is None else [question.topic]
    text = question.text.strip()
    search = _Search(asked, question, text, names)
    if question.cursor is None:
        search.look_at_offset()
        search.go_on(FindPlace())
    else:
        search.go_on(decode_cursor(question.cursor, FindPlace))
    named = [name for name in names if text.lower() in name.lower()] if question.cursor is None else []
    return FindAnswer(
        messages=search.messages,
        tried=list(search.tried.values()),
        topics=named[:MOST_TOPICS],
        topics_left_out=max(len(named) - MOST_TOPICS, 0),
        topics_searched=search.searched,
        topics_to_search=len(names) * len(KINDS),
        incomplete=search.incomplete,
        cursor=None if search.place is None else encode_cursor(search.place),
    )


class _Search:
    """The state of one answer; `place` is where the next one goes on, None when all was looked at."""

    def __init__(self, asked: RequestContext, question: FindQuestion, text: str, names: list[str]) -> None:
        self._asked, self._question, self._text, self._names = asked, question, text, names
        self.messages: list[MessageLine] = []
        self.tried: dict[str, Tried] = {}
        self.incomplete: str | None = None
        self.searched = 0
        self.place: FindPlace | None = None
        self._has_looked = False

    def look_at_offset(self) -> None:
        """Take the text for an offset message id, then for a physical offset."""
        text = self._text
        if is_offset_message_id_candidate(text):
            message_id = decode_message_id(text)
            host = str(message_id.address)
            self._look_at("offset message id", message_id.physical_offset, host)
        digits = text.lstrip("0") or "0"
        if text.isascii() and text.isdecimal() and len(digits) <= LONGEST_OFFSET and int(digits) <= LARGEST:
            self._look_at("physical offset", int(digits), None)

    def _look_at(self, kind: str, physical_offset: int, host: str | None) -> None:
        tried = self.tried.setdefault(kind, Tried(kind=kind, found=0))
        try:
            message, damage = read_message(self._asked, physical_offset)
        except ApiError as error:
            tried.note = str(error)
            return
        if self._question.topic not in (None, message.topic):
            tried.note = f"the message there is one of topic {message.topic}"
            return
        tried.found = 1
        if host is not None and host != str(message.store_host):
            tried.note = f"the id names {host}, the message there was stored by {message.store_host}"
        self.messages.append(line_of(message, kind, damage))

    def go_on(self, place: FindPlace) -> None:
        """Look the text up as a key and as a tag, from a place on, until there is no room or no time."""
        names = list(self._names)
        for kind in ("key", "tag"):
            self.tried.setdefault(kind, Tried(kind="unique key or key" if kind == "key" else kind, found=0))
            if kind == "key" and place.kind == "tag":
                self.searched += len(names)
                continue
            for name in names:
                if place.kind == kind and name < place.topic:
                    self.searched += 1
                    continue
                before = place.before if (kind, name) == place[:2] else LARGEST
                if self._asked.is_time_up and self._has_looked:
                    self.place = FindPlace(kind, name, before)
                    return
                if not self._search_topic(kind, name, before):
                    return
                self.searched += 1

    def _search_topic(self, kind: Literal["key", "tag"], topic: str, before: int) -> bool:
        """Look one topic's messages up; False where there was no room for all of them."""
        self._has_looked = True
        room = self._question.limit - len(self.messages)
        query = KeyQuery(
            topic=topic,
            key=self._text,
            kind=KINDS[kind],
            maximum=min(room, 64) if room > 0 else 1,
            begin_timestamp=self._question.begin,
            end_timestamp=self._question.end,
            before_physical_offset=before,
        )
        answer = self._asked.store.query(query)
        self.incomplete = self.incomplete or answer.incomplete
        if answer.refusal:
            self.tried[kind].note = answer.refusal
        if answer.count and room <= 0:
            self.place = FindPlace(kind, topic, before)
            return False
        for line in self._lines(kind, answer.records):
            self.messages.append(line)
            self.tried[kind].found += 1
        if answer.truncated and answer.count:
            return self._search_topic(kind, topic, answer.physical_offsets[0])
        return True

    def _lines(self, kind: str, records: bytes) -> Iterator[MessageLine]:
        """The messages of an answer, newest first."""
        for message in filter(self._asked.may_read_message, reversed(list(decode_messages(records)))):
            by = "unique key" if kind == "key" and message.unique_key == self._text else kind
            yield line_of(message, by)
