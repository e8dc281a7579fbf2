"""A message's body as the API shows it: decompressed, with its kind, and cut to the length that was requested."""

import base64
from typing import Final

import msgspec

from protocol.errors import StoreError
from protocol.message import Message
from protocol.sys_flag import SysFlag, compression_type

MOST_FORMATTED: Final = 256 * 1024
"""Bytes of JSON that is shown indented: indenting may make much of little."""

DEEPEST: Final = 40
"""Levels of such JSON."""

PREVIEW_BYTES: Final = 1 << 20
"""A body that is longer when decompressed has no preview in a list."""

PREVIEW: Final = 160
"""Characters of a body in a list."""


class Body(msgspec.Struct, rename="camel", kw_only=True):
    """A body, decompressed.

    `kind` is empty, json, text (UTF-8 without control characters), binary or unreadable. `text` or, of what is no text,
    `base64` are its first `shown` bytes; `formatted` is JSON indented, where it is short enough. `size` is in bytes, of
    what is stored where it cannot be decompressed, for the reason in `error`.
    """

    kind: str
    size: int
    stored_size: int
    compression: str | None
    shown: int
    text: str | None = None
    base64: str | None = None
    formatted: str | None = None
    error: str | None = None


def body_of(message: Message, most: int) -> Body:
    """The first `most` bytes of a message's body."""
    stored = len(message.stored_body)
    compression = compression_of(message)
    try:
        data, error = message.body, None
    except StoreError as failure:
        data, error = bytes(message.stored_body), str(failure)
    body = Body(kind="empty", size=len(data), stored_size=stored, compression=compression, shown=0, error=error)
    text = _beginning_of_text(data, most)
    if error is not None or (data and text is None):
        shown = data[:most]
        body.kind = "binary" if error is None else "unreadable"
        body.base64, body.shown = base64.b64encode(shown).decode(), len(shown)
    elif data:
        assert text is not None
        body.formatted = _formatted(data)
        body.kind = "text" if not _is_json(data, body.formatted) else "json"
        body.text, body.shown = text, len(text.encode())
    return body


def compression_of(message: Message) -> str | None:
    """By what a body is compressed, in lower case; None for one that is not."""
    if not message.sys_flag & SysFlag.COMPRESSED or not len(message.stored_body):
        return None
    kind = compression_type(message.sys_flag)
    return "unknown" if kind is None else kind.name.lower()


def preview_of(message: Message) -> str | None:
    """The beginning of a body on one line; None for what is no text, or too long to look into."""
    try:
        data = bytes(memoryview(message.decoded_body(PREVIEW_BYTES))[: PREVIEW * 4])
    except StoreError:
        return None
    text = data.decode("utf-8", "replace").rstrip("\ufffd")
    if not is_text(text):
        return None
    line = " ".join(text.split())
    return line if len(line) <= PREVIEW else f"{line[: PREVIEW - 1]}…"


def is_text(text: str) -> bool:
    """Whether there is nothing in it that is no text: control characters, or bytes that are no UTF-8."""
    return all(character >= " " or character in "\t\n\r" for character in text) and not {"\x7f", "\ufffd"} & set(text)


def _beginning_of_text(data: bytes, most: int) -> str | None:
    """The first bytes as text, cut between characters; None where any of it is no text."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if not is_text(text):
        return None
    return text if len(data) <= most else data[:most].decode("utf-8", "ignore")


def _is_json(data: bytes, formatted: str | None) -> bool:
    if formatted is not None:
        return True
    return len(data) > MOST_FORMATTED and data.lstrip()[:1] in (b"{", b"[")


def _formatted(data: bytes) -> str | None:
    """JSON indented, its numbers as they are written; None for what is none, or would become too long."""
    if len(data) > MOST_FORMATTED or data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        if _depth(msgspec.json.decode(data)) > DEEPEST:
            return None
        return msgspec.json.format(data, indent=2).decode()
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
