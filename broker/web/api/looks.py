"""Which messages an answer of the API shows, and the line about it in the audit log."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import msgspec

from broker.security.audit_log import AuditLog, Look, cut, now
from broker.web.api.errors import ApiError, ClientGone, refusal_of
from broker.web.api.request_context import RequestContext
from protocol.errors import RocketLensError
from storage.patterns.processes import PatternsStopped

Result = TypeVar("Result")

TOO_MANY: Final = 429


def shown_lines(_question: Any, answer: Any) -> list[int]:
    """Physical offsets of the messages in a list."""
    return [line.physical_offset for line in answer.messages]


def shown_message(_question: Any, answer: Any) -> list[int]:
    """The physical offset of one message."""
    return [answer.physical_offset]


def shown_body(question: Any, _answer: bytes) -> list[int]:
    """The physical offset of the message whose body was asked for."""
    return [question.offset]


def shown_events(_question: Any, answer: Any) -> list[int]:
    """Physical offsets of the records of one message's life."""
    return [event.message.physical_offset for event in answer.events if event.message is not None]


def shown_waiting(_question: Any, answer: Any) -> list[int]:
    """Physical offsets of messages that wait."""
    return [line.message.physical_offset for line in answer.messages]


def shown_largest(_question: Any, answer: Any) -> list[int]:
    """Physical offsets of the largest messages."""
    return [] if answer.outcome is None else [line.physical_offset for line in answer.outcome.largest]


def shown_nothing(_question: Any, _answer: Any) -> list[int]:
    """Return no offsets: counting messages by their content is logged as a look, though no message is shown."""
    return []


class Looked(Protocol):
    """What was asked: as an audit log has it, and whether it is about messages (None: it is not written down)."""

    @property
    def request(self) -> str:
        """The request."""

    @property
    def shows(self) -> object:
        """None for what shows no message."""


def _code_of(error: RocketLensError) -> str:
    return error.detail.code.upper() if isinstance(error, ApiError) else "STORE_ERROR"


@dataclass(frozen=True, slots=True)
class AuditedClient:
    """A client of the API by its address, with the audit log of its looks, if there is one."""

    client: str
    audit_log: AuditLog | None

    def note_refused(self, endpoint: Looked, broker: str, error: ApiError) -> None:
        """Log that a client without rights wanted to look. Raises `AuditError`, which becomes the answer."""
        # A request that is refused after too many guesses is no look; the guesses themselves are logged.
        if self.audit_log is not None and endpoint.shows is not None and error.status != TOO_MANY:
            request, result = endpoint.request, error.detail.code.upper()
            self.audit_log.write(Look(now(), broker, None, self.client, request, result, {}, 0, (), cut(str(error))))

    def note(
        self,
        endpoint: Looked,
        context: RequestContext,
        question: Any,
        offsets: list[int],
        error: RocketLensError | None = None,
    ) -> None:
        """Log one look. Raises `AuditError`, which becomes the answer."""
        if self.audit_log is None or endpoint.shows is None:
            return
        fields = {name: value for name, value in msgspec.to_builtins(question).items() if value is not None}
        line = Look(
            now(),
            context.service.broker_name,
            None if context.account is None else context.account.access_key,
            self.client,
            endpoint.request,
            "SUCCESS" if error is None else _code_of(error),
            {name: cut(value) if isinstance(value, str) else value for name, value in fields.items()},
            len(offsets),
            offsets,
            None if error is None else cut(str(error)),
        )
        self.audit_log.write(line)


def look(
    endpoint: Looked,
    context: RequestContext,
    question: Any,
    looker: AuditedClient,
    work: Callable[[], Result],
    shown: Callable[[Result], list[int]],
) -> Result:
    """What a work finds, on a thread, which may wait for the disk; how it ended is logged before it is shown.

    Nothing is found where a file of the store was cut meanwhile: it may be made of zeros. Raises RocketLensError, whose
    text names no topic that the client may not read.
    """
    context.check()
    try:
        found = context.uncut(work)
    except PatternsStopped:
        raise ClientGone from None
    except RocketLensError as error:
        looker.note(endpoint, context, question, [], error)
        refusal = refusal_of(error)
        said = context.readable(str(refusal), texts_of(question))
        if said != str(refusal):
            raise ApiError(refusal.status, refusal.detail.code, said) from None
        raise
    looker.note(endpoint, context, question, shown(found))
    return found


def texts_of(question: Any) -> set[str]:
    """The texts of a question: what they name, its answer may name too."""
    return {value for value in msgspec.to_builtins(question).values() if isinstance(value, str)}
