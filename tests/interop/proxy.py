"""A TCP proxy that notes every remoting frame it passes on, for tests that assert what a client asked."""

import contextlib
import itertools
import socket
import threading
import time
from dataclasses import dataclass

from interop.wire import Frame, FrameSplitter


@dataclass(frozen=True)
class Passed:
    timestamp_seconds: float
    to_server: bool
    frame: Frame
    connection: int


class RecordingProxy:
    def __init__(self, address: tuple[str, int], target: tuple[str, int] | None) -> None:
        """Binds at once (OSError when the address is taken); `recording_proxy` serves and closes.

        Without a ``target`` connections are refused by closing them until one is set.
        """
        self.target = target
        self.passed: list[Passed] = []
        self._listener = socket.create_server(address, family=_family(address))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)

    def request_codes(self) -> list[int]:
        return [passed.frame.code for passed in self.passed if passed.to_server and not passed.frame.is_response]

    def forget(self) -> None:
        """Starts a new record, in the same list: a pump that just notes a frame must not bring the old one back."""
        self.passed.clear()

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _connect(self, client: socket.socket) -> None:
        with client:
            if self.target is None:
                return
            try:
                server = socket.create_connection(self.target)
            except OSError:
                return
            with server:
                with self._lock:
                    self._open |= {client, server}
                number = next(self._numbers)
                back = threading.Thread(target=self._pump, args=(server, client, False, number), daemon=True)
                back.start()
                self._pump(client, server, True, number)
                back.join()
                with self._lock:
                    self._open -= {client, server}

    def _pump(self, source: socket.socket, sink: socket.socket, to_server: bool, connection: int) -> None:
        """Frames are noted before they are passed on, so that who has the answer finds the request in the record."""
        splitter = FrameSplitter()
        with contextlib.suppress(OSError):
            while chunk := source.recv(1 << 16):
                self.passed += [Passed(time.time(), to_server, frame, connection) for frame in splitter.feed(chunk)]
                sink.sendall(chunk)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def recording_proxy(target, address=("127.0.0.1", 0)):
    """A `RecordingProxy` that serves while the ``with`` block runs; port 0 takes a free one (see ``.address``)."""
    proxy = RecordingProxy(address, target)
    thread = threading.Thread(target=proxy.serve, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join()


def _family(address: tuple[str, int]) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address[0] else socket.AF_INET
