"""Criteria prepared for a search: the query of the kernel, and the decision about a decoded message."""

import copy
from collections.abc import Sequence
from typing import Final, Self

from protocol.body_content import charset_of, decoder_of, text_with_replacements, unpack
from protocol.born_host import BornHost
from protocol.compression import Budget
from protocol.errors import ConfigError, StoreError
from protocol.mask import BODY, PROPERTIES, PROPERTY
from protocol.message import Message, decode_message
from protocol.message_layout import INT, MINIMUM_SIZE, SYS_FLAG_POSITION, fixed_struct
from protocol.sys_flag import SysFlag, has_inner_messages
from protocol.system_topics import LIGHT_PREFIX, light_queue_offset
from storage.filter.explanation import is_tagged_so
from storage.filter.expression import ExpressionFilter
from storage.filter.sql92 import parse
from storage.filter.tag import parse_tag_expression
from storage.patterns.condition import PatternCondition
from storage.patterns.mask import BoundedMask, mask_of
from storage.patterns.processes import PatternLimit, Stop
from storage.search.criteria import Criteria, SearchPlace

_TEXTS: Final = ("topic", "contains", "regex", "json_path", "tag", "key", "key_prefix")


class Unreadable(Exception):
    """A message may or may not match: its body cannot be decompressed or unpacked, or is no batch as it should be, or
    a pattern does not come to an end with it."""


class Matcher:
    """Decides about records; shared by threads, and made anew in another process. Checks the criteria when it is made.

    Raises ConfigError for a regular expression, a JSONPath, a charset or a host that is none, and for a condition that
    is empty or no text (an argument whose bytes are no UTF-8); FilterSyntaxError for what is no SQL92 or names no tag.
    Making it and deciding raise PatternsStopped where ``should_stop`` while a pattern is compiled or run.
    """

    def __init__(self, criteria: Criteria, should_stop: Stop = lambda: False, mask: BoundedMask | None = None) -> None:
        for name in _TEXTS:
            _check_text(name.replace("_", " "), getattr(criteria, name))
        self.criteria = criteria
        self._should_stop = should_stop
        self.mask = (mask or mask_of(criteria.masked)).for_one_run(should_stop)
        _refuse_hidden(criteria)
        self.charset = None if criteria.charset is None else charset_of(criteria.charset)
        self.tags = None if criteria.tag is None else parse_tag_expression(criteria.tag)
        self._text = None if self.charset is None else _text_of(criteria.contains)
        regex, json_path = criteria.regex, criteria.json_path
        self.regex = None if regex is None else PatternCondition("regex", regex, self.charset, should_stop)
        self.json = None if json_path is None else PatternCondition("json_path", json_path, self.charset, should_stop)
        self.expression = None if criteria.where is None else ExpressionFilter(parse(criteria.where))
        self.born_host = None if criteria.born_host is None else BornHost.parse(criteria.born_host)
        self._is_decided_by_body = criteria.place is SearchPlace.BODY and (
            self.regex is not None or self.json is not None
        )
        self._looks_into_body = self.json is not None or (
            criteria.place is not SearchPlace.PROPERTIES and (criteria.contains or criteria.regex) is not None
        )
        self._needs_body = self._looks_into_body or criteria.minimum_size > 0 or criteria.maximum_size is not None

    def for_one_run(self) -> Self:
        """Copy the matcher for one run, with its whole patience for patterns without end (`PATIENCE`)."""
        matcher = copy.copy(self)
        matcher.mask = self.mask.for_one_run(self._should_stop)
        matcher.regex = None if self.regex is None else self.regex.for_one_run()
        matcher.json = None if self.json is None else self.json.for_one_run()
        return matcher

    def matches_in(self, record: memoryview, physical_offset: int) -> list[Message]:
        """Return the matching messages of a record: itself, or those of its batch. Raises Unreadable, StoreError."""
        return self.matches_of(decode_message(record, physical_offset=physical_offset))

    def matches_of(self, message: Message) -> list[Message]:
        """The messages of a decoded record that match, as :meth:`matches_in`. Raises Unreadable."""
        if not self._has_header(message):
            return []
        try:
            messages = message.inner_messages()
        except StoreError as error:
            raise Unreadable(str(error)) from error
        if not messages:
            raise Unreadable(f"{message.physical_offset}: a batch without messages")
        budget = Budget()
        try:
            pairs = zip(self.mask.messages(messages), messages, strict=True)
            return [shown for shown, each in pairs if self._matches(shown, each, budget)]
        except PatternLimit as error:
            raise Unreadable("a pattern does not come to an end with it") from error

    @property
    def decides_by_body(self) -> bool:
        """Whether :meth:`ruled_out` may rule a record out."""
        return self._is_decided_by_body and not self.mask.changes_bodies

    def ruled_out(self, records: Sequence[memoryview]) -> list[bool]:
        """For each of some records of sound shape, whether its body, if it is the whole message's as it is, fits no
        condition on it.

        Decoding a record takes several times as long; the answer does not hang on its checksums.
        """
        ruled_out = [False] * len(records)
        bodies = {place: body for place, record in enumerate(records) if (body := _plain_body(record)) is not None}
        for condition in (self.regex, self.json):
            if condition is not None and bodies:
                try:
                    matches = condition.matches(list(bodies.values()))
                except PatternLimit:  # with one of them, which will be looked at alone
                    continue
                for place, does_match in zip(list(bodies), matches, strict=True):
                    if not does_match:
                        ruled_out[place] = True
                        del bodies[place]
        return ruled_out

    def _has_header(self, message: Message) -> bool:
        """Whether the fields that all messages of a record share match."""
        criteria = self.criteria
        if not criteria.begin_timestamp <= message.store_timestamp <= criteria.end_timestamp:
            return False
        topic = criteria.topic
        if topic is not None and topic.startswith(LIGHT_PREFIX):
            return light_queue_offset(message, topic) is not None
        return topic is None or message.topic == topic

    def _matches(self, shown: Message, message: Message, budget: Budget) -> bool:
        """Whether a message matches as it is shown; by a body that is hidden whole none does."""
        is_from = self.born_host is None or self.born_host.holds(shown)
        return is_from and self._has_names(shown) and self._has_content(shown, message, budget)

    def _has_names(self, message: Message) -> bool:
        criteria = self.criteria
        if self.tags is not None and not is_tagged_so(self.tags, message.tags):
            return False
        if criteria.key is not None and criteria.key != message.unique_key and criteria.key not in message.keys:
            return False
        prefix = criteria.key_prefix
        if prefix is not None and not any(key.startswith(prefix) for key in (*message.keys, message.unique_key or "")):
            return False
        return self.expression is None or self.expression.matches_commit_log(message.properties_bytes)

    def _has_content(self, message: Message, unmasked: Message, budget: Budget) -> bool:
        body: bytes | memoryview = b""
        is_hidden = self._needs_body and self.mask.hides_whole(unmasked)
        if self._needs_body:
            try:
                body = (unmasked if is_hidden else message).decoded_body(budget=budget)
            except StoreError as error:
                raise Unreadable(str(error)) from error
            largest = self.criteria.maximum_size
            if len(body) < self.criteria.minimum_size or (largest is not None and len(body) > largest):
                return False
        if self._says(message, None if is_hidden else body):
            return True
        if not self._looks_into_body or is_hidden:
            return False
        content = unpack(body, budget=budget)
        if content.packings and self._says(message, content.data):
            return True
        if content.error is not None:
            raise Unreadable(content.error)
        return False

    def _says(self, message: Message, body: bytes | memoryview | None) -> bool:
        """Whether body, packed or unpacked, and properties meet the conditions on them; None is hidden."""
        if self.criteria.contains is not None and not self._contains(self.criteria.contains, message, body):
            return False
        if self.regex is not None and not self._fits(self.regex, message, body):
            return False
        return self.json is None or (body is not None and any(self.json.matches([body])))

    def _contains(self, data: bytes, message: Message, body: bytes | memoryview | None) -> bool:
        place = self.criteria.place
        if body is not None and place is not SearchPlace.PROPERTIES and self._holds(data, body):
            return True
        return place is not SearchPlace.BODY and any(data in value for value in _values(message))

    def _holds(self, data: bytes, body: bytes | memoryview) -> bool:
        if self._text is None:
            return data in (body if isinstance(body, bytes) else bytes(body))
        return self._text in text_with_replacements(body, self.charset)

    def _fits(self, regex: PatternCondition, message: Message, body: bytes | memoryview | None) -> bool:
        place = self.criteria.place
        bodies = [body] if body is not None and place is not SearchPlace.PROPERTIES else []
        return any(regex.matches(bodies, list(message.properties.values()) if place is not SearchPlace.BODY else ()))


def _plain_body(record: memoryview) -> memoryview | None:
    """Return the body of a record if it is the body of one message as stored, else None."""
    if len(record) < MINIMUM_SIZE:
        return None
    (flags,) = INT.unpack_from(record, SYS_FLAG_POSITION)
    if flags & SysFlag.COMPRESSED or has_inner_messages(flags):
        return None
    start = fixed_struct(flags).size
    if start > len(record):  # a unit led to what is no record
        return None
    (length,) = INT.unpack_from(record, start - INT.size)
    body = record[start : start + max(length, 0)]
    return None if decoder_of(body) is not None else body


def _values(message: Message) -> list[bytes]:
    """The values of the properties as UTF-8; a lone surrogate, which Java may have, is what it was decoded from."""
    return [value.encode("utf-8", "surrogatepass") for value in message.properties.values()]


def _text_of(contains: bytes | None) -> str | None:
    """The text to look for in bodies of another charset than UTF-8; raises ConfigError for bytes that are no text."""
    try:
        return None if contains is None else contains.decode()
    except UnicodeDecodeError as error:
        raise ConfigError("contains: with a charset, expected a text, got bytes that are no UTF-8") from error


def _refuse_hidden(criteria: Criteria) -> None:
    """Raise ConfigError for a condition on a masked field; FilterSyntaxError for an expression that is wrong.

    What it hides a part of, by paths and patterns, is judged as it is shown.
    """
    mask, place = mask_of(criteria.masked), criteria.place
    if criteria.contains is not None or criteria.regex is not None:
        mask.refuse(*(name for name in (BODY, PROPERTIES) if place in (SearchPlace.ANY, SearchPlace(name))))
    if criteria.json_path is not None or criteria.minimum_size or criteria.maximum_size is not None:
        mask.refuse(BODY)
    if criteria.tag is not None:
        for tag in parse_tag_expression(criteria.tag).tags:
            mask.refuse_value("tags", tag)
    for key in (criteria.key, criteria.key_prefix):
        if key is not None:
            mask.refuse_value("keys", key)
            mask.refuse("unique_key")
    if criteria.born_host is not None:
        mask.refuse("born_host")
    if criteria.where is not None:
        mask.refuse(*(f"{PROPERTY}{name}" for name in parse(criteria.where).names))


def _check_text(name: str, value: str | bytes | None) -> None:
    """Raise ConfigError for a condition that is empty, or that no message can meet: bytes of an argument that are no
    UTF-8 come as half characters, which no text in a message holds."""
    if value in ("", b""):
        raise ConfigError(f"{name}: expected something, got nothing")
    try:
        if isinstance(value, str):
            value.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{name}: {value!r} is no text, its bytes are no UTF-8") from error
