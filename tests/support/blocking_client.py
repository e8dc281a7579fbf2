"""For tests of server processes, without an event loop: a client that waits for each answer, and a look that is
repeated."""

import contextlib
import socket
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from broker.endpoint import Endpoint
from protocol.command import Command, decode_command, encode_request
from protocol.frame import FrameDecoder

Found = TypeVar("Found")
SECONDS = 180.0


class BlockingClient(contextlib.AbstractContextManager["BlockingClient"]):
    def __init__(self, endpoint: Endpoint) -> None:
        self.socket = socket.create_connection(endpoint, SECONDS)
        self._decoder = FrameDecoder()

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, code: int, fields: Mapping[str, str] | None = None, body: bytes = b"") -> Command:
        """The answer to a request; what the server asks in turn is passed over."""
        self.socket.sendall(encode_request(code, fields or {}, opaque=1, body=body))
        while True:
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the server closed the connection")
            for command in map(decode_command, self._decoder.feed(data)):
                if command.is_response:
                    return command


def eventually(look: Callable[[], Found], what: str = "", seconds: float = SECONDS) -> Found:
    """What a look finds once it is something; TimeoutError saying `what` was waited for.

    Between two looks it waits three times as long as one took, up to a second: some have a JVM work for it.
    """
    deadline = time.monotonic() + seconds
    while True:
        start = time.monotonic()
        if found := look():
            return found
        end = time.monotonic()
        if end > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what or look}")
        time.sleep(min(1.0, max(0.02, 3 * (end - start))))
