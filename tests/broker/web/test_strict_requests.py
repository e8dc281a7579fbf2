"""A request is taken by the letter of RFC 9112, and without a body, or not at all."""

import re

import h11
from hypothesis import example, given
from hypothesis import strategies as st

from broker.web._strict_requests import StrictRequests

SECOND = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ (/[\x21-\x7e]*) HTTP/1\.[01]")
FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00\r\n]*?)[ \t]*")


def strict_end(data: bytes) -> int | None:
    """Where the one request in some bytes ends by the letter of RFC 9112, None where it is none without a body."""
    head, ended, _ = data.partition(b"\r\n\r\n")
    line, *fields = head.split(b"\r\n")
    found = [FIELD.fullmatch(each) for each in fields]
    if not ended or LINE.fullmatch(line) is None or not all(found):
        return None
    lengths = [each[2] for each in found if each is not None and each[1].lower() == b"content-length"]
    names = [each[1].lower() for each in found if each is not None]
    if lengths not in ([], [b"0"]) or b"transfer-encoding" in names:
        return None
    return len(head) + 4


LINES = [b"GET / HTTP/1.1"] * 6
LINES += [b"POST /a?b HTTP/1.0", b"GET //x HTTP/1.1", b"GET http://b/ HTTP/1.1", b" GET / HTTP/1.1"]
ENDS = st.sampled_from(
    [b"\r\n"] * 12 + [b"\n", b"\r", b"\r\r\n", b"\n\r\n", b"\r\n ", b"\r\n\t", b" \r\n", b"\x0b\r\n", b""]
)
HEADS = st.lists(
    st.tuples(
        st.sampled_from(
            [b"X: 1", b"x:1", b"Content-Length: 0", b"content-length:0", b"Content-Length: 3", b"Content-Length: 0, 0",
             b"Transfer-Encoding: chunked", b"Transfer-Encoding:\x0bchunked", b"Connection: close", b"Host: b",
             b"A b: 1", b": 1", b"X", b"X: \xe6", b"Expect: 100-continue"]
        ),
        ENDS,
    ),
    max_size=4,
)  # fmt: skip


@given(
    line=st.sampled_from(LINES),
    end=ENDS,
    fields=HEADS,
    last=ENDS,
    rest=st.sampled_from([b"", b"0\r\n\r\n", b"abc", SECOND]),
)  # fmt: skip
@example(LINES[0], b"\r\n", [(b"Content-Length: 0, 0", b"\r\n")], b"\r\n", SECOND)
@example(LINES[0], b"\r\n", [(b"Content-Length: 0", b"\r\n")] * 2, b"\r\n", SECOND)
def test_what_is_taken_is_a_request_without_a_body_by_the_letter_of_the_standard(
    line: bytes, end: bytes, fields: list[tuple[bytes, bytes]], last: bytes, rest: bytes
) -> None:
    """RFC 9112: a server that is lenient where a proxy is not can be had by a smuggled request."""
    data = line + end + b"Host: a\r\n" + b"".join(field + ended for field, ended in fields) + last + rest
    requests = StrictRequests()
    requests.receive_data(data)
    try:
        event = requests.next_event()
    except h11.RemoteProtocolError:
        return
    if isinstance(event, h11.Request):
        assert strict_end(data) == len(data) - len(requests.trailing_data[0])
        assert type(requests.next_event()) is h11.EndOfMessage
