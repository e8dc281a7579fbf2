"""What callers pass, checked and put into the forms that stores and brokers are asked in."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypedDict

from protocol.errors import ConfigError, StoreError
from protocol.message import Message
from protocol.question import LARGEST, KeyKind, Question
from protocol.system_topics import queue_offset_in
from storage.amounts import counted
from storage.names import names_holding, similar_names
from storage.times import LARGEST_MILLISECONDS, parse_time, to_timestamp

if TYPE_CHECKING:
    from storage.filter.base import MessageFilter
    from storage.search.criteria import Criteria

Time: TypeAlias = int | str | datetime
"""Milliseconds since 1970, a text in a form of :mod:`storage.times` (ISO 8601, -1h, yesterday 14:00), or a datetime.

Without a zone it is this machine's local time.
"""

MOST_FOUND: Final = 50
"""Messages that one text names, unless more are asked for."""

MOST_PULLED: Final = 32
"""Messages of one pull, as brokers cap them."""


def never() -> bool:
    """Do not stop a search."""
    return False


def unreported(_done: int) -> None:
    """Take no notice of how far something is."""


def time_of(value: Time | None, default: int) -> int:
    """A time in ms since 1970; raises ConfigError."""
    if value is None:
        return default
    if isinstance(value, datetime):
        return to_timestamp(value)
    # A small number is no year here; one of which a text would not be milliseconds is not either.
    is_plain = isinstance(value, int) and 0 <= value <= LARGEST_MILLISECONDS
    return int(value) if is_plain else parse_time(str(value))


def times_of(begin: Time | None, end: Time | None, earliest: int = 0) -> tuple[int, int]:
    """Two times in ms, `earliest` and the last of all times where there are none; raises ConfigError."""
    first, last = time_of(begin, earliest), time_of(end, LARGEST)
    if first > last:
        raise ConfigError(f"begin {begin} is after end {end}")
    return first, last


def stored_between(begin: Time | None, end: Time | None) -> tuple[int, int]:
    """Two times in ms between which messages were stored, all that can be where there are none; raises ConfigError."""
    return times_of(begin, end, -LARGEST - 1)


def id_of(value: int | str) -> str:
    """An id as text; raises ConfigError for an empty one."""
    text = str(value)
    if not text:
        raise ConfigError("the id is empty")
    return text


class SearchOptions(TypedDict, total=False):
    """The keyword arguments of a search besides its topic; all conditions that are given must hold."""

    begin: Time | None
    end: Time | None
    contains: str | bytes | None
    regex: str | None
    place: str
    json_path: str | None
    where: str | None
    tag: str | None
    key: str | None
    key_prefix: str | None
    born_host: str | None
    size: str | None
    charset: str | None
    limit: int | None
    cursor: str | None


def check_names(options: Mapping[str, object], known: type) -> None:
    """Raise TypeError for a keyword argument that a class of options does not have, as Python does."""
    for name in options:
        if name not in known.__annotations__:
            raise TypeError(f"unexpected keyword argument {name!r}; known are {', '.join(known.__annotations__)}")


def key_question(
    topic: str,
    texts: Mapping[KeyKind, str | None],
    begin: Time | None,
    end: Time | None,
    maximum: int,
    cursor: int | None,
    *,
    copies: bool,
) -> Question:
    """A question for messages by a key, a unique key or a tag, one of which has a text; raises ConfigError."""
    given = [(kind, text) for kind, text in texts.items() if text is not None]
    if len(given) != 1:
        raise ConfigError("expected exactly one of key, unique_key and tag")
    ((kind, text),) = given
    if cursor is not None and not 0 <= cursor <= LARGEST:
        raise ConfigError(f"cursor {cursor}: expected the cursor of an earlier answer")
    before = LARGEST if cursor is None else cursor
    return Question(topic, text, kind, check_maximum(maximum), *times_of(begin, end), before, copies=copies)


def text_question(
    text: str, topic: str | None, begin: Time | None, end: Time | None, maximum: int, kind: str | None
) -> Question:
    """A question for what a text names; raises ConfigError as `Question.of_text`, and for wrong times or maximum."""
    return Question.of_text(text, topic, *times_of(begin, end), check_maximum(maximum), kind)


def nothing_with(question: Question) -> str:
    """A sentence that no message has the key, unique key or tag of a question."""
    sentence = f"no message of topic {question.topic} has the {question.kind.words} {question.text}"
    if question.before_physical_offset < LARGEST:
        sentence += f" below physical offset {question.before_physical_offset}"
    return f"{sentence} and was stored in this time" if question.is_narrowed else sentence


def nothing_named(text: str, topic: str, names: Sequence[str]) -> str:
    """A sentence that a text names no message in a topic, or in all, with the topics that it may mean."""
    sentence = f"nothing is named {text} in {counted(len(names), 'topic')}"
    if topic:
        return f"nothing is named {text} in topic {topic}"
    proposed = [] if names_holding(names, text) else similar_names(text, names)
    return f"{sentence}; did you mean topic {' or '.join(proposed)}?" if proposed else sentence


def check_maximum(maximum: int) -> int:
    """Return how many messages are wanted; raises ConfigError for fewer than one."""
    if maximum < 1:
        raise ConfigError(f"maximum {maximum}: expected 1 or more")
    return maximum


class Subscription(NamedTuple):
    """What a consumer wants of a queue: an expression and its type, and whether it keeps a message it was sent."""

    text: str
    kind: str
    keeps: Callable[[Message], bool]


def subscription(tag: str | None, sql: str | None) -> Subscription:
    """A subscription by tags, by SQL92, or to everything; raises ConfigError, and FilterSyntaxError."""
    from storage.filter.explanation import is_tagged_so
    from storage.filter.expression import SQL92_TYPE
    from storage.filter.sql92 import parse
    from storage.filter.tag import TAG_TYPE, parse_tag_expression

    if tag is not None and sql is not None:
        raise ConfigError("tag and sql exclude each other")
    if sql is not None:
        parse(sql)
        return Subscription(sql, SQL92_TYPE, lambda _message: True)
    expression = parse_tag_expression(tag)
    return Subscription(expression.text, TAG_TYPE, lambda message: is_tagged_so(expression, message.tags))


def filter_of(wanted: Subscription) -> "MessageFilter":
    """A subscription as a store applies it."""
    from storage.filter.expression import SQL92_TYPE, ExpressionFilter
    from storage.filter.sql92 import parse
    from storage.filter.tag import TagFilter, parse_tag_expression

    if wanted.kind == SQL92_TYPE:
        return ExpressionFilter(parse(wanted.text))
    return TagFilter(parse_tag_expression(wanted.text))


def apart(records: Iterable[Message], topic: str, offset: int) -> tuple[list[Message], list[str]]:
    """The messages from a queue offset on in some records of a queue, and what is odd about the records.

    A batch in one record becomes its messages.
    """
    messages: list[Message] = []
    notes: list[str] = []
    for outer in records:
        try:
            inner = outer.inner_messages()
        except StoreError as error:
            inner = [outer]
            notes.append(f"the batch at physical offset {outer.physical_offset} cannot be taken apart: {error}")
        messages += [each for each in inner if queue_offset_in(each, topic) >= offset]
    return messages, notes


def pulled(
    records: Iterable[Message], topic: str, offset: int, wanted: Subscription
) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """The messages from a queue offset on that a consumer gets of some records, and what is odd about the records."""
    messages, notes = apart(records, topic, offset)
    return tuple(each.detached() for each in messages if wanted.keeps(each)), tuple(notes)


def check_place(queue_id: int, offset: int) -> None:
    """Raise ConfigError for the place of no queue: a queue id has 32 bits, a queue offset 64."""
    for name, number, bits in (("queue_id", queue_id, 32), ("offset", offset, 64)):
        if not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise ConfigError(f"{name} {number}: expected a number of {bits} bits")


def criteria_of(topic: str | None, options: SearchOptions) -> "Criteria":
    """What a search looks for; raises ConfigError and TypeError."""
    from storage.search.criteria import EARLIEST, Criteria, SearchPlace, parse_size_range

    check_names(options, SearchOptions)
    first, last = times_of(options.get("begin"), options.get("end"), EARLIEST)
    size, place, contains = options.get("size"), options.get("place", SearchPlace.BODY.value), options.get("contains")
    smallest, largest = (0, None) if size is None else parse_size_range(size)
    if place not in {each.value for each in SearchPlace}:
        raise ConfigError(f"place {place!r}: expected {', '.join(each.value for each in SearchPlace)}")
    return Criteria(
        begin_timestamp=first,
        end_timestamp=last,
        contains=contains.encode("utf-8", "surrogateescape") if isinstance(contains, str) else contains,
        place=SearchPlace(place),
        minimum_size=smallest,
        maximum_size=largest,
        topic=topic,
        regex=options.get("regex"),
        json_path=options.get("json_path"),
        where=options.get("where"),
        tag=options.get("tag"),
        key=options.get("key"),
        key_prefix=options.get("key_prefix"),
        born_host=options.get("born_host"),
        charset=options.get("charset"),
    )


LONGEST_PART: Final = 128
"""Characters of a text that may be a part of a list."""

_ID: Final = re.compile(r"[0-9A-Fa-f]{32,}")
_LIST: Final = re.compile(r"[\[\](),;]")


def words_of(text: str) -> list[str]:
    """The keys that a text may stand for, which looks like a list or holds blanks: as they are stored, and bare."""
    pieces = text.split()
    bare = _LIST.sub(" ", text).split()
    return list(dict.fromkeys((*bare, *pieces))) if len(bare) > 1 or bare != [text] else [text]


def forms_in_list(text: str) -> list[str]:
    """The keys that a text is stored as where KEYS was a list, as Java writes one, and RocketMQ split it at its blanks.

    None for what looks like an id, and is none of a list of keys.
    """
    return [] if len(text) > LONGEST_PART or _ID.fullmatch(text) else [f"[{text},", f"{text},", f"{text}]", f"[{text}]"]
