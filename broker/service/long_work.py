"""What is too much for the event loop though nothing of it is cold: thousands of look-ups, and long parsing.

Parsing is counted in units, each at most about a microsecond. In one turn of the event loop so many are spent on all
clients together; what goes beyond is left to the dispatcher's parsing threads.
"""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from protocol.bodies import decode_json
from protocol.codes import RequestCode
from protocol.errors import BadCommand
from storage.files.residency import Cold, ColdKind, may_wait

Body = TypeVar("Body")

PARSED_BODIES: Final = frozenset(
    {
        RequestCode.HEART_BEAT,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.QUERY_ASSIGNMENT,
    }
)
"""Codes of requests whose body is read, by `parse_body`."""

LOOKUPS_ON_LOOP = 1000
"""Look-ups of some microseconds each that one request may cost there; more are done on a thread."""

UNITS_A_TURN: Final = 4000
"""Units of parsing that one turn of the event loop is spent on."""

LONG_UNITS: Final = 50_000
"""From so many units on work is long, and is kept apart from short work, which would wait for it."""

BYTES_A_UNIT: Final = 32
"""Bytes of plain JSON that are decoded, and taken in, in one unit."""

UNITS_A_BYTE: Final = 2
"""Units that a byte of a body takes at worst that is no plain JSON, as C++ clients and mistakes have it."""

LONGEST_ODD_BODY: Final = 128 * 1024
"""Bytes of such a body; a longer one is refused. A C++ client sends a tenth of that for five hundred topics."""


def leave_to_a_thread(lookups: int) -> None:
    """Raise `Cold` on the event loop where a request is about to make more look-ups than that."""
    if lookups > LOOKUPS_ON_LOOP and not may_wait():
        raise Cold(f"{lookups} look-ups")


class LongParse(Cold):
    """So many `units` of parsing are too much for this turn of the event loop.

    With `warm` only that is for a parsing thread, and the request is then answered on the event loop; without it the
    request is answered on the parsing thread altogether.
    """

    def __init__(self, reason: str, units: int, warm: Callable[[], None] | None = None) -> None:
        super().__init__(reason, warm, ColdKind.PARSING)
        self.units = units
        self.is_part = warm is not None


class _Turn(threading.local):
    """What this turn of the thread's event loop was spent on; `loop` None between turns in which nothing was parsed."""

    units = 0
    loop: asyncio.AbstractEventLoop | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self.units, self.loop = 0, loop
        loop.call_soon(self.end)

    def end(self) -> None:
        self.units, self.loop = 0, None


_turn = _Turn()


def spend_on_loop(units: int, what: str, warm: Callable[[], None] | None = None) -> None:
    """Count parsing that is about to be done; on the event loop raise `LongParse` where its turn has no time for it."""
    if may_wait():
        return
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        # A thread that may not wait though it has no event loop: each call is a turn.
        _turn.end()
    else:
        if _turn.loop is not loop:
            _turn.begin(loop)
    if _turn.units + units > UNITS_A_TURN:
        raise LongParse(what, units, warm)
    _turn.units += units


def parse_body(body: bytes, kind: type[Body]) -> Body:
    """A body as `kind`, by `decode_json`. Raises `LongParse` besides, and `BadCommand` for what is too long."""
    spend_on_loop(len(body) // BYTES_A_UNIT, f"a body of {len(body)} bytes")
    return decode_json(body, kind, partial(_before_slow_way, body, kind))


def _before_slow_way(body: bytes, kind: type[object]) -> None:
    if len(body) > LONGEST_ODD_BODY:
        raise BadCommand(
            f"the body is no {kind.__name__} in plain JSON, and {len(body)} bytes are more than the {LONGEST_ODD_BODY} "
            "in which anything else is looked for"
        )
    spend_on_loop(UNITS_A_BYTE * len(body), f"a body of {len(body)} bytes that is no plain JSON")
