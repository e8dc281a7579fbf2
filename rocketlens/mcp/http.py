"""MCP over HTTP (Streamable HTTP): one path of the page's port, at which assistants POST their messages.

Each message is a request by itself, of either revision; there are no sessions, so GET and DELETE are refused. Hosts,
logins, rights, masks, threads, deadlines and the audit log are those of the page's API. A client that asks for progress
and takes a stream of events gets one; a connection that is closed cancels.
"""

import asyncio
import base64
import binascii
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from broker.config import installed_version
from broker.security.accounts import Account
from broker.web.api.access import advice
from broker.web.api.application import PLAIN, Api
from broker.web.api.errors import ClientGone, refusal_of
from broker.web.api.looks import AuditedClient, look, texts_of
from broker.web.api.request_context import RequestContext
from protocol.errors import RocketLensError
from rocketlens.mcp.rpc import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    UNSUPPORTED_VERSION,
    JsonObject,
    RpcError,
    RpcId,
    RpcMessage,
    parse_message,
    result_of,
)
from rocketlens.mcp.served import ServedSource, sentences_read
from rocketlens.mcp.server import LEGACY, META, MODERN, McpServer, ToolCall, is_modern, said
from rocketlens.mcp.tool_context import ToolContext

logger = logging.getLogger(__name__)

Kept = TypeVar("Kept")

PATH: Final = "/mcp"
VERSION: Final = "mcp-protocol-version"
EVENTS: Final = "text/event-stream"
JSON: Final = "application/json"

NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The methods whose requests have a name in a header, and the parameter that it is."""


@dataclass(frozen=True, slots=True)
class AssistantRequest:
    """A message as an audit log has it; `shows` None: no message of a store is shown."""

    tool: str = ""
    shows: object = True

    @property
    def request(self) -> str:
        """What was asked, as far as it is known."""
        return f"POST {PATH} {self.tool}".rstrip()


class HttpToolContext(ToolContext):
    """A call that came in by HTTP: it works on a thread of the page's."""

    def __init__(self, api: Api, base: RequestContext, token: RpcId | None, send: Callable[[JsonObject], None]) -> None:
        super().__init__(token, send)
        self.request, self._api = base, api

    def allow(self, seconds: float) -> None:
        """Set how long the work may take."""
        super().allow(seconds)
        self.request.allow(int(seconds * 1000))

    @property
    def is_cancelled(self) -> bool:
        """Whether the client is gone, or the server stops."""
        return self.request.gone.is_set()

    def source(self, store: str | None) -> ServedSource:
        """What is served under the name of a broker, by default the first."""
        self.request.ask(self._api.service_of(store))
        return ServedSource(self._api, self.request)

    def stores(self) -> list[str]:
        """The names of all brokers."""
        return list(self.request.brokers)

    def kept(self, key: str, work: Callable[[], Kept], *, goes_on: bool) -> Kept:
        """Do it here: what takes longer is kept by the server itself."""
        self.request.check()
        return work()


class Assistants:
    """Answers for the stores of an API."""

    def __init__(self, api: Api, server: McpServer) -> None:
        self._api, self._server = api, server

    def route(self) -> Route:
        """Where it answers."""
        return Route(PATH, self.answer, methods=["POST"])

    async def answer(self, request: Request) -> Response:
        """Answer one message."""
        message: RpcMessage | None = None
        looker = self._api.looker(request)
        try:
            account = self._api.admit(AssistantRequest(), request, looker)
            if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
                raise RpcError(INVALID_REQUEST, f"Content-Type: expected {JSON}", status=415)
            message = parse_message(await request.body())
            if message is None or message.id is None:
                return Response(b"", 202, PLAIN)
            _check_headers(request, message)
            answer = self._server.answer(message)
            if not isinstance(answer, ToolCall):
                return _json(result_of(message.id, answer))
            return await self._work(request, message, answer, account, looker)
        except RpcError as error:
            return _json(error.answer(None if message is None else message.id), error.status)
        except ClientGone:
            return Response(b"", 499)
        except RocketLensError as error:
            refused = refusal_of(error)
            body = RpcError(INTERNAL_ERROR, str(refused)).answer(None if message is None else message.id)
            return _json(body, refused.status, advice(refused, request))
        except Exception:
            logger.exception("%s failed", PATH)
            failed = RpcError(INTERNAL_ERROR, "this failed; the server's log has the reason")
            return _json(failed.answer(None if message is None else message.id), 500)

    async def _work(
        self, request: Request, message: RpcMessage, call: ToolCall, account: Account | None, looker: AuditedClient
    ) -> Response:
        base = self._api.context(None, account)
        if message.progress_token is None or EVENTS not in request.headers.get("accept", ""):
            context = HttpToolContext(self._api, base, None, lambda _message: None)
            work = partial(self._done, message, call, context, looker)
            return _json(await self._api.run(request, base, work))
        return StreamingResponse(
            self._events(request, message, call, base, looker),
            media_type=EVENTS,
            headers={**PLAIN, "X-Accel-Buffering": "no"},
        )

    async def _events(
        self, request: Request, message: RpcMessage, call: ToolCall, base: RequestContext, looker: AuditedClient
    ) -> AsyncIterator[bytes]:
        """The notifications about a call, as it works, and its answer."""
        loop, events = asyncio.get_running_loop(), asyncio.Queue[JsonObject]()

        def send(message: JsonObject) -> None:
            loop.call_soon_threadsafe(events.put_nowait, message)

        context = HttpToolContext(self._api, base, message.progress_token, send)
        running = asyncio.ensure_future(
            self._api.run(request, base, partial(self._done, message, call, context, looker))
        )
        try:
            while not running.done():
                come = asyncio.ensure_future(events.get())
                await asyncio.wait({running, come}, return_when=asyncio.FIRST_COMPLETED)
                if come.done():
                    yield _event(come.result())
                else:
                    come.cancel()
            while not events.empty():
                yield _event(events.get_nowait())
            try:
                yield _event(running.result())
            except ClientGone:
                return
            except RocketLensError as error:
                yield _event(RpcError(INTERNAL_ERROR, str(error)).answer(message.id))
        finally:
            base.gone.set()
            running.cancel()

    def _done(self, message: RpcMessage, call: ToolCall, context: HttpToolContext, looker: AuditedClient) -> JsonObject:
        """Work on a thread; what was looked at is written down before it is shown."""
        from rocketlens.mcp.tools import TOOL_OF_NAME  # what the tools need is loaded with the first call

        looked = AssistantRequest(call.name, True if TOOL_OF_NAME[call.name].shows else None)
        asked = {name: value for name, value in call.arguments.items() if isinstance(value, str | int | float)}
        try:
            fields = look(looked, context.request, asked, looker, lambda: call.work(context), _offsets_in)
        except RocketLensError as error:
            return self._made(message, call.refused, error, said(error))
        except ClientGone:
            raise
        except Exception:
            logger.exception("%s failed", call.name)
            return RpcError(INTERNAL_ERROR, "this failed; the server's log has the reason").answer(message.id)
        if context.request.account is not None:
            sentences_read(context.request, fields, texts_of(asked))
        return self._made(message, call.result, fields)

    def _made(self, message: RpcMessage, make: Callable[..., JsonObject], *of: object) -> JsonObject:
        """The answer to a message: its result, or the error in place of it."""
        try:
            return result_of(message.id, self._server.complete(message, make(*of)))
        except RpcError as error:
            return error.answer(message.id)


def assistants(api: Api) -> list[Route]:
    """What the HTTP port answers besides, where `serve` has --mcp."""
    return [Assistants(api, McpServer(installed_version())).route()]


def _offsets_in(fields: JsonObject) -> list[int]:
    """The physical offsets of the messages in an answer, each once."""
    return sorted(set(_offsets_below(fields)))


def _offsets_below(value: object) -> Iterator[int]:
    if isinstance(value, dict):
        if "storeTimestamp" in value:
            yield value["physicalOffset"]
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _offsets_below(each)


def _check_headers(request: Request, message: RpcMessage) -> None:
    """Check that the headers say what the body says. Raises :class:`RpcError`."""
    version = request.headers.get(VERSION)
    if not is_modern(message):
        if version is None or version in LEGACY or message.method == "initialize":
            return
        if version == MODERN:
            raise RpcError(INVALID_PARAMS, f"_meta: {META}protocolVersion is missing", status=400)
        data = {"supported": [MODERN], "requested": version}
        raise RpcError(UNSUPPORTED_VERSION, "unsupported protocol version", data=data, status=400)
    if version != message.meta[f"{META}protocolVersion"]:
        raise RpcError(HEADER_MISMATCH, f"MCP-Protocol-Version {version!r} is not what the body says", status=400)
    if request.headers.get("mcp-method") != message.method:
        raise RpcError(HEADER_MISMATCH, "Mcp-Method is missing, or not the method of the body", status=400)
    if message.method in NAMED:
        name = message.params.get(NAMED[message.method])
        if _decoded(request.headers.get("mcp-name")) != name or name is None:
            raise RpcError(HEADER_MISMATCH, "Mcp-Name is missing, or not what the body names", status=400)


def _decoded(header: str | None) -> str | None:
    """A header that may be spelled in base64; None for what is none."""
    if header is None or not (header.startswith("=?base64?") and header.endswith("?=")):
        return header
    try:
        return base64.b64decode(header[len("=?base64?") : -len("?=")], validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def _json(message: JsonObject, status: int = 200, more: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(message), status, {**PLAIN, **(more or {})}, JSON)


def _event(message: JsonObject) -> bytes:
    return b"event: message\ndata: " + msgspec.json.encode(message) + b"\n\n"
