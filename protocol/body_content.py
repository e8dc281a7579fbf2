"""What an application put into a body: bytes that it packed by itself, and text in a charset of its choice.

A body that a client compressed (sysFlag) is decompressed first (:mod:`protocol.compression`); where it is not what the
flag says, it is read as what it is: brokers until 2025 stored plain bodies under the flag when they put a half message
back (PR 9954), 4.x at each check of one. What is looked at then may be packed all the same, by an application, or a
client that compressed it twice. It is recognised by its first bytes and unpacked, within a budget: it may be a bomb.

To read one more packing, add one line to `DECODERS`: the bytes it begins with, and its codec. Views, lists, searches,
the HTTP API and the export take it from there.
"""

import codecs
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from protocol.compression import DECOMPRESSED_LIMIT, Budget, Codec, decode, decompress
from protocol.errors import ConfigError, CorruptRecord
from protocol.message_layout import RECORD
from protocol.sys_flag import SysFlag, compression_type

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

MOST_LOOKED_AT: Final = 1024
"""Bytes by which it is guessed of what charset a text is."""

LEAST_FREQUENT: Final = 0.7
"""The share of frequent characters that a text of a charset has at least."""

LIKELY: Final = {
    # Characters of two bytes, of which the frequent ones are a group: signs and those of the first level.
    "gbk": re.compile(rb"([\xa1-\xa3\xb0-\xd7][\xa1-\xfe])|[\x80-\xff].?", re.DOTALL),
    "big5": re.compile(rb"([\xa1-\xc6][\x40-\x7e\xa1-\xfe])|[\x80-\xff].?", re.DOTALL),
    "shift_jis": re.compile(
        rb"(\x81[\x40-\xac]|\x82[\x4f-\xf1]|\x83[\x40-\x96]|[\x88-\x97][\x40-\xfc])|[\xa1-\xdf]|[\x80-\xff].?",
        re.DOTALL,
    ),
}
"""Charsets of texts that are often met, by what finds their characters that are no ASCII."""

_COMPRESSED: Final = int(SysFlag.COMPRESSED)

_CONTROLS: Final = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Control characters that no text contains. NUL, which ends texts and fields of programs in C, is not among them."""

_MOST_NULS: Final = 3
"""Where more than every third character is a NUL, besides those at the end, bytes are numbers rather than text."""


class Decoder(NamedTuple):
    """One packing: the bytes that it begins with, and how it is unpacked.

    Where these bytes may begin a text too, it is not `sure`: what cannot be unpacked is something else then.
    """

    magic: bytes
    codec: Codec
    is_sure: bool = True

    @property
    def name(self) -> str:
        """Its name for people."""
        return self.codec.value


class Content(NamedTuple):
    """The content of a body. `packings` are the names of what was undone, the outermost first.

    `error` says why something that looks packed could not be unpacked; `data` is then as far as it could be. `note`
    says that it is not compressed as its message's flag says.
    """

    data: bytes | memoryview
    packings: tuple[str, ...] = ()
    error: str | None = None
    note: str | None = None


def consumed(stored: bytes | memoryview, sys_flag: int, budget: Budget, physical_offset: int | None = None) -> Content:
    """A stored body, decompressed as its flag says, or as it is where it is something else: packed, a text, deflate.

    Nothing is unpacked yet, but for deflate without a frame. Raises `CorruptRecord` for a body that is neither what the
    flag says nor one of these, and beyond the budget.
    """
    if not sys_flag & _COMPRESSED or not len(stored):
        return Content(stored)
    kind = compression_type(sys_flag)
    try:
        if kind is None:
            raise CorruptRecord(
                RECORD, physical_offset, expected="0 to 3", found=sys_flag >> 8 & 7, what="compression type"
            )
        return Content(decompress(stored, kind, budget=budget))
    except CorruptRecord as error:
        if budget.is_spent:
            raise
        flagged = "an unknown compression" if kind is None else Codec[kind.name].value
        content = _mislabelled(stored, budget)
        if content is None:
            raise error from None
        return content._replace(note=f"sysFlag says {flagged}, and the body is {content.note}")


def _mislabelled(stored: bytes | memoryview, budget: Budget) -> Content | None:
    """What a body is that is not what its flag says; `note` has its name. None where that cannot be known."""
    content = unpack(stored, budget=budget)
    if content.packings:
        return Content(stored, note=content.packings[0])
    if content.error is None and is_text(stored):
        return Content(stored, note="not compressed")
    try:
        data = decode(stored, Codec.DEFLATE, budget)
    except CorruptRecord:
        return None
    # Few bytes are no deflate at all: what comes out has to be something.
    return (
        Content(data, (Codec.DEFLATE.value,), note=Codec.DEFLATE.value) if decoder_of(data) or is_text(data) else None
    )


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
            if not decoder.is_sure and not budget.is_spent:
                break
            return content._replace(error=str(error).partition(": ")[2])
    return content


def decoder_of(body: bytes | memoryview) -> Decoder | None:
    """The packing that a body looks to be of, by its first bytes."""
    for decoder in _BEGINNING.get(body[0], ()) if len(body) else ():
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


def is_text(data: bytes | memoryview) -> bool:
    """Whether bytes are a text, of UTF-8 or of a charset that they look like."""
    return bool(len(data)) and (text_in(data) is not None or looks_like(data) is not None)


def looks_like(data: bytes | memoryview) -> str | None:
    """The charset of `LIKELY` that bytes look like by their beginning; None for UTF-8, and what is rather no text.

    It is the one of which most characters of two bytes are among the frequent ones.
    """
    head = bytes(data[:MOST_LOOKED_AT])
    if head.isascii() or text_in(head, is_cut=True) is not None:
        return None
    best, name = LEAST_FREQUENT, None
    for charset, pattern in LIKELY.items():
        found = pattern.findall(head)
        share = sum(map(bool, found)) / len(found)
        if share > best and text_in(head, charset, is_cut=len(data) > len(head)) is not None:
            best, name = share, charset
    return name


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
    Decoder(b"\x04\x22\x4d\x18", Codec.LZ4),
    # The second byte is by the level of compression.
    *(Decoder(magic, Codec.ZLIB, is_sure=False) for magic in (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")),
)

_BEGINNING: Final = {
    first: tuple(decoder for decoder in DECODERS if decoder.magic[0] == first)
    for first in {decoder.magic[0] for decoder in DECODERS}
}

FIRST_BYTES: Final = frozenset(_BEGINNING)
"""The bytes with which a body may begin that is packed."""
