"""What is too much for the event loop though nothing of it is cold: thousands of look-ups, and long parsing.

Parsing is counted in units, each at most about a microsecond. In one turn of the event loop so many are spent on all
clients together; what goes beyond is left to the dispatcher's parsing threads.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from protocol.bodies import decode_odd_json, decode_plain_json
from protocol.codes import RequestCode
from protocol.errors import BadCommand
from storage.files.waiting import Lookup, Unfinished, Wait, WaitKind

Body = TypeVar("Body")
Result = TypeVar("Result")

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


def leave_to_a_thread(lookups: int) -> Lookup[None]:
    """Wait for a thread where a request is about to make more look-ups than the event loop has time for."""
    if lookups > LOOKUPS_ON_LOOP:
        yield Wait(f"{lookups} look-ups")


class Parsing(Wait):
    """So many `units` of parsing are about to be done: on the event loop only if its turn has time for them.

    With `warm`, which does that parsing alone, a request goes on on the event loop afterwards; without it the request
    goes on on the parsing thread altogether.
    """

    __slots__ = ("is_part", "units")

    def __init__(self, reason: str, units: int, warm: Callable[[], None] | None = None) -> None:
        super().__init__(reason, warm, WaitKind.PARSING)
        self.units = units
        self.is_part = warm is not None


class _Turn:
    """What this turn of the event loop was spent on; `loop` None between turns in which nothing was parsed."""

    units = 0
    loop: asyncio.AbstractEventLoop | None = None

    def has_time_for(self, units: int) -> bool:
        """Count parsing that is about to be done; false, and nothing is counted, where the turn has no time for it."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # Without an event loop each step has a turn of its own.
            self.end()
        else:
            if self.loop is not loop:
                self.units, self.loop = 0, loop
                loop.call_soon(self.end)
        if self.units + units > UNITS_A_TURN:
            return False
        self.units += units
        return True

    def end(self) -> None:
        self.units, self.loop = 0, None


_turn = _Turn()
"""Of the event loop, which is one in a process, and for all its clients together."""


def begin_on_loop(lookup: Lookup[Result]) -> Result | Unfinished[Result]:
    """Take a look-up as far as it comes on the event loop: without a wait, and with what its turn has time to parse."""
    try:
        wait = next(lookup)
    except StopIteration as done:
        found: Result = done.value
        return found
    return _while_there_is_time(Unfinished(wait, lookup))


def go_on_on_loop(lookup: Unfinished[Result]) -> Result | Unfinished[Result]:
    """Go on so after what it waited for was done elsewhere."""
    return _while_there_is_time(lookup.go_on())


def _while_there_is_time(step: Result | Unfinished[Result]) -> Result | Unfinished[Result]:
    while isinstance(step, Unfinished) and isinstance(step.wait, Parsing) and _turn.has_time_for(step.wait.units):
        step = step.go_on()
    return step


def parse_body(body: bytes, kind: type[Body]) -> Lookup[Body]:
    """A body as `kind`, as by `decode_json`. Raises `BadCommand` besides for what is too long."""
    yield Parsing(f"a body of {len(body)} bytes", len(body) // BYTES_A_UNIT)
    plain = decode_plain_json(body, kind)
    if plain is not None:
        return plain
    if len(body) > LONGEST_ODD_BODY:
        raise BadCommand(
            f"the body is no {kind.__name__} in plain JSON, and {len(body)} bytes are more than the {LONGEST_ODD_BODY} "
            "in which anything else is looked for"
        )
    yield Parsing(f"a body of {len(body)} bytes that is no plain JSON", UNITS_A_BYTE * len(body))
    return decode_odd_json(body, kind)
