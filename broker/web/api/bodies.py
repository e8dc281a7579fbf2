"""A message's body as the API shows it: decompressed, unpacked, with its kind, cut to the length that was requested."""

import base64
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from broker.web.api.errors import bad_parameter
from protocol.body_content import MOST_INDENTED, UTF_8, characters_in, charset_of, indented_json, text_in, unpack
from protocol.errors import ConfigError, StoreError
from protocol.message import Message
from protocol.sys_flag import SysFlag, compression_type

Charset: TypeAlias = Annotated[
    str,
    Meta(min_length=1, max_length=40, description="Charset of bodies that are text, such as gbk; by default utf-8."),
]

PREVIEW_BYTES: Final = 1 << 20
"""A body that is longer when decompressed or unpacked has no preview in a list."""

PREVIEW: Final = 160
"""Characters of a body in a list."""


class Body(msgspec.Struct, rename="camel", kw_only=True):
    """A body, decompressed, and unpacked where an application packed it: `packings` are what was undone (gzip, zstd).

    `kind` is empty, json, text (of the charset asked for, without control characters but a few NULs), binary or
    unreadable. `text` are its first `shown` bytes; of what is no text, or none of UTF-8, `base64` are they too.
    `formatted` is JSON indented, where it is short enough. `size` is in bytes: of what is there where that cannot be
    decompressed or unpacked, for the reason in `error`.
    """

    kind: str
    size: int
    stored_size: int
    compression: str | None
    shown: int
    packings: list[str] = []
    text: str | None = None
    base64: str | None = None
    formatted: str | None = None
    error: str | None = None


def checked_charset(name: str | None) -> str | None:
    """The charset of a parameter; raises `ApiError` for one that is none."""
    try:
        return None if name is None else charset_of(name)
    except ConfigError as error:
        raise bad_parameter("charset", str(error)) from None


def body_of(message: Message, most: int, charset: str | None = None) -> Body:
    """The first `most` bytes of a message's body."""
    stored = len(message.stored_body)
    compression = compression_of(message)
    packings: tuple[str, ...] = ()
    try:
        content, packings, error = unpack(message.decoded_body())
        data = bytes(content)
    except StoreError as failure:
        data, error = bytes(message.stored_body), str(failure)
    body = Body(
        kind="empty", size=len(data), stored_size=stored, compression=compression, shown=0, packings=list(packings),
        error=error,
    )  # fmt: skip
    text = text_in(data, charset)
    if error is not None or (data and text is None):
        shown = data[:most]
        body.kind = "binary" if error is None else "unreadable"
        body.base64, body.shown = base64.b64encode(shown).decode(), len(shown)
    elif data:
        assert text is not None
        body.formatted = indented_json(text)
        body.kind = "text" if not _is_json(data, text, body.formatted) else "json"
        body.text, body.shown = text, len(data)
        if len(data) > most:  # cut between characters
            body.text = characters_in(data[:most], charset, is_cut=True) or ""
            body.shown = len(body.text.encode()) if charset in (None, UTF_8) else most
        if charset not in (None, UTF_8):
            body.base64 = base64.b64encode(data[: body.shown]).decode()
    return body


def compression_of(message: Message) -> str | None:
    """By what a body is compressed, in lower case; None for one that is not."""
    if not message.sys_flag & SysFlag.COMPRESSED or not len(message.stored_body):
        return None
    kind = compression_type(message.sys_flag)
    return "unknown" if kind is None else kind.name.lower()


def preview_of(message: Message, charset: str | None = None) -> str | None:
    """The beginning of a body on one line; None for what is no text, or too long to look into."""
    try:
        content = unpack(message.decoded_body(PREVIEW_BYTES), limit=PREVIEW_BYTES)
    except StoreError:
        return None
    text = text_in(memoryview(content.data)[: PREVIEW * 4], charset, is_cut=len(content.data) > PREVIEW * 4)
    if text is None:
        return None
    line = " ".join(text.split())
    return line if len(line) <= PREVIEW else f"{line[: PREVIEW - 1]}…"


def _is_json(data: bytes, text: str, formatted: str | None) -> bool:
    if formatted is not None:
        return True
    return len(data) > MOST_INDENTED and text.lstrip()[:1] in ("{", "[")
