"""Stands between a client and a store of objects, and does to answers what the network and a busy store do.

Which answers are spoiled, and how, follows from a seed: one in some is a 503, is cut in the middle, or holds fewer
bytes than were asked for while it claims to be whole. No request for the same bytes is spoiled after the second one.
What writes is refused, or done and never answered.
"""

import contextlib
import http.client
import random
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

BUSY = "busy"
CUT = "cut"
SHORT = "short"
FAULTS = (BUSY, CUT, SHORT)
LOST = "lost"
WRITE_FAULTS = (BUSY, LOST)
READS = ("GET", "HEAD")
MOST_ON_ONE = 2
SLOW_DOWN = b"<Error><Code>ServiceUnavailable</Code><Message>Busy.</Message></Error>"


class FaultPlan:
    """Which answers are spoiled: a `share` of them by chance, and all to paths that end with `never`.

    With `writes` those to writes are, too; the first write of a path that ends with `lost` is done and not answered.
    """

    def __init__(self, seed: int, share: float, never: str = "", *, writes: bool = False, lost: str = "") -> None:
        self.done: Counter[str] = Counter()
        self._seed, self._share, self._never = seed, share, never
        self._writes, self._lost = writes, lost
        self._asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    def fault(self, method: str, path: str, byte_range: str) -> str:
        """The fault of the next answer, nothing for none; bytes are only lacking where a range was asked for."""
        with self._lock:
            if self._never and urlsplit(path).path.endswith(self._never) and method == "GET":
                return self._note(BUSY)
            inside = "/".join(path.split("/")[3:])  # without the names of the bucket and the store
            asked = f"{method} {inside} {byte_range}"
            self._asked[asked] += 1
            # By what is asked for, not by when: threads ask in any order.
            if self._lost and method == "PUT" and urlsplit(path).path.endswith(self._lost) and self._asked[asked] == 1:
                return self._note(LOST)
            chance = random.Random(f"{self._seed} {asked} {self._asked[asked]}")
            if chance.random() >= self._share or self._asked[asked] > MOST_ON_ONE:
                return ""
            if method not in READS:
                return self._note(chance.choice(WRITE_FAULTS)) if self._writes else ""
            return self._note(chance.choice(FAULTS) if byte_range else BUSY)

    def _note(self, fault: str) -> str:
        self.done[fault] += 1
        return fault


class _Handler(BaseHTTPRequestHandler):
    """Hands one request on, unless it is refused."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    plan: FaultPlan
    target: tuple[str, int]

    def handle_expect_100(self) -> bool:
        """Have a client that waits for leave to send its body get it at once, past the buffer."""
        goes_on = super().handle_expect_100()
        self.wfile.flush()
        return goes_on

    def _hand_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.plan.fault(self.command, self.path, self.headers.get("Range", ""))
        if fault == BUSY:
            self._send(503, [], b"" if self.command == "HEAD" else SLOW_DOWN)
            return
        with contextlib.closing(http.client.HTTPConnection(*self.target)) as upstream:
            upstream.request(self.command, self.path, body, dict(self.headers.items()))
            answer = upstream.getresponse()
            data = answer.read()
        if fault == LOST:
            self.close_connection = True
            return
        headers = [
            (name, value)
            for name, value in answer.getheaders()
            if name.lower() not in ("connection", "transfer-encoding", "server", "date")
        ]
        if fault == SHORT:
            data = data[: len(data) // 2]
        if fault == SHORT or self.command != "HEAD":
            headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
            headers.append(("Content-Length", str(len(data))))
        self._send(answer.status, headers, data[: len(data) // 2] if fault == CUT else data)
        if fault == CUT:
            self.close_connection = True

    def _send(self, status: int, headers: list[tuple[str, str]], data: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in headers):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
        self.wfile.flush()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _hand_on  # noqa: N815 — names of http.server

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def faulty_proxy(endpoint: str, plan: FaultPlan) -> Iterator[str]:
    """Run one before an endpoint; its own."""
    address = urlsplit(endpoint)
    assert address.hostname is not None
    assert address.port is not None
    fields = {"plan": plan, "target": (address.hostname, address.port)}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), fields))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
