"""The `Status` of an answer: which code stands for which error.

Answers have a status of their own, and a call whose answer has one ends with OK for gRPC, as at the official proxy.
"""

import logging
from typing import Final

from broker.grpc.messages.definition_pb2 import Code, Status
from broker.security.logins import LoginRefused, TooManyLogins
from broker.service.registry_budget import BudgetSpent
from broker.web.api.errors import ApiError, ClientGone
from protocol.errors import BeingSearched, ConfigError, FilterSyntaxError, RocketLensError
from protocol.header_fields import well_formed

logger = logging.getLogger(__name__)

OK: Final = Status(code=Code.OK, message="OK")

_BY_HTTP: Final = {
    400: Code.BAD_REQUEST,
    401: Code.UNAUTHORIZED,
    403: Code.FORBIDDEN,
    404: Code.NOT_FOUND,
    429: Code.TOO_MANY_REQUESTS,
}
_BY_CODE: Final = {"busy": Code.TOO_MANY_REQUESTS, "slow": Code.PROXY_TIMEOUT}
_BY_PARAMETER: Final = {"topic": Code.TOPIC_NOT_FOUND, "group": Code.CONSUMER_GROUP_NOT_FOUND}
_BAD: Final = {
    "tag": Code.ILLEGAL_FILTER_EXPRESSION,
    "sql": Code.ILLEGAL_FILTER_EXPRESSION,
    "topic": Code.ILLEGAL_TOPIC,
    "group": Code.ILLEGAL_CONSUMER_GROUP,
    "liteTopic": Code.ILLEGAL_LITE_TOPIC,
}


class CallRefused(RocketLensError):
    """An error with the code that answers it."""

    def __init__(self, code: "Code", message: str) -> None:
        super().__init__(message)
        self.code = code


class CallUnserved(RocketLensError):
    """A call that is not served, with the reason."""


def status_of(error: BaseException) -> Status:
    """The status that stands for an error; one that is not ours is logged, and says nothing of what is inside."""
    if isinstance(error, ClientGone):
        return Status(code=Code.INTERNAL_SERVER_ERROR, message="the server stops")
    if not isinstance(error, RocketLensError):
        logger.error("a call by gRPC failed", exc_info=error)
        return Status(code=Code.INTERNAL_SERVER_ERROR, message="this failed; the server's log has the reason")
    return Status(code=_code_of(error), message=well_formed(str(error)))


def _code_of(error: RocketLensError) -> "Code":
    if isinstance(error, CallRefused):
        return error.code
    if isinstance(error, ApiError):
        if error.status == 400:
            return _BAD.get(error.detail.parameter or "", Code.BAD_REQUEST)
        if error.status == 404:
            return _BY_PARAMETER.get(error.detail.parameter or "", Code.NOT_FOUND)
        return _BY_CODE.get(error.detail.code) or _BY_HTTP.get(error.status, Code.INTERNAL_SERVER_ERROR)
    if isinstance(error, LoginRefused):
        return Code.UNAUTHORIZED
    if isinstance(error, TooManyLogins | BudgetSpent | BeingSearched):
        return Code.TOO_MANY_REQUESTS
    if isinstance(error, FilterSyntaxError):
        return Code.ILLEGAL_FILTER_EXPRESSION
    return Code.BAD_REQUEST if isinstance(error, ConfigError) else Code.INTERNAL_SERVER_ERROR
