"""For tests of server processes, without an event loop: a client that waits for each answer, and a look that is
repeated."""

import contextlib
import socket
import time

from protocol.command import decode_command, encode_request
from protocol.frame import FrameDecoder

SECONDS = 180.0


class BlockingClient(contextlib.AbstractContextManager["BlockingClient"]):
    def __init__(self, endpoint) -> None:
        self.socket = socket.create_connection(endpoint, SECONDS)
        self._decoder = FrameDecoder()

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, code, fields=None, body=b""):
        self.socket.sendall(encode_request(code, fields or {}, opaque=1, body=body))
        while True:
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the server closed the connection")
            for command in map(decode_command, self._decoder.feed(data)):
                if command.is_response:
                    return command


def eventually(look, what="", seconds=SECONDS):
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
