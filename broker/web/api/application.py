"""The API as an application: reads a request, has it answered on a thread, and writes the answer or the error."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker.config import installed_version
from broker.security.accounts import Account
from broker.security.audit_log import AuditLog
from broker.service.broker_service import BrokerService
from broker.service.long_polling import HeldPull
from broker.web.api.access import Access, FailedLogin, advice
from broker.web.api.answer_threads import AnswerThreads
from broker.web.api.browse import BrowseAnswer, BrowseQuestion, browse
from broker.web.api.endpoint import ApiEndpoint, Awaited
from broker.web.api.errors import ApiError, ClientGone, refusal_of
from broker.web.api.find import FindAnswer, FindQuestion, find
from broker.web.api.groups import (
    DeadLettersAnswer,
    DeadLettersQuestion,
    GroupsAnswer,
    GroupsQuestion,
    dead_letters,
    groups,
)
from broker.web.api.health import Examinations, HealthAnswer, HealthQuestion
from broker.web.api.histogram import HistogramAnswer, HistogramQuestion, histogram
from broker.web.api.life import LifeAnswer, LifeQuestion, message_life
from broker.web.api.light import LightAnswer, LightQuestion, light_topics
from broker.web.api.looks import (
    AuditedClient,
    Looked,
    look,
    shown_body,
    shown_events,
    shown_largest,
    shown_lines,
    shown_message,
    shown_nothing,
    shown_waiting,
    texts_of,
)
from broker.web.api.messages import (
    BodyQuestion,
    MessageAnswer,
    MessageQuestion,
    QueueMessageQuestion,
    body,
    message,
    queue_message,
)
from broker.web.api.openapi import describe
from broker.web.api.overview import StoreAnswer, StoreQuestion, store
from broker.web.api.pending import PendingAnswer, PendingQuestion, WaitingMessages
from broker.web.api.preview import PreviewAnswer, PreviewQuestion, filter_preview
from broker.web.api.request_context import RequestContext
from broker.web.api.search import SearchAnswer, SearchQuestion, search_content
from broker.web.api.space import SpaceAnswer, SpaceCounts, SpaceQuestion
from broker.web.api.tail import TailAnswer, TailQuestion, growth_questions, tail
from broker.web.api.topics import TopicAnswer, TopicQuestion, TopicsAnswer, TopicsQuestion, topic, topics
from protocol.errors import RocketLensError

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

MOST_HELD: Final = 24
"""Requests that wait for messages; they hold a connection each, of which the port has some dozen."""

GONE: Final = 499
"""The status of an answer to a client that is gone; it is never read."""

SENTENCES: Final = frozenset({"incomplete", "notes", "note", "problem", "groups_problem", "problems", "gone"})
"""Fields of answers that are sentences about the store."""

PLAIN: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
}
"""Headers of every answer: it is not cached, not taken for another type, and not read by other sites' pages."""


class Api:
    """The API of the served stores; all methods are called on the event loop."""

    def __init__(
        self, services: Sequence[BrokerService], access: Access | None = None, audit_log: AuditLog | None = None
    ) -> None:
        """Answer for some stores, the first unless a request names another, to those whom `access` admits.

        Looks at messages are logged in `audit_log`, if there is one.
        """
        self.access = access or Access()
        self._threads = AnswerThreads(services, needs_keys=self.access.accounts is not None)
        self.examinations = Examinations()
        self.waiting_messages = WaitingMessages()
        self._space_counts = SpaceCounts()
        self._held = 0
        self._audit_log = audit_log
        self.endpoints = (
            ApiEndpoint("/store", StoreQuestion, StoreAnswer, store),
            ApiEndpoint("/find", FindQuestion, FindAnswer, find, shown_lines),
            ApiEndpoint("/message", MessageQuestion, MessageAnswer, message, shown_message),
            ApiEndpoint("/message/body", BodyQuestion, bytes, body, shown_body),
            ApiEndpoint("/message/life", LifeQuestion, LifeAnswer, message_life, shown_events),
            ApiEndpoint("/queue/message", QueueMessageQuestion, MessageAnswer, queue_message, shown_message),
            ApiEndpoint("/topics", TopicsQuestion, TopicsAnswer, topics),
            ApiEndpoint("/topic", TopicQuestion, TopicAnswer, topic),
            ApiEndpoint("/groups", GroupsQuestion, GroupsAnswer, groups),
            ApiEndpoint("/dead-letters", DeadLettersQuestion, DeadLettersAnswer, dead_letters),
            ApiEndpoint("/light-topics", LightQuestion, LightAnswer, light_topics),
            ApiEndpoint("/messages", BrowseQuestion, BrowseAnswer, browse, shown_lines),
            ApiEndpoint("/tail", TailQuestion, TailAnswer, tail, shown_lines, growth_questions),
            ApiEndpoint("/histogram", HistogramQuestion, HistogramAnswer, histogram),
            ApiEndpoint("/filter", PreviewQuestion, PreviewAnswer, filter_preview, shown_nothing),
            ApiEndpoint("/search", SearchQuestion, SearchAnswer, search_content, shown_lines),
            ApiEndpoint("/pending", PendingQuestion, PendingAnswer, self.waiting_messages.pending, shown_waiting),
            ApiEndpoint("/space", SpaceQuestion, SpaceAnswer, self._space_counts.space, shown_largest),
            ApiEndpoint("/health", HealthQuestion, HealthAnswer, self.examinations.health),
        )
        self._description = b""

    @property
    def is_idle(self) -> bool:
        """Whether its threads have nothing to do."""
        return self._threads.is_idle

    def close(self) -> None:
        """Answer no more; what is under way ends at its next look at the clock."""
        self._threads.close()
        self.examinations.close()
        self.waiting_messages.close()
        self._space_counts.close()

    def application(self) -> Starlette:
        """The routes below `/api/v1`, for an ASGI server."""
        answers = [(endpoint.path, partial(self._answer, endpoint)) for endpoint in self.endpoints]
        routes = [Route(path, _handler(answer), methods=["GET"]) for path, answer in answers]
        routes.append(Route("/openapi.json", _handler(self._describe), methods=["GET"]))
        application = Starlette(routes=routes, exception_handlers={HTTPException: self._no_such_path})
        application.router.redirect_slashes = False
        return application

    async def _no_such_path(self, request: Request, error: Exception) -> Response:
        """Answer 404 for an unknown path and 405 for another method, only to clients that may ask at all."""
        assert isinstance(error, HTTPException)
        try:
            self.access.admit(request, request.url.path)
        except RocketLensError as refused:
            return _refusal(refusal_of(refused), request)
        code = {404: "no_such_path", 405: "method_not_allowed"}.get(error.status_code, "refused")
        text = f"nothing is at {request.url.path}" if error.status_code == 404 else error.detail
        answer = _refusal(ApiError(error.status_code, code, text), request)
        answer.headers.update(error.headers or {})
        return answer

    async def _describe(self, request: Request) -> Response:
        self.access.admit_page(request)
        if not self._description:
            self._description = describe(self.endpoints, installed_version())
        return Response(self._description, 200, PLAIN, "application/json")

    async def _answer(self, endpoint: ApiEndpoint, request: Request) -> Response:
        """Answer one request of an endpoint. Raises `ApiError`."""
        looker = self.looker(request)
        account = self.admit(endpoint, request, looker)
        question = endpoint.read(request.query_params.multi_items())
        context = self.context(question.broker, account)
        if endpoint.awaits is not None:
            # A context of its own: the one of the request ends with its work.
            before = replace(context, gone=threading.Event())
            await self._wait_for(request, before, partial(endpoint.awaits, before, question))
            # Meanwhile the accounts may have changed.
            context = replace(context, account=self.admit(endpoint, request, looker))
        content = await self.run(request, context, partial(_work, endpoint, context, question, looker))
        if endpoint.answer is not bytes:
            return Response(content, 200, PLAIN, "application/json")
        name = f"message-{getattr(question, 'offset', 0)}.bin"
        headers = {**PLAIN, "Content-Disposition": f'attachment; filename="{name}"'}
        return Response(content, 200, headers, "application/octet-stream")

    def looker(self, request: Request) -> AuditedClient:
        """Return the client of a request, as the audit log names it."""
        peer = "" if request.client is None else request.client.host
        return AuditedClient(self.access.client_address(request) or peer, self._audit_log)

    def admit(self, endpoint: Looked, request: Request, looker: AuditedClient) -> Account | None:
        """Return the account of a request, None for a client that needs no account. Raises `ApiError`."""
        try:
            return self.access.admit(request, endpoint.request.partition(" ")[2])
        except ApiError as error:
            if not (isinstance(error, FailedLogin) and error.is_noted):
                looker.note_refused(endpoint, self._threads.first.broker_name, error)
            raise

    def context(self, broker: str | None, account: Account | None) -> RequestContext:
        """Make the context of a request. Raises `ApiError` for an unknown broker."""
        return self._threads.context(broker, account)

    def service_of(self, broker: str | None) -> BrokerService:
        """Return the service of a broker, by default the first. Raises `ApiError` for an unknown one."""
        return self._threads.service_of(broker)

    async def _wait_for(self, request: Request, context: RequestContext, find: Callable[[], Awaited]) -> None:
        """Wait until one of the questions that `find` gives on a thread has an answer, or the client is gone."""
        awaited = await self.run(request, context, find)
        if not awaited.questions:
            return
        if self._held >= MOST_HELD:
            raise ApiError(503, "busy", f"{MOST_HELD} requests wait for messages already; ask again in a moment")
        polls, queues = context.service.polls, context.store.queues
        held = [polls.hold(each, awaited.seconds, queues) for each in awaited.questions]
        waiting = [asyncio.ensure_future(_outcome(each)) for each in held if isinstance(each, HeldPull)]
        gone = asyncio.ensure_future(_wait_until_gone(request))
        self._held += 1
        try:
            if len(waiting) == len(held):
                await asyncio.wait({gone, *waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._held -= 1
            for each in (gone, *waiting):
                each.cancel()
            for pull in held:
                if isinstance(pull, HeldPull):
                    pull.give_up()
        if gone.done() and not gone.cancelled():
            raise ClientGone

    async def run(self, request: Request, context: RequestContext, work: Callable[[], Result]) -> Result:
        """Have a thread do the work, until it is done, the client is gone, or it takes too long."""
        gone = asyncio.ensure_future(_wait_until_gone(request))
        return await self._threads.run(self.access.client_address(request), context, work, gone)


def _work(endpoint: ApiEndpoint, context: RequestContext, question: Any, looker: AuditedClient) -> bytes:
    """Answer on a thread."""
    shows = endpoint.shows
    answer = look(
        endpoint,
        context,
        question,
        looker,
        lambda: endpoint.work(context, question),
        lambda answer: [] if shows is None else shows(question, answer),
    )
    if isinstance(answer, bytes):
        return answer
    return msgspec.json.encode(with_readable(context, answer, texts_of(question)))


def with_readable(context: RequestContext, answer: Any, asked: Collection[str]) -> Any:
    """An answer whose sentences about the store name no topic that the client may not read."""
    for name in SENTENCES.intersection(answer.__struct_fields__):
        said = getattr(answer, name)
        if isinstance(said, str):
            setattr(answer, name, context.readable(said, asked))
        elif said:
            setattr(answer, name, list(dict.fromkeys(context.readable(each, asked) for each in said)))
    return answer


async def _outcome(pull: HeldPull) -> None:
    await pull


async def _wait_until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _handler(answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Wrap `answer` so that errors become answers; an unexpected one is logged, and answered without inner details."""

    async def handle(request: Request) -> Response:
        started = time.monotonic()
        try:
            return await answer(request)
        except ClientGone:
            return Response(b"", GONE)
        except RocketLensError as error:
            return _refusal(refusal_of(error), request)
        except Exception:
            logger.exception("%s failed after %.3f s", request.url.path, time.monotonic() - started)
            return _refusal(ApiError(500, "internal", "this failed; the server's log has the reason"), request)

    return handle


def _refusal(error: ApiError, request: Request) -> Response:
    headers = dict(PLAIN)
    return Response(error.body(), error.status, headers | advice(error, request), "application/json")
