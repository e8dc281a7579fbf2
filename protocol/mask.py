"""Masks of messages: they hide whole fields, places in bodies that are JSON, and whatever a pattern matches.

A rule is a text, one of

| rule | what it hides |
|---|---|
| `body`, `keys`, `tags`, `unique_key`, `properties`, `properties.NAME` | the field |
| `born_host`, `store_host`, `hosts` | one address, or both |
| `$.customer.phone` | what a JSONPath finds in bodies that are JSON |
| `/REGEX/` | what a regular expression matches in bodies and in the values of properties |
| `body:/REGEX/`, `properties:/REGEX/` | the same in one of the two |
| `charset=gbk` | nothing: it says that bodies may be text of this charset too |

Asterisks stand for what is hidden. A body that the rules cannot be applied to is hidden whole: one that is no JSON
where there is a path, one that is no text where there is a pattern, one that cannot be decompressed or unpacked, one
that holds a batch of messages, and one that says something of other messages: traces of clients, wherever they were
sent to, and what brokers note for themselves. Who is shown masked messages must not be able to choose them by what is
hidden: see the methods `refuse_…`.
"""

import codecs
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final

import msgspec

from protocol import properties as names
from protocol.body_content import UTF_8, charset_of, text_in, unpack
from protocol.compression import Budget
from protocol.errors import ConfigError, StoreError
from protocol.host_address import HIDDEN_HOST
from protocol.message import Message
from protocol.sys_flag import OF_BATCH, has_inner_messages
from protocol.system_properties import PLACES, repeating
from protocol.system_topics import TopicContent, content_of, origin_of
from protocol.trace import holds_traces

if TYPE_CHECKING:  # the library takes long to import: it is where a path is compiled
    from jsonpath import CompoundJSONPath, JSONPath

MASKED: Final = names.MASKED

BODY: Final = "body"
PROPERTIES: Final = "properties"
PROPERTY: Final = "properties."
HOSTS: Final = {"hosts": ("born_host", "store_host"), "born_host": ("born_host",), "store_host": ("store_host",)}
PROPERTY_OF: Final = {"keys": names.KEYS, "tags": names.TAGS, "unique_key": names.UNIQ_KEY}
"""Fields that are properties, by name."""

MASKABLE: Final = (BODY, *PROPERTY_OF, "born_host", "store_host", PROPERTIES)

_WHOLE_BODY: Final = ~OF_BATCH
_CHARSET: Final = "charset="
_PATTERN: Final = re.compile(r"(?:(body|properties):)?/(.+)/", re.DOTALL)


class Mask:
    """Rules that were read; equal rules make equal masks, and a mask is sent to another process as its rules.

    A stored text may hold a pattern up without end, so whatever reads a store applies the mask of
    :mod:`storage.patterns.mask`, which is this one in a process that can be killed.
    """

    def __init__(self, rules: Iterable[str]) -> None:
        """Raises ConfigError for a rule that is none."""
        self.rules = tuple(rules)
        fields, properties = set[str](), set[str]()
        self._paths: list[JSONPath | CompoundJSONPath] = []
        self._charsets: list[str] = [UTF_8]
        patterns: dict[str, list[re.Pattern[str]]] = {BODY: [], PROPERTIES: []}
        for rule in self.rules:
            if rule.startswith("$"):
                self._paths.append(_path(rule))
            elif rule.startswith(_CHARSET):
                self._charsets.append(charset_of(rule.removeprefix(_CHARSET)))
            elif (found := _PATTERN.fullmatch(rule)) is not None:
                for place in (BODY, PROPERTIES) if found[1] is None else (found[1],):
                    patterns[place].append(_pattern(found[2]))
            elif rule.startswith(PROPERTY) and len(rule) > len(PROPERTY):
                properties.add(rule.removeprefix(PROPERTY))
            elif rule in HOSTS:
                fields.update(HOSTS[rule])
            elif rule in MASKABLE:
                fields.add(rule)
            else:
                raise ConfigError(
                    f"no field {rule!r} to mask: expected {', '.join(MASKABLE)}, hosts, {PROPERTY}NAME, "
                    "a JSONPath ($.a.b) or a pattern (/REGEX/)"
                )
        for field, name in PROPERTY_OF.items():
            if field in fields or name in properties or PROPERTIES in fields:
                fields.add(field)
                properties.add(name)
        properties.update(copy for field in fields for copy in repeating(field))
        self.fields = frozenset(fields)
        """Fields that are hidden."""
        self._body_patterns, self.property_patterns = tuple(patterns[BODY]), tuple(patterns[PROPERTIES])
        self.changes_bodies = BODY in fields or bool(self._paths or self._body_patterns)
        """Whether bodies may be other ones than they are."""
        changes = self.changes_bodies or bool(properties or self.property_patterns) or PROPERTIES in fields
        if changes:  # the checksum of a record, by which what is hidden in it could be guessed
            properties.add(names.PROPERTY_CRC)
        self.properties = frozenset(properties)
        """Properties that are hidden; all are where `fields` has `properties`."""
        self.changes = changes
        """Whether anything is hidden."""

    def __bool__(self) -> bool:
        return bool(self.rules)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mask) and self.rules == other.rules

    def __hash__(self) -> int:
        return hash(self.rules)

    def __reduce__(self) -> "tuple[type[Mask], tuple[tuple[str, ...]]]":
        return type(self), (self.rules,)

    def message(self, message: Message) -> Message:
        """A message without what is hidden of it, the same object where nothing is; sizes and times stay."""
        if not self.changes:
            return message
        stored, is_report = _looked_into(message)
        fields: dict[str, Any] = {}
        shown = self.property_texts(message.properties)
        if self.hides_keys(is_report=is_report) and names.KEYS in shown:
            shown[names.KEYS] = MASKED
        if shown != message.properties:
            fields["properties_bytes"] = names.encode_properties(shown)
        if message.record_properties is not None:
            of_record = names.parse_properties(message.record_properties)
            fields["record_properties"] = names.encode_properties(self.property_texts(of_record))
        for host in ("born_host", "store_host"):
            if host in self.fields:
                fields[host] = HIDDEN_HOST
        if self.changes_bodies:
            fields["body_crc"] = 0
        is_whole = self.hides_body(message.sys_flag, is_report=is_report)
        body = MASKED.encode() if stored is None or is_whole else self.body(stored)
        if body is not stored:
            fields |= {"stored_body": body, "sys_flag": message.sys_flag & _WHOLE_BODY, "body_crc": 0}
        return replace(message, **fields) if fields else message

    def hides_whole(self, message: Message) -> bool:
        """Whether the body of a message is hidden whatever it is, so that nothing may be found by it."""
        return self.changes and self.hides_body(message.sys_flag, is_report=_looked_into(message)[1])

    def hides_body(self, sys_flag: int, *, is_report: bool) -> bool:
        """Whether the body of a message is hidden whatever it is: batches and reports hold more than a body.

        `is_report` is what :func:`may_be_report` says of it.
        """
        return BODY in self.fields or (self.changes and (is_report or has_inner_messages(sys_flag)))

    def hides_keys(self, *, is_report: bool) -> bool:
        """Whether the keys of a message are hidden: those of a report are unique keys and keys of others."""
        return "keys" in self.fields or (is_report and "unique_key" in self.fields)

    def body(self, body: bytes | memoryview) -> bytes | memoryview:
        """A body that consumers get, without what is hidden; the same object where nothing is.

        One that an application packed comes unpacked where something is hidden in it.
        """
        if BODY in self.fields:
            return MASKED.encode()
        if not self.changes_bodies or not len(body):
            return body
        content = unpack(body)
        if content.error is not None:
            return MASKED.encode()
        for charset in self._charsets:
            text = text_in(content.data, charset)
            if text is not None:
                shown = self._text(text)
                return body if shown is None else codecs.encode(shown, charset, "replace")
        return MASKED.encode()

    def bodies(self, bodies: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
        """Several bodies, each as :meth:`body` has it."""
        return [self.body(body) for body in bodies]

    def property_texts(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The values of properties by their names, without what is hidden."""
        shown = dict(properties)
        shown.update({name: MASKED for name in shown if name in self.properties})
        others = [name for name in shown if name not in self.properties and name not in PLACES]
        if PROPERTIES in self.fields:
            shown.update(dict.fromkeys(others, MASKED))
        else:
            shown.update(zip(others, self.texts([properties[name] for name in others]), strict=True))
        return shown

    def text(self, text: str) -> str:
        """What may be a value of any property, without what patterns match of it."""
        return _replaced(text, self.property_patterns)

    def texts(self, texts: Sequence[str], owners: Sequence[int] | None = None) -> list[str]:
        """Several texts, each as :meth:`text` has it.

        ``owners`` has a number for each, the same for those of one message; without it all are of one.
        """
        return [self.text(text) for text in texts]

    @property
    def pattern_count(self) -> int:
        """Number of patterns and paths, each of which a body may be gone through for."""
        return len(self._paths) + len(self._body_patterns) + len(self.property_patterns)

    def refuse(self, *fields: str) -> None:
        """Raise ConfigError where one of some fields is hidden: by these messages are to be chosen."""
        for field in fields:
            name = field.removeprefix(PROPERTY)
            if field in self.fields or (name != field and (PROPERTIES in self.fields or name in self.properties)):
                raise ConfigError(f"{field} is masked, and what is masked cannot be searched")

    def refuse_value(self, field: str, value: str) -> None:
        """As `refuse`, for a field that a message has to have a value in; also where the value is hidden."""
        self.refuse(field)
        if self.text(value) != value:
            raise ConfigError(f"this value of {field} is masked by a pattern, and what is masked cannot be searched")

    def refuse_expression(self, properties: Iterable[str]) -> None:
        """As `refuse`, for an expression over some properties, which may say what they are not."""
        asked = tuple(properties)
        self.refuse(*(f"{PROPERTY}{name}" for name in asked))
        if names.KEYS in asked:  # which in traces are unique keys
            self.refuse("unique_key")
        if self.property_patterns:
            raise ConfigError("a pattern masks properties, and what is masked cannot be searched by an expression")

    def _text(self, text: str) -> str | None:
        """The text of a body without what is hidden, None where nothing is."""
        document = _Document.of(text)
        if document is None:
            if self._paths:
                return MASKED
            shown = _replaced(text, self._body_patterns)
            return None if shown == text else shown
        if not document.hide(self._paths, self._body_patterns):
            return MASKED
        written = document.text()
        shown = _replaced(written, self._body_patterns)
        if shown == written and not document.is_changed and _replaced(text, self._body_patterns) == text:
            return None
        return shown


NO_MASK: Final = Mask(())


def _looked_into(message: Message) -> tuple[bytes | memoryview | None, bool]:
    """The body of a message that consumers get, None for one that cannot be decompressed; and what it may be."""
    try:
        body = message.decoded_body()
    except StoreError:
        return None, True
    return body, may_be_report(origin_of(message).topic, body, message.budget)


def may_be_report(topic: str | None, body: bytes | memoryview | None, budget: Budget | None = None) -> bool:
    """Whether a message may say something of messages of others: by the topic it was sent to, None if that is unknown.

    Else by its body, which is None if it cannot be decompressed: traces may be sent to any topic. One in which more is
    packed than there is a budget for may be anything.
    """
    if topic is not None and content_of(topic) is not TopicContent.MESSAGES:
        return True
    if body is None:
        return True
    content = unpack(body, budget=budget)
    return content.error is not None or holds_traces(content.data)


def rules_of(text: str) -> tuple[str, ...]:
    """The rules of a text: one on each line; lines that are empty or begin with `#` say nothing."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


def rules_of_file(path: str | PathLike[str]) -> tuple[str, ...]:
    """The rules of a mask file, as :func:`rules_of` reads them; raises ConfigError.

    A file without a rule is refused: by mistake nothing would be hidden.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            rules = rules_of(file.read())
    except OSError as error:
        raise ConfigError(f"mask file {fspath(path)} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"mask file {fspath(path)} is not UTF-8 text: {error}") from error
    if not rules:
        raise ConfigError(f"mask file {fspath(path)} has no rule")
    for rule in rules:
        try:
            Mask((rule,))
        except ConfigError as error:
            raise ConfigError(f"mask file {fspath(path)}: {error}") from error
    return rules


class _Document:
    """A body that is JSON; numbers stay as they are written."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self.is_changed = False

    @classmethod
    def of(cls, text: str) -> "_Document | None":
        """The document that a text is, None for another text, and for one of a form of its own, as a bare number."""
        try:
            value = msgspec.json.Decoder(float_hook=Decimal).decode(text)
        except (msgspec.MsgspecError, RecursionError, ValueError, ArithmeticError):
            return None
        return cls(value) if isinstance(value, dict | list) else None

    def hide(self, paths: "Sequence[JSONPath | CompoundJSONPath]", patterns: Sequence[re.Pattern[str]]) -> bool:
        """Put asterisks where paths lead and into texts that patterns match; False where that cannot be done."""
        try:
            places = [match.parts for path in paths for match in path.finditer(self._value)]
            for place in sorted(places, key=len, reverse=True):  # what lies in another one first
                if not place:
                    return False
                *way, last = place
                inner = self._value
                for step in way:
                    inner = inner[step]
                inner[last] = MASKED
                self.is_changed = True
            if patterns:
                self._value = self._without(self._value, patterns)
        except (LookupError, TypeError, RecursionError, ValueError, _path_error()):
            return False
        return True

    def text(self) -> str:
        """The document as JSON on one line."""
        return msgspec.json.Encoder(decimal_format="number").encode(self._value).decode()

    def _without(self, value: Any, patterns: Sequence[re.Pattern[str]]) -> Any:
        if isinstance(value, dict):
            return {self._without(name, patterns): self._without(each, patterns) for name, each in value.items()}
        if isinstance(value, list):
            return [self._without(each, patterns) for each in value]
        if value is None or isinstance(value, bool):
            return value
        written = str(value)
        shown = _replaced(written, patterns)
        if shown == written:
            return value
        self.is_changed = True
        return shown


def _replaced(text: str, patterns: Sequence[re.Pattern[str]]) -> str:
    for pattern in patterns:
        text = pattern.sub(MASKED, text)
    return text


def _pattern(text: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"mask /{text[:80]}/ is no regular expression: {error}") from error
    if pattern.search("") is not None:
        raise ConfigError(f"mask /{text[:80]}/ matches nothing at all: expected a pattern of at least one character")
    return pattern


def _path(text: str) -> "JSONPath | CompoundJSONPath":
    import jsonpath

    try:
        return jsonpath.compile(text)
    except (jsonpath.JSONPathError, re.error, OverflowError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(f"mask {text[:80]!r} is no JSONPath: {reason}") from error


def _path_error() -> type[Exception]:
    import jsonpath

    return jsonpath.JSONPathError
