"""Work that takes too long for the event loop although it does not wait for the disk: many look-ups, and long parsing.

Parsing is counted in units, each at most about a microsecond. In one turn of the event loop at most `UNITS_A_TURN` are
spent on all clients together; further parsing is done on the dispatcher's parsing threads.
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
"""Codes of requests whose body is parsed, by `parse_body`."""

LOOKUPS_ON_LOOP = 1000
"""Look-ups of some microseconds each that one request may make on the event loop; more are made on a thread."""

UNITS_A_TURN: Final = 4000
"""Most units of parsing in one turn of the event loop."""

LONG_UNITS: Final = 50_000
"""Units from which on parsing is long; it has a thread of its own, so that short parsing need not wait for it."""

BYTES_A_UNIT: Final = 32
"""Bytes of plain JSON that are decoded and processed in one unit."""

UNITS_A_BYTE: Final = 2
"""Most units for a byte of a body that is not plain JSON, as C++ clients and faulty ones send it."""

LONGEST_ODD_BODY: Final = 128 * 1024
"""Most bytes of a body that is not plain JSON; longer ones are refused. A C++ client sends a tenth of that for five
hundred topics."""


def leave_to_a_thread(lookups: int) -> Lookup[None]:
    """Wait for a thread if a request is about to make more than `LOOKUPS_ON_LOOP` look-ups."""
    if lookups > LOOKUPS_ON_LOOP:
        yield Wait(f"{lookups} look-ups")


class Parsing(Wait):
    """The wait before `units` of parsing, which are done on the event loop only if its turn has time for them.

    With `warm`, which does only that parsing, a request continues on the event loop afterwards; without it the rest of
    the request is done on the parsing thread.
    """

    __slots__ = ("is_part", "units")

    def __init__(self, reason: str, units: int, warm: Callable[[], None] | None = None) -> None:
        super().__init__(reason, warm, WaitKind.PARSING)
        self.units = units
        self.is_part = warm is not None


class _Turn:
    """The units of parsing done in this turn of the event loop; `loop` is None when nothing was parsed in it."""

    units = 0
    loop: asyncio.AbstractEventLoop | None = None

    def has_time_for(self, units: int) -> bool:
        """Count parsing that is about to be done; False, and nothing is counted, if the turn has no time for it."""
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
"""The turn of the event loop, which is one in a process; it is shared by all clients."""


def begin_on_loop(lookup: Lookup[Result]) -> Result | Unfinished[Result]:
    """Run a look-up on the event loop until it is done, has to wait, or its turn has no time for more parsing."""
    try:
        wait = next(lookup)
    except StopIteration as done:
        found: Result = done.value
        return found
    return _while_there_is_time(Unfinished(wait, lookup))


def go_on_on_loop(lookup: Unfinished[Result]) -> Result | Unfinished[Result]:
    """Continue a look-up as `begin_on_loop` does, after its wait was done elsewhere."""
    return _while_there_is_time(lookup.go_on())


def _while_there_is_time(step: Result | Unfinished[Result]) -> Result | Unfinished[Result]:
    while isinstance(step, Unfinished) and isinstance(step.wait, Parsing) and _turn.has_time_for(step.wait.units):
        step = step.go_on()
    return step


def parse_body(body: bytes, kind: type[Body]) -> Lookup[Body]:
    """Return a body as `kind`; raises what `decode_json` raises, and `BadCommand` for a body that is too long."""
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
