"""Requests that this server sends to a client, because another client asked for something that only that client knows.

The client answers on its own connection, with the opaque of our request. An answer that no request waits for, or that
comes on another connection, is dropped. Source: remoting-protocol §1.4, §1.14.

This is a module apart from the service because the transport and the workers pass answers to it, and it needs no store.
"""

import asyncio
import itertools
from collections.abc import Mapping

from broker.service.dispatcher import ClientConnection
from protocol.command import Command, Response, encode_request, ext_fields_of

CALL_SECONDS = 10.0
"""Seconds that a client may take for an answer, as long as a broker waits; mqadmin waits 15 seconds for us."""


class ClientCalls:
    """The requests of one server that clients have not answered yet. Its methods are called on the event loop."""

    def __init__(self, timeout_seconds: float = CALL_SECONDS) -> None:
        self._timeout_seconds = timeout_seconds
        self._opaques = itertools.count(1)
        self._waiting: dict[int, tuple[ClientConnection, asyncio.Future[Command | None]]] = {}

    async def ask(
        self, connection: ClientConnection, code: int, fields: Mapping[str, str], body: bytes = b""
    ) -> Response | None:
        """Return the answer of the client of `connection`; None when it is gone or does not answer in time.

        Raises `BadHeader` for an answer whose header fields cannot be read.
        """
        opaque = next(self._opaques) & 0x7FFFFFFF
        future: asyncio.Future[Command | None] = asyncio.get_running_loop().create_future()
        self._waiting[opaque] = connection, future
        connection.push(encode_request(code, fields, opaque=opaque, body=body))
        try:
            async with asyncio.timeout(self._timeout_seconds):
                command = await future
        except TimeoutError:
            return None
        finally:
            del self._waiting[opaque]
        if command is None:
            return None
        return Response(command.code, command.remark, ext_fields_of(command) or None, command.body)

    def answered(self, connection: ClientConnection, command: Command) -> None:
        """Pass a client's answer to the call of `ask` that waits for it."""
        asked, future = self._waiting.get(command.opaque, (None, None))
        if asked is connection and future is not None and not future.done():
            future.set_result(command)

    def connection_lost(self, connection: ClientConnection) -> None:
        """Stop waiting for answers on a connection that is gone."""
        for asked, future in self._waiting.values():
            if asked is connection and not future.done():
                future.set_result(None)
