"""Questions, readings of a text, and answers: the words by which every surface asks a store for messages.

A text that names messages may be several things at once:

| text | what it may be |
|---|---|
| 32 or 56 hex digits, with a port that can be | an offset message id (:mod:`protocol.message_id`) |
| digits of a number up to 2^63 - 1, behind any zeros, as files of the log are named | a physical offset |
| any | a unique key, a key, a tag |

Offsets and unique keys are ids: they name messages whenever these were stored, so times narrow keys and tags alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import IntEnum
from itertools import groupby
from typing import Final, NamedTuple, overload

import msgspec

from protocol.errors import ConfigError, StoreError
from protocol.host_address import HostAddress
from protocol.message import Message
from protocol.message_id import MessageId, decode_message_id, is_offset_message_id_candidate
from protocol.sys_flag import is_packed_batch
from protocol.system_topics import is_known_by

LARGEST: Final = 2**63 - 1
"""The largest physical offset and the last of all times, in ms."""

PAGE: Final = 64
"""Matches asked for at once; a broker gives no more."""

ANSWER_BYTES: Final = 15 * 1024 * 1024
"""Most bytes of records in one answer by default: less than the 16 MiB that clients accept in a frame."""

OFFSET_ID: Final = "offset message id"
PHYSICAL_OFFSET: Final = "physical offset"

NOT_FOUND_BY_OFFSET: Final = "can not find message by the offset"
"""How a broker begins the remark that no message starts at a physical offset."""


class KeyKind(IntEnum):
    """The part of a message that a text is compared with: KEYS or the unique key, only one of them, or the tag.

    The numbers are those of the kernel that looks keys up.
    """

    ANY = 0
    KEY = 1
    UNIQUE = 2
    TAG = 3

    @property
    def words(self) -> str:
        """What a message found by this part was found by, and in `ANY` what the text was taken for."""
        return _WORDS[self]

    @property
    def field(self) -> str:
        """What a mask calls this part, which is no one part in `ANY`."""
        return _FIELDS[self]


_WORDS: Final = ("unique key or key", "key", "unique key", "tag")
_FIELDS: Final = ("", "keys", "unique_key", "tags")

READINGS: Final = (OFFSET_ID, PHYSICAL_OFFSET, *(kind.words for kind in KeyKind))
"""All that a text may be taken for alone."""

PARTS: Final = ((KeyKind.UNIQUE, KeyKind.KEY), (KeyKind.TAG,))
"""What texts are compared with, topic by topic: first one part of messages in all topics, then the other."""

KIND_OF_LETTER: Final = {"K": KeyKind.KEY, "U": KeyKind.UNIQUE, "T": KeyKind.TAG}
"""indexType on the wire; absent, empty or anything else looks up keys and unique keys alike, as a broker does."""

KIND_OF_WORDS: Final = {kind.words: kind for kind in KeyKind}
"""The part of messages by what is found by it."""

_LETTERS: Final = {kind: letter for letter, kind in KIND_OF_LETTER.items()}


class Question(msgspec.Struct, gc=False):
    """A question for the newest `maximum` messages of a topic that have a text as a key, unique key or tag.

    Their store times are from `begin_timestamp` to `end_timestamp`, in ms and inclusive; for unique keys times do not
    count. Only records that start below `before_physical_offset`, the cursor of an earlier answer, are found. An answer
    has at most `maximum_bytes` of records; the oldest are left out first. `copies`: also those copies of the topic's
    messages that a broker keeps under topics of its own. Other brokers than ours ignore cursor and copies. `reading` is
    the one of `READINGS` for which alone a text is taken that may be several.
    """

    topic: str
    text: str
    kind: KeyKind = KeyKind.ANY
    maximum: int = PAGE
    begin_timestamp: int = 0
    end_timestamp: int = LARGEST
    before_physical_offset: int = LARGEST
    maximum_bytes: int = ANSWER_BYTES
    copies: bool = False
    reading: str | None = None

    @classmethod
    def of_text(
        cls, text: str, topic: str | None, begin: int, end: int, maximum: int, reading: str | None = None
    ) -> "Question":
        """A question for what a text names, whatever it is, without blanks around it; no topic means all of them.

        Times are in ms; with a `reading` the text is taken for that alone. Raises ConfigError for a text of which
        nothing is left, and for a reading that is none.
        """
        if not text.strip():
            raise ConfigError("the text to find is empty")
        if reading is not None and reading not in READINGS:
            raise ConfigError(f"{reading!r} is nothing that a text is taken for: expected {', '.join(READINGS)}")
        return cls(topic or "", text.strip(), KeyKind.ANY, maximum, begin, end, reading=reading)

    @property
    def is_narrowed(self) -> bool:
        """Whether messages are left out because of when they were stored."""
        return self.kind is not KeyKind.UNIQUE and (self.begin_timestamp > 0 or self.end_timestamp < LARGEST)

    def is_answered_by(self, message: Message) -> bool:
        """Whether a message is one that is asked for, wherever it lies."""
        if self.topic != message.topic and not (self.copies and is_known_by(message, self.topic)):
            return False
        return self.names(message, self.kind)

    def names(self, message: Message, kind: KeyKind) -> bool:
        """Whether a message has the text as a part of its own, and was stored in the time, in whatever topic."""
        if kind is KeyKind.UNIQUE:
            return message.unique_key == self.text
        if not self.begin_timestamp <= message.store_timestamp <= self.end_timestamp:
            return False
        if kind is KeyKind.TAG:
            return message.tags == self.text
        return self.text in message.keys or (kind is KeyKind.ANY and message.unique_key == self.text)

    def messages_in(self, record: Message) -> list[Message]:
        """The messages of a record that was found: itself, or those of a batch that are asked for.

        All of them where the record itself is what is asked for, by the id of the whole batch; itself where it cannot
        be taken apart, which one that is compressed as a whole may be found for only by what the record itself says.
        """
        messages = taken_apart(record)
        if messages == [record]:
            return messages if not is_packed_batch(record.sys_flag) or self.is_answered_by(record) else []
        named = [message for message in messages if self.is_answered_by(message)]
        return named or (messages if self.is_answered_by(record) else [])

    def needle(self) -> tuple[bytes, int, int]:
        """Return the text that is hashed, in UTF-8, the length of its topic, and the position of its key."""
        infix = "#T#" if self.kind is KeyKind.TAG else "#"
        try:
            topic = len(self.topic.encode())
            return f"{self.topic}{infix}{self.text}".encode(), topic, topic + len(infix)
        except UnicodeEncodeError:  # a lone surrogate, which no stored text can hold
            topic = len(self.topic.encode("utf-8", "surrogatepass"))
            whole = f"{self.topic}{infix}{self.text}"
            return whole.encode("utf-8", "surrogatepass"), topic, topic + len(infix)

    def ext_fields(self) -> dict[str, str]:
        """The header fields of QUERY_MESSAGE; index type and unique flag as clients of any version send them."""
        fields = {
            "topic": self.topic,
            "key": self.text,
            "maxNum": str(self.maximum),
            "beginTimestamp": str(self.begin_timestamp),
            "endTimestamp": str(self.end_timestamp),
            "_UNIQUE_KEY_QUERY": "true" if self.kind is KeyKind.UNIQUE else "false",
        }
        if self.kind is not KeyKind.ANY:
            fields["indexType"] = _LETTERS[self.kind]
        if self.before_physical_offset < LARGEST:
            fields["lastKey"] = str(self.before_physical_offset)
        return fields | {"rocketlensCopies": "true"} if self.copies else fields


class Reading(msgspec.Struct, frozen=True):
    """One thing that a text was taken for, as a physical offset or a key: how many messages it names, and a note."""

    kind: str
    found: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Answer(Sequence[Message]):
    """The messages that were found: a sequence which explains itself where it is empty.

    >>> found = store.query("TopicTest", key="nosuchkey")
    >>> len(found)
    0
    >>> found.reason
    'no message of topic TopicTest has the key nosuchkey'
    >>> found.details
    'searched 10 index files, walked ...'
    """

    messages: tuple[Message, ...] = ()
    """Ascending by physical offset; those of several brokers by store time.

    Those that a text names: first by such an id, then by topic, the newest of each first. Of a queue in its order.
    """
    cursor: int | None = None
    """Where older matches go on that were left out; None where none were."""
    notes: tuple[str, ...] = ()
    """Sentences: what may be missing, and what is odd about something found."""
    reason: str = ""
    """Why nothing was found; empty where something was."""
    _: KW_ONLY
    details: str = field(default="", repr=False)
    """What was searched in vain: how many index files and entries, and which part of the log they cover."""
    kinds: tuple[str, ...] = field(default=(), repr=False)
    """What each message that a text names was found by: its ``unique key``, a ``key``, its ``tag``, or an id."""
    topics: tuple[str, ...] = field(default=(), repr=False)
    """The topics whose name holds the text."""
    readings: tuple[Reading, ...] = field(default=(), repr=False)
    """All that the text was taken for, in this order, whether a message was found or not."""
    outcomes: tuple[str, ...] = field(default=(), repr=False)
    """How the transaction of each half message that a text names ended, as `life` says it; empty for other messages."""
    stores: tuple[str, ...] = field(default=(), repr=False)
    """The directory of each message's store, where several stores are asked."""
    next_page: str | None = field(default=None, repr=False)
    """Where the list of what a text names goes on, as the `cursor` of `find`; None at its end."""
    next_offset: int = field(default=0, repr=False)
    """The queue offset to pull from next; it moves on also where a filter let nothing through."""
    min_offset: int = field(default=0, repr=False)
    """The first queue offset that is still there in a queue that was pulled."""
    max_offset: int = field(default=0, repr=False)
    """The queue offset that the queue's next message will have: it is read to its end once `next_offset` is this."""

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    @overload
    def __getitem__(self, number: int) -> Message: ...

    @overload
    def __getitem__(self, number: slice) -> tuple[Message, ...]: ...

    def __getitem__(self, number: int | slice) -> Message | tuple[Message, ...]:
        return self.messages[number]


class FoundBy(NamedTuple):
    """A message, the meaning of the text that names it, and what is wrong with its record, if anything is."""

    message: Message
    kind: str
    damage: str | None = None


def concerns_tags(kinds: Sequence[str]) -> bool:
    """Whether an answer would be another one with more tags: nothing was found so far, or some by their tag."""
    return not kinds or KeyKind.TAG.words in kinds


class Listing:
    """What of the messages that a text names is listed: each once, by the first thing it is found by, `maximum` of all.

    Messages are given in the order of the list, those of one record together: with one of a batch all of it are listed,
    because a cursor leads to records. What answers a question by itself decides nothing of this, so that a store, a
    server, the page and several stores list the same and count the same.
    """

    def __init__(self, question: Question, *, goes_on: bool = False, passed: int = 0) -> None:
        """List nothing yet of what the text of `question` names; where an earlier page stopped if it `goes_on`.

        The first `passed` messages are not listed again.
        """
        self._question, self._goes_on = question, goes_on
        self.passed = passed
        """Messages that are still to be passed over."""
        self._read: dict[str, tuple[Sequence[KeyKind], str]] = {}
        self._places: set[tuple[HostAddress, int, int, int]] = set()
        self.found: list[FoundBy] = []
        self.is_cut = False
        """Whether there are more than were asked for."""

    @property
    def room(self) -> int:
        """How many more messages are listed."""
        return max(self._question.maximum - len(self.found), 0)

    def read(self, reading: str, note: str = "", *, is_refused: bool = False) -> None:
        """Take the text for something, by which nothing may be found if it `is_refused`; the last note stays."""
        kinds = () if is_refused else [kind for parts in parts_of(reading) for kind in parts]
        self._read[reading] = kinds, note or self._read.get(reading, ((), ""))[1]

    def take_all(self, kind: str, messages: Iterable[Message]) -> bool:
        """List the messages of some records until the list is full; False where it is too short for them."""
        return all(self.take(kind, record) for _, record in groupby(messages, record_of))

    def take(self, kind: str, messages: Iterable[Message], damage: str | None = None) -> bool:
        """List the messages of one record; False, and nothing is listed, where the list is full."""
        new = {place: each for each in messages if not self._is_listed(kind, place := place_of(each), each)}
        if self.passed > 0:
            self._places.update(new)
            self.passed -= len(new)
            return True
        if new and not self.room:
            self.is_cut = True
            return False
        self._places.update(new)
        self.found += [FoundBy(each, kind, damage) for each in new.values()]
        return True

    def _is_listed(self, kind: str, place: tuple[HostAddress, int, int, int], message: Message) -> bool:
        """Whether a message is listed by something else that the text was taken for, be it on an earlier page."""
        if place in self._places or not self._goes_on:
            return place in self._places
        if message.physical_offset in (at for _, at, _ in places_of(self._question.text, self._question.reading)):
            return True
        earlier = [part for kinds, _ in self._read.values() for part in kinds]
        return any(self._question.names(message, part) for part in earlier[: earlier.index(KIND_OF_WORDS[kind])])

    @property
    def readings(self) -> list[Reading]:
        """What the text was taken for, each with the number of messages in the list that it names."""
        return [
            Reading(reading, sum(self._is_named(each, reading, kinds) for each in self.found), note)
            for reading, (kinds, note) in self._read.items()
        ]

    def _is_named(self, found: FoundBy, reading: str, kinds: Sequence[KeyKind]) -> bool:
        return found.kind == reading or any(self._question.names(found.message, kind) for kind in kinds)


def place_of(message: Message) -> tuple[HostAddress, int, int, int]:
    """What tells a message of one broker from those of others, which may have the same address, each on its machine.

    And those of one batch from one another: the last number.
    """
    return *record_of(message), message.queue_offset


def record_of(message: Message) -> tuple[HostAddress, int, int]:
    """What tells the record of a message from those of others."""
    return message.store_host, message.physical_offset, message.store_timestamp


def newest_of(messages: Sequence[Message], maximum: int) -> Sequence[Message]:
    """The newest of some messages in the order of the log, with one of a batch all of it: a cursor leads to records."""
    first = max(len(messages) - maximum, 0)
    while 0 < first < len(messages) and record_of(messages[first - 1]) == record_of(messages[first]):
        first -= 1
    return messages[first:]


def taken_apart(record: Message) -> list[Message]:
    """The messages of a batch in one record; any other message, and what cannot be taken apart, by itself."""
    try:
        return record.inner_messages() or [record]
    except StoreError:
        return [record]


def physical_offset_of(text: str) -> int | None:
    """The physical offset that a text may be, None for one that is none."""
    digits = text.lstrip("0") or text[-1:]
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > len(str(LARGEST)):
        return None
    return number if (number := int(digits)) <= LARGEST else None


def message_id_of(text: str) -> MessageId | None:
    """The parts of the offset message id that a text may be, None for one that is none."""
    return decode_message_id(text) if is_offset_message_id_candidate(text) else None


def parts_of(reading: str | None) -> tuple[tuple[KeyKind, ...], ...]:
    """Return those `PARTS` with which a text of one reading is compared; no parts for a place in the log."""
    if reading is None:
        return PARTS
    if reading == KeyKind.ANY.words:
        return PARTS[:1]
    return tuple((kind,) for parts in PARTS for kind in parts if kind.words == reading)


def reading_of(parts: Sequence[KeyKind]) -> str:
    """What a text is taken for that is compared with some parts."""
    return KeyKind.ANY.words if len(parts) > 1 else parts[0].words


def places_of(text: str, reading: str | None = None) -> list[tuple[str, int, MessageId | None]]:
    """The physical offsets that a text may name: as what, where, and the id that says so, None for a bare offset.

    With a `reading` only that one.
    """
    message_id, physical_offset = message_id_of(text), physical_offset_of(text)
    places: list[tuple[str, int, MessageId | None]] = []
    if message_id is not None:
        places.append((OFFSET_ID, message_id.physical_offset, message_id))
    if physical_offset is not None:
        places.append((PHYSICAL_OFFSET, physical_offset, None))
    return [each for each in places if reading in (None, each[0])]


def other_topic(message: Message, topic: str | None) -> str:
    """A clause that the message at a place is none of the topic that is asked about; empty where it is one."""
    return "" if not topic or is_known_by(message, topic) else f"the message there is one of topic {message.topic}"


def other_host(message: Message, message_id: MessageId | None) -> str:
    """A clause that another host stored a message than its id names, as with archives that moved; empty if not."""
    if message_id is None or message.store_host == message_id.address:
        return ""
    return f"the id names {message_id.address}, the message there was stored by {message.store_host}"
