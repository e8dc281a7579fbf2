"""Writing answers to a client's transport, and closing it so that what was written last arrives."""

import array
import asyncio
import fcntl
import termios

from storage.kernels.file_map import count_cuts

JOIN_LIMIT = 64 * 1024
SMALL_PIECE = 4096
"""Average bytes of an answer up to which all answers of one turn are joined into one buffer, which copies them."""

LINGER_SECONDS = 0.5
"""How long a client may take to close its side after the server has closed its own."""

MOST_LINGERS = 6
"""How often that time is given again because the client's bytes come faster than they are thrown away."""


def write_pieces(transport: asyncio.Transport, pieces: list[bytes | memoryview], size: int) -> None:
    """Write one or more pieces of `size` bytes together."""
    if len(pieces) == 1:
        transport.write(pieces[0])
        return
    if size < JOIN_LIMIT or size < len(pieces) * SMALL_PIECE:
        cuts = count_cuts()
        joined = b"".join(pieces)
        if cuts != count_cuts():  # a record that was checked before may be zeros in part
            transport.abort()
            return
        transport.write(joined)
        return
    # The last piece by itself: in Python 3.12.0 to 3.12.8, 3.13.0 and 3.13.1 writelines() of asyncio's own loop
    # reports to nobody that the buffer is full (CVE-2024-12254), write() does.
    transport.writelines(pieces[:-1])
    transport.write(pieces[-1])


def close_gently(transport: asyncio.Transport, *, may_be_half_closed: bool) -> None:
    """Close a connection whose answers are all written.

    Closing a socket that holds unread bytes resets the connection, and answers on their way are lost. So our side is
    shut down first, where one side alone can be, and what still comes is for the connection to throw away until the
    client closes, or for `LINGER_SECONDS`, and longer while there are bytes to throw away.
    """
    if not may_be_half_closed:
        transport.close()
        return
    try:
        transport.write_eof()
    except OSError:
        # The client has reset the connection, which the loop has not noticed yet.
        transport.abort()
        return
    transport.resume_reading()
    asyncio.get_running_loop().call_later(LINGER_SECONDS, _close_when_read, transport, MOST_LINGERS)


def _close_when_read(transport: asyncio.Transport, lingers: int) -> None:
    """Close unless the socket holds unread bytes; then look again later, at most `lingers` times.

    On a loop that was kept from running, the time may be over before the socket was read at all.
    """
    if lingers and not transport.is_closing() and _unread_bytes(transport):
        asyncio.get_running_loop().call_later(LINGER_SECONDS, _close_when_read, transport, lingers - 1)
    else:
        transport.close()


def _unread_bytes(transport: asyncio.Transport) -> int:
    """Return how many received bytes the transport's socket holds; 0 when it is closed."""
    size = array.array("i", [0])
    try:
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.FIONREAD, size)
    except (OSError, ValueError):
        return 0
    return size[0]
