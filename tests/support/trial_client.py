"""A client of the remoting protocol for trials: requests in, answers out, on one blocking socket.

Nothing here imports the project.
"""

import json
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

PULL, QUERY_CONSUMER_OFFSET, QUERY, VIEW = 11, 14, 12, 33
TIME_SEARCH, MAXIMUM, MINIMUM = 29, 30, 31
SUCCESS, BUSY, NOT_FOUND, RETRY, MOVED = 0, 2, 19, 20, 21
WINDOW = 64
"""Requests that are under way at a time."""


@dataclass(frozen=True)
class Answer:
    """What a request was answered."""

    code: int
    remark: str
    fields: Mapping[str, str]
    body: bytes

    def number(self, name: str) -> int:
        """A header field; -1 where it is missing."""
        return int(self.fields.get(name, -1))


class Closed(Exception):
    """The server closed the connection, or did not answer in time."""


class TrialClient:
    """One connection; `seconds` is how long an answer may take."""

    def __init__(self, address: tuple[str, int], seconds: float = 60.0) -> None:
        self._socket = socket.create_connection(tuple(address), 60)
        self._socket.settimeout(seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._opaque = 0
        self.asked = 0

    def close(self) -> None:
        """Leave."""
        self._socket.close()

    def ask(self, code: int, **fields: object) -> Answer:
        """One answer."""
        (answer,) = self.ask_all([(code, fields)])
        return answer

    def ask_all(self, requests: Iterable[tuple[int, Mapping[str, object]]]) -> Iterator[Answer]:
        """Answers in the order of the requests, of which many are sent at a time."""
        waiting = list(requests)
        for start in range(0, len(waiting), WINDOW):
            window = waiting[start : start + WINDOW]
            first = self._opaque + 1
            self._socket.sendall(b"".join(self._frame(code, fields) for code, fields in window))
            found: dict[int, Answer] = {}
            while len(found) < len(window):
                opaque, answer = self._receive()
                if opaque >= first:
                    found[opaque] = answer
            yield from (found[first + number] for number in range(len(window)))

    def _frame(self, code: int, fields: Mapping[str, object]) -> bytes:
        self._opaque += 1
        self.asked += 1
        texts = {name: str(value) for name, value in fields.items()}
        command = {"code": code, "flag": 0, "language": "JAVA", "opaque": self._opaque, "version": 453}
        header = json.dumps(command | {"extFields": texts}, ensure_ascii=False).encode()
        return (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header

    def _receive(self) -> tuple[int, Answer]:
        size = int.from_bytes(self._take(4), "big")
        frame = self._take(size)
        length = int.from_bytes(frame[1:4], "big")
        header = json.loads(frame[4 : 4 + length])
        if not header["flag"] & 1:
            return -1, Answer(-1, "", {}, b"")
        fields = header.get("extFields") or {}
        return header["opaque"], Answer(header["code"], header.get("remark") or "", fields, frame[4 + length :])

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            try:
                piece = self._socket.recv(1 << 18)
            except TimeoutError as error:
                raise Closed("no answer in time") from error
            if not piece:
                raise Closed("the server closed the connection")
            self._received += piece
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken
