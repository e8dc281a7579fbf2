"""A message's body as the API shows it: decompressed, unpacked, with its kind, cut to the length that was requested."""

import base64
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from broker.web.api.errors import bad_parameter
from protocol.body_content import MOST_INDENTED, UTF_8, characters_in, charset_of, indented_json, looks_like, text_in
from protocol.compression import Budget
from protocol.errors import ConfigError
from protocol.message import Message
from protocol.sys_flag import SysFlag, compression_type

Charset: TypeAlias = Annotated[
    str,
    Meta(min_length=1, max_length=40, description="Charset of bodies that are text, such as gbk; by default utf-8."),
]

PREVIEW: Final = 160
"""Characters of a body in a list; a body that is too long to look into has no preview."""


class Body(msgspec.Struct, rename="camel", kw_only=True):
    """A body, decompressed, and unpacked where an application packed it: `packings` are what was undone (gzip, zstd).

    `kind` is empty, json, text (of the charset asked for, without control characters but a few NULs), binary or
    unreadable. `text` has its first `shown` bytes; `base64` has them too where they are no text of UTF-8.
    `formatted` is indented JSON, if it is short enough. `size` is in bytes, as stored where the body cannot be
    decompressed or unpacked; `error` has the reason. `note` says that it is not compressed as sysFlag says,
    `looks_like` in which charset it seems to be where it is no text of the one asked for.
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
    looks_like: str | None = None
    note: str | None = None
    error: str | None = None


def checked_charset(name: str | None) -> str | None:
    """The charset of a parameter; raises `ApiError` if it is not valid."""
    try:
        return None if name is None else charset_of(name)
    except ConfigError as error:
        raise bad_parameter("charset", str(error)) from None


def body_of(message: Message, most: int, charset: str | None = None) -> Body:
    """Return the first `most` bytes of a message's body; its kind is decided by them, or by a longer beginning."""
    data, packings, error, note = message.content()
    size = len(data)
    body = Body(
        kind="empty", size=size, stored_size=len(message.stored_body), compression=compression_of(message), shown=0,
        packings=list(packings), note=note, error=error,
    )  # fmt: skip
    head = bytes(data[: max(most, MOST_INDENTED)])
    text = None if error is not None else text_in(head, charset, is_cut=size > len(head))
    if error is not None or (size and text is None):
        shown = head[:most]
        body.looks_like = looks_like(head)
        body.kind = "binary" if error is None else "unreadable"
        body.base64, body.shown = base64.b64encode(shown).decode(), len(shown)
    elif size:
        assert text is not None
        body.formatted = indented_json(text) if size == len(head) else None
        is_long_json = size > MOST_INDENTED and text.lstrip()[:1] in ("{", "[")
        body.kind = "json" if body.formatted is not None or is_long_json else "text"
        body.text, body.shown = text, size
        if size > most:  # cut between characters
            body.text = characters_in(head[:most], charset, is_cut=True) or ""
            body.shown = len(body.text.encode()) if charset in (None, UTF_8) else most
        if charset not in (None, UTF_8):
            body.base64 = base64.b64encode(head[: body.shown]).decode()
    return body


def compression_of(message: Message) -> str | None:
    """Name the compression of a body in lower case; None for a body that is not compressed."""
    if not message.sys_flag & SysFlag.COMPRESSED or not len(message.stored_body):
        return None
    kind = compression_type(message.sys_flag)
    return "unknown" if kind is None else kind.name.lower()


def text_of(message: Message, charset: str | None = None) -> str | None:
    """Return the whole body as text; None if it is no text, or too long to look into."""
    content = message.content(Budget.of_list())
    return None if content.error is not None else text_in(content.data, charset)


def preview_of(message: Message, charset: str | None = None) -> str | None:
    """Return the beginning of a body on one line; None if it is no text, or too long to look into."""
    content = message.content(Budget.of_list())
    if content.error is not None:
        return None
    text = text_in(memoryview(content.data)[: PREVIEW * 4], charset, is_cut=len(content.data) > PREVIEW * 4)
    if text is None:
        return None
    line = " ".join(text.split())
    return line if len(line) <= PREVIEW else f"{line[: PREVIEW - 1]}…"
