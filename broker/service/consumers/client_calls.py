"""Requests that the server makes of a client, for somebody who asks what only that client knows.

The client answers on its own connection, with the opaque of our request; an answer that nobody waits for, or that comes
on another connection, is dropped. Source: remoting-protocol §1.4, §1.14.

Apart from the service, which makes it: the transport and the workers hand answers to it, and it knows no store.
"""

import asyncio
import itertools
from collections.abc import Mapping

from broker.service.dispatcher import ClientConnection
from protocol.command import Command, Response, encode_request, ext_fields_of

CALL_SECONDS = 10.0
"""How long a client may take, as a broker gives it; mqadmin waits 15 seconds for us."""


class ClientCalls:
    """The calls of one server that clients have not answered yet; `ask` and `answered` on the event loop."""

    def __init__(self, timeout_seconds: float = CALL_SECONDS) -> None:
        self._timeout_seconds = timeout_seconds
        self._opaques = itertools.count(1)
        self._waiting: dict[int, tuple[ClientConnection, asyncio.Future[Command | None]]] = {}

    async def ask(
        self, connection: ClientConnection, code: int, fields: Mapping[str, str], body: bytes = b""
    ) -> Response | None:
        """What the client of `connection` answers, None when it does not in time or is gone.

        Raises `BadHeader` for an answer whose fields are none.
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
        """Hand on what a client answered."""
        asked, future = self._waiting.get(command.opaque, (None, None))
        if asked is connection and future is not None and not future.done():
            future.set_result(command)

    def connection_lost(self, connection: ClientConnection) -> None:
        """Wait no longer for what the client of a connection that is gone would answer."""
        for asked, future in self._waiting.values():
            if asked is connection and not future.done():
                future.set_result(None)
