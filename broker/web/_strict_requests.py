"""A strict reader of requests, so that a proxy in front cannot read a request in another way than we do.

h11 reads what RFC 9112 allows a lenient server. Here a request has no body, however announced, but a POST to a path
that takes one, with its one length and up to :data:`BODY_BYTES`; whole line ends, no folded header, its target is a
path, and its headers are bounded.
"""

from collections.abc import Collection
from typing import Any, Final

import h11

HEADER_BYTES: Final = 16 * 1024
"""Bytes of a request line and its headers, in one piece or many; more are answered 400."""

BODY_BYTES: Final = 256 * 1024
"""Bytes of a body, where one is taken."""

VERSIONS: Final = (b"1.0", b"1.1")


class StrictRequests(h11.Connection):
    """The server's end of a connection, as that of h11, which also bounds requests that come in one piece.

    `is_head`: whether the request that came last is a HEAD, whose answer has no body.
    """

    is_head = False

    def __init__(self, body_paths: Collection[bytes] = ()) -> None:
        """Take bodies at some paths."""
        super().__init__(h11.SERVER, HEADER_BYTES)
        self._body_paths = body_paths

    def next_event(self) -> Any:
        """Return what comes next. Raises `h11.RemoteProtocolError` for what is no request, or too long a one."""
        before = self.trailing_data[0]
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.is_head = event.method == b"HEAD"
            head = before[: len(before) - len(self.trailing_data[0])]
            takes_body = event.method == b"POST" and event.target.partition(b"?")[0] in self._body_paths
            refusal = _refusal_of(event, head, takes_body=takes_body)
            if refusal is not None:
                raise h11.RemoteProtocolError(refusal, error_status_hint=400)
        return event

    def start_next_cycle(self) -> None:
        """Prepare for the next request."""
        super().start_next_cycle()
        self.is_head = False


def _refusal_of(request: h11.Request, head: bytes, *, takes_body: bool) -> str | None:
    """Say why a request with these bytes of request line and headers is not taken; None where it is."""
    if len(head) > HEADER_BYTES:
        return f"more than {HEADER_BYTES} bytes of headers"
    if request.http_version not in VERSIONS:
        return "no version of HTTP that is spoken here"
    lines = head.split(b"\r\n")
    if any(b"\r" in line or b"\n" in line or line[:1] in (b" ", b"\t") for line in lines):
        return "a line end that is not whole, or a folded header"
    if not request.target.startswith(b"/"):
        return "a target that is no path"
    # By the bytes: h11 makes one length of several that are alike.
    fields = [line.partition(b":") for line in lines[1:]]
    lengths = [value.strip() for name, _, value in fields if name.lower() == b"content-length"]
    is_number = len(lengths) == 1 and lengths[0].isdigit() and len(lengths[0]) < 10  # zeros before it count too
    is_short = takes_body and is_number and int(lengths[0]) <= BODY_BYTES
    if not (lengths in ([], [b"0"]) or is_short) or any(name == b"transfer-encoding" for name, _ in request.headers):
        return "a body where none is taken, too long a one, or more than one length"
    return None
