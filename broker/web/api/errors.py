"""Refusals of the API: an HTTP status, a code for programs, a sentence for people, and the parameter that is wrong."""

from collections.abc import Sequence

import msgspec

from protocol.errors import RocketLensError


class ErrorDetail(msgspec.Struct, rename="camel"):
    """The reason why there is no answer; `parameter` names the one that is wrong, if any.

    `similar_topics` may have been meant, the most alike first.
    """

    code: str
    message: str
    parameter: str | None = None
    similar_topics: list[str] = []


class ErrorAnswer(msgspec.Struct, rename="camel"):
    """The body of every answer that is no success."""

    error: ErrorDetail


class ApiError(RocketLensError):
    """An error that is the answer to a request."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        parameter: str | None = None,
        similar_topics: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_seconds = 1
        """Seconds after which a client that was refused for now (429, 503) may ask again."""
        self.detail = ErrorDetail(code, message, parameter, list(similar_topics))

    def body(self) -> bytes:
        """The answer as JSON."""
        return msgspec.json.encode(ErrorAnswer(self.detail))


class ClientGone(Exception):
    """The client that asked is gone."""


def refusal_of(error: RocketLensError) -> ApiError:
    """Make the answer to a request that caused an error."""
    return error if isinstance(error, ApiError) else ApiError(503, "store_error", str(error))


def bad_parameter(parameter: str, message: str) -> ApiError:
    """Make the error for a parameter whose value is not valid."""
    return ApiError(400, "bad_parameter", message, parameter)


def not_found(message: str, parameter: str | None = None, similar_topics: Sequence[str] = ()) -> ApiError:
    """Make the error for something that the store does not have, perhaps with `similar_topics`."""
    return ApiError(404, "not_found", message, parameter, similar_topics)


def forbidden(message: str) -> ApiError:
    """The error for something that the account may not see."""
    return ApiError(403, "forbidden", message)
