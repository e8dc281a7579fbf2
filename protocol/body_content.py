"""What an application put into a body: bytes that it packed by itself, and text in a charset of its choice.

A body that a client compressed (sysFlag) is decompressed before (:mod:`protocol.compression`). What is looked at here
is what consumers get: it may be gzip or zstd all the same, and then an application has packed it. It is recognised by
its first bytes and unpacked, within a budget, for it may be a bomb.

To read one more packing, add one line to `DECODERS`: the bytes it begins with, and its codec. Views, lists, searches,
the HTTP API and the export take it from there.
"""

import codecs
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from protocol.compression import DECOMPRESSED_LIMIT, Budget, Codec, decode
from protocol.errors import ConfigError, CorruptRecord

MOST_PACKINGS: Final = 3
"""A packed body may hold another one, so many times."""

MOST_INDENTED: Final = 256 * 1024
"""Bytes of JSON that is shown indented: indenting may make much of little."""

DEEPEST: Final = 40
"""Levels of such JSON."""

UTF_8: Final = "utf-8"

TEXT_PIECE: Final = 256 * 1024
"""Bytes that are decoded to text at once: other threads run between two pieces, not within one."""

_NO_CHARSETS: Final = frozenset({"idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape", "utf_7"})
"""Codecs that are no charsets of a text; some of them take a time that grows with the square of its length."""

_CONTROLS: Final = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Control characters that no text contains. NUL, which ends texts and fields of programs in C, is not among them."""

_MOST_NULS: Final = 3
"""Where more than every third character is a NUL, besides those at the end, bytes are numbers rather than text."""


class Decoder(NamedTuple):
    """One packing: the bytes that it begins with, and how it is unpacked."""

    magic: bytes
    codec: Codec

    @property
    def name(self) -> str:
        """Its name for people."""
        return self.codec.value


class Content(NamedTuple):
    """What is in a body. `packings` are the names of what was undone, the outermost first.

    `error` says why something that looks packed could not be unpacked; `data` is then as far as it could be.
    """

    data: bytes | memoryview
    packings: tuple[str, ...] = ()
    error: str | None = None


def unpack(body: bytes | memoryview, *, limit: int = DECOMPRESSED_LIMIT, budget: Budget | None = None) -> Content:
    """What an application packed into a body that consumers get; most bodies are returned as they are, not copied.

    What it takes is spent of a budget, or of one of `limit` bytes.
    """
    content = Content(body)
    for _ in range(MOST_PACKINGS):
        decoder = decoder_of(content.data)
        if decoder is None:
            break
        budget = budget or Budget(limit)
        try:
            content = Content(decode(content.data, decoder.codec, budget), (*content.packings, decoder.name))
        except CorruptRecord as error:
            return content._replace(error=str(error).partition(": ")[2])
    return content


def decoder_of(body: bytes | memoryview) -> Decoder | None:
    """The packing that a body looks to be of, by its first bytes."""
    for decoder in DECODERS:
        if body[: len(decoder.magic)] == decoder.magic:
            return decoder
    return None


def charset_of(name: str) -> str:
    """The name by which Python knows a charset (`gbk`, `GB18030`, `latin-1`); raises ConfigError for what is none."""
    try:
        found = codecs.lookup(name)
        # This refuses codecs that make bytes of bytes, among them bombs, without running them.
        "".encode(name)
    except (LookupError, UnicodeError, ValueError) as error:
        raise ConfigError(f"{name[:80]!r} is no charset: expected one like utf-8, gbk, big5 or shift_jis") from error
    if found.name.replace("-", "_") in _NO_CHARSETS:
        raise ConfigError(f"{name[:80]!r} is no charset of texts")
    return found.name


def text_in(data: bytes | memoryview, charset: str | None = None, *, is_cut: bool = False) -> str | None:
    """Bytes as text of a charset, by default UTF-8; None where they are no such text, or are rather something else.

    A text has no control characters, but it may have NULs, as long as they are few. Where the bytes are the beginning
    of more, `is_cut`, the last character may lack some: it is left out.
    """
    pieces = []
    try:
        for piece in _characters(data, charset, is_cut=is_cut):
            if _CONTROLS.search(piece):
                return None
            pieces.append(piece)
    except UnicodeError:
        return None
    text = "".join(pieces)
    kept = text.rstrip("\0")
    return text if kept.count("\0") * _MOST_NULS <= len(kept) and (kept or not text) else None


def characters_in(data: bytes | memoryview, charset: str | None = None, *, is_cut: bool = False) -> str | None:
    """The characters, of any kind, that bytes are in a charset; None where they are none. `is_cut` as in `text_in`."""
    try:
        return "".join(_characters(data, charset, is_cut=is_cut))
    except UnicodeError:
        return None


def text_with_replacements(data: bytes | memoryview, charset: str | None = None) -> str:
    """Bytes as text of a charset, by default UTF-8, in which U+FFFD stands for what is none: to look for a text in."""
    if len(data) > TEXT_PIECE:
        with suppress(UnicodeError):  # of UTF-16 and UTF-32 without a mark of their order, which are taken as they are
            return "".join(_characters(data, charset, errors="replace"))
    return str(data, charset or UTF_8, "replace")


def _characters(
    data: bytes | memoryview, charset: str | None, *, is_cut: bool = False, errors: str = "strict"
) -> Iterator[str]:
    """Decode bytes piece by piece; raises UnicodeError for what is none of the charset."""
    decoder = codecs.getincrementaldecoder(charset or UTF_8)(errors)
    view = memoryview(data)
    for start in range(0, max(len(view), 1), TEXT_PIECE):
        is_last = start + TEXT_PIECE >= len(view)
        yield decoder.decode(bytes(view[start : start + TEXT_PIECE]), is_last and not is_cut)


def indented_json(text: str) -> str | None:
    """JSON indented, its numbers as they are written; None for what is none, or would become too long."""
    text = text.removeprefix("\ufeff")
    if len(text) > MOST_INDENTED or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        if _depth(msgspec.json.Decoder(float_hook=str).decode(text)) > DEEPEST:  # also where a float cannot hold one
            return None
        return msgspec.json.format(text, indent=2)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


def _depth(value: object) -> int:
    """Levels of lists and objects, counted no further than one beyond `DEEPEST`."""
    level, depth = [value], 0
    while level and depth <= DEEPEST:
        depth += 1
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return depth


DECODERS: Final = (
    Decoder(b"\x1f\x8b\x08", Codec.GZIP),
    Decoder(b"\x28\xb5\x2f\xfd", Codec.ZSTD),
)
