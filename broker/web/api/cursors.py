"""Cursors of the API, whose errors name the parameter."""

from typing import TypeVar

from broker.web.api.errors import bad_parameter
from protocol import cursors
from protocol.errors import ConfigError

Place = TypeVar("Place")

encode_cursor = cursors.encode_cursor


def decode_cursor(text: str, kind: type[Place]) -> Place:
    """The place that a cursor stands for. Raises `ApiError` for a text that is no cursor."""
    try:
        return cursors.decode_cursor(text, kind)
    except ConfigError as error:
        raise bad_parameter("cursor", str(error)) from None
