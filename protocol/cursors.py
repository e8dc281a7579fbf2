"""Cursors: where a list was cut, as a text that clients hand back unread."""

import base64
import binascii
from typing import TypeVar

import msgspec

from protocol.errors import ConfigError

Place = TypeVar("Place")


def encode_cursor(place: object) -> str:
    """A place as text."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def decode_cursor(text: str, kind: type[Place]) -> Place:
    """The place that a cursor stands for. Raises ConfigError for a text that is no cursor."""
    try:
        return msgspec.json.decode(
            base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True), type=kind
        )
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise ConfigError("this is no cursor of an answer to this question") from None
