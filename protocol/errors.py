"""Every error RocketLens raises on purpose, as a tree; the text of each is one sentence for the person who reads it.

    RocketLensError
    ├── ProtocolError                  the peer's bytes are no command
    │   ├── BadFrame, FrameTooLarge    the stream cannot be trusted: close the connection
    │   ├── RequestByHttp              a BadFrame that can be answered in its own language before
    │   ├── BadCommand, BadHeader      answered, naming the field; the connection lives
    │   └── BadMessageId               a text is no offset message id
    ├── StoreError                     path, physical_offset, expected, found
    │   ├── CorruptRecord
    │   ├── TruncatedFile
    │   ├── NotAStore
    │   └── PlantedFile                another user may have put it there: nothing is read or written through it
    ├── BeingSearched                  the answer is still being searched for: ask again in a moment
    │   └── QueueBeingSearched         a StoreError as well: a queue's begin or end is not known yet
    ├── FilterSyntaxError              source and span, drawn under the text
    ├── FilterEvaluationError          the message counts as not matching
    ├── NoSuchTopic                    asked about all of a topic that is nowhere
    └── ConfigError

`is_out_of_room` says of any of them, and of an OSError, whether a full disk is at the bottom of it.

Absence is not an error: a look-up returns `None` or an empty sequence.
"""

import errno
import re
from os import PathLike, fspath
from pathlib import PurePath
from typing import ClassVar
from unicodedata import east_asian_width

LONGEST_QUOTE = 80
"""Characters of a peer's text that an error repeats."""


def quote(text: str) -> str:
    """A peer's text in quotes, printable and cut to `LONGEST_QUOTE` characters."""
    if len(text) > LONGEST_QUOTE:
        return f"{text[:LONGEST_QUOTE]!r}… ({len(text)} characters)"
    return repr(text)


def _columns(text: str) -> int:
    """The columns of a terminal that a text takes: Chinese characters, among others, take two."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


class RocketLensError(Exception):
    """The root of all errors below."""


class ProtocolError(RocketLensError):
    """What the peer sent is against the remoting protocol."""


class BadFrame(ProtocolError):
    """A frame's lengths contradict each other; nothing after it can be trusted, so the connection is closed.

    `frames` are the whole frames that the same bytes held before the bad one: they are answered first.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.frames: list[tuple[int, bytes, bytes]] = []


class FrameTooLarge(BadFrame):
    """A frame announces more bytes than the limit; like `BadFrame` it ends the connection."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a frame of {size} bytes, more than the limit of {limit}")
        self.size = size
        self.limit = limit


class RequestByHttp(BadFrame):
    """What came begins as a request of HTTP does: a browser or a probe is at the wrong port."""

    def __init__(self) -> None:
        super().__init__(
            "a request by HTTP, and this is the remoting port: the page has a port of its own, that of --http"
        )

    def __reduce__(self) -> tuple[type["RequestByHttp"], tuple[()]]:
        """Pickle without the text, which it has of itself."""
        return RequestByHttp, ()


class BadCommand(ProtocolError):
    """A frame holds no command: its header, or the body it needs, is no JSON or has wrong types or lengths.

    `opaque` is the number of the request, as far as it could be read; else 0.
    """

    def __init__(self, reason: str, opaque: int = 0) -> None:
        super().__init__(reason)
        self.opaque = opaque


class BadHeader(ProtocolError):
    """A request's header field is missing (`value` None) or malformed; `field` is its name on the wire.

    `reason` completes the sentence: ``maxNum: 'abc' is no 32-bit integer``, ``maxNum: '-1', expected 0 or more``.
    """

    def __init__(self, field: str, value: str | None = None, reason: str = "") -> None:
        super().__init__(field, value, reason)
        self.field = field
        self.value = value
        self.reason = reason

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.field} {self.reason or 'is missing'}"
        glue = " " if self.reason.startswith("is ") else ", " if self.reason else ""
        return f"{self.field}: {quote(self.value)}{glue}{self.reason}"


class BadMessageId(ProtocolError):
    """A text is no offset message id; the message names the length, the digit or the port that is wrong."""


class StoreError(RocketLensError):
    """A file of the store is not what it should be.

    `path` of the file, `physical_offset` in the commit log where one is known, `what` was looked at, `expected` and
    `found` as values. Integers are written in hexadecimal where `what` is a magic number or a CRC, else in decimal.
    `what` alone may be the whole reason.
    """

    default_what: ClassVar[str] = ""

    def __init__(
        self,
        path: str | PathLike[str],
        physical_offset: int | None = None,
        expected: object = None,
        found: object = None,
        what: str = "",
    ) -> None:
        super().__init__(path, physical_offset, expected, found, what)
        self.path = path
        self.physical_offset = physical_offset
        self.expected = expected
        self.found = found
        self.what = what or self.default_what

    def __str__(self) -> str:
        return f"{self._place()}: {self._reason()}"

    def _place(self) -> str:
        """Name the place: a segment by its name, which is an offset already; any other file by its whole path."""
        if self.physical_offset is None:
            return fspath(self.path)
        return f"{PurePath(self.path).name} at physical offset {self.physical_offset}"

    def _reason(self) -> str:
        found = f"{self.what} {self._text(self.found)}".strip() if self.found is not None else self.what
        expected = f"expected {self._text(self.expected)}" if self.expected is not None else ""
        return ", ".join(part for part in (found, expected) if part) or "cannot be read"

    def _text(self, value: object) -> str:
        is_bits = "magic" in self.what or "CRC" in self.what
        return f"0x{value:08x}" if is_bits and isinstance(value, int) else str(value)


class CorruptRecord(StoreError):
    """Bytes that should be a record are none: ``…: magic 0x00000000, expected 0xdaa320a7``."""

    default_what = "magic"


class TruncatedFile(StoreError):
    """Fewer bytes are there than something needs; with integers, `expected` and `found` are numbers of bytes.

    `what` is read before the bytes: ``…: record of 300 bytes, but only 40 are there``.
    """

    default_what = "needs"

    def _reason(self) -> str:
        if isinstance(self.expected, int) and isinstance(self.found, int):
            return f"{self.what} {self.expected} bytes, but only {self.found} are there"
        return super()._reason()


class NotAStore(StoreError):
    """A path holds no RocketMQ store that can be served; `found` and `expected` are phrases."""

    default_what = "found"

    def _place(self) -> str:
        return f"{fspath(self.path)} is no store that can be served"


class PlantedFile(StoreError):
    """A file, directory or link that another user may have put where ours belong; `what` names its owner."""

    def _reason(self) -> str:
        return self.what


class BeingSearched(RocketLensError):
    """The answer is still being searched for, which takes longer than a client waits: ask again in a moment."""


class QueueBeingSearched(StoreError, BeingSearched):
    """The begin or end of a queue is being searched in the log; the queue cannot be read before it is found."""


class FilterSyntaxError(RocketLensError):
    """A subscription's expression cannot be parsed; the text draws the span under the source.

    `span` is (start, end) in characters of `source`, end exclusive. Of a long source, or one of several lines, only
    what stands around `start` is drawn.
    """

    def __init__(self, source: str, span: tuple[int, int], reason: str) -> None:
        super().__init__(source, span, reason)
        self.source = source
        self.span = span
        self.reason = reason

    def __str__(self) -> str:
        start, end = self.span
        before = re.split(r"[\r\n]", self.source[:start])[-1]
        behind = re.split(r"[\r\n]", self.source[start:], maxsplit=1)[0]
        if len(before) > LONGEST_QUOTE:
            before = f"…{before[-LONGEST_QUOTE // 2 :]}"
        if len(behind) > LONGEST_QUOTE:
            behind = f"{behind[:LONGEST_QUOTE]}…"
        drawn = "".join(each if each.isprintable() else " " for each in before + behind)
        marks = "^" * max(_columns(behind[: end - start]), 1)
        return f"{self.reason}\n    {drawn}\n    {' ' * _columns(before)}{marks}"


class FilterEvaluationError(RocketLensError):
    """An expression cannot be evaluated for a message, which then counts as not matching."""


class NoSuchTopic(RocketLensError):
    """A topic that is asked about and that a store or a broker does not have; `meant` asks which one was meant."""

    def __init__(self, topic: str, meant: str = "") -> None:
        super().__init__(topic, meant)
        self.topic = topic
        self.meant = meant

    def __str__(self) -> str:
        return "; ".join(filter(None, (f"there is no topic {self.topic}", self.meant)))


class ConfigError(RocketLensError):
    """An option, or a combination of options, that cannot work."""


OUT_OF_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a disk that is full, and of a quota or a file-size limit that is reached."""


def is_out_of_room(error: BaseException | None) -> bool:
    """Whether an error, or one that it was raised from, says that the disk is full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in OUT_OF_ROOM:
            return True
        error = error.__cause__
    return False
