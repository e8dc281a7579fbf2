"""Calls that are not over, by the address that they come from, so that one client keeps no others from being answered.

A call counts from its head on, whether its request comes or not, until its answer is read. Its answer's bytes count as
long. One address may have a part of both.
"""

from dataclasses import dataclass
from typing import Any, Final, cast

from grpc.aio import ServicerContext

from broker.grpc.messages.definition_pb2 import Code
from broker.grpc.statuses import CallRefused
from broker.limits import Limits

SHARE: Final = 4
"""The part of all calls, and of all bytes of answers, that one address may have: one of so many."""

FEWEST: Final = 16
"""Calls that an address may have however few there may be in all."""


@dataclass(slots=True)
class Caller:
    """What the calls of one address hold."""

    calls: int = 0
    answer_bytes: int = 0


class OpenCalls:
    """All calls of a port that are not over; all methods are the event loop's."""

    def __init__(self, limits: Limits) -> None:
        self._most_calls, self._most_bytes = max(limits.connections // SHARE, FEWEST), limits.unsent_bytes
        self._callers: dict[str, Caller] = {}
        self._bytes = 0

    def begin(self, servicer: "ServicerContext[Any, Any]") -> "OpenCall":
        """Count a call until it is over. Raises `CallRefused` where its address has too many."""
        address = servicer.peer().rpartition(":")[0]
        caller = self._callers.setdefault(address, Caller())
        if caller.calls >= self._most_calls:
            text = f"{self._most_calls} calls from this address are open: end some (--limit connections)"
            raise CallRefused(Code.TOO_MANY_REQUESTS, text)
        caller.calls += 1
        call = OpenCall(self, address)
        servicer.add_done_callback(cast(Any, call.end))  # the stubs take it for an object of their own
        return call

    def hold(self, address: str, size: int) -> None:
        """Count bytes of an answer, less when it is read. Raises `CallRefused` where too much waits to be read."""
        caller = self._callers[address]
        is_much = caller.answer_bytes + size > self._most_bytes // SHARE or self._bytes + size > self._most_bytes
        if size > 0 and caller.answer_bytes and is_much:
            text = f"answers of {caller.answer_bytes} bytes to this address are not read yet (--limit unsent_bytes)"
            raise CallRefused(Code.TOO_MANY_REQUESTS, text)
        caller.answer_bytes += size
        self._bytes += size

    def end(self, address: str) -> None:
        """Count a call no more."""
        caller = self._callers[address]
        caller.calls -= 1
        if not caller.calls:
            del self._callers[address]


class OpenCall:
    """A call that is not over."""

    __slots__ = ("_address", "_bytes", "_calls")

    def __init__(self, calls: OpenCalls, address: str) -> None:
        self._calls, self._address, self._bytes = calls, address, 0

    def hold(self, size: int) -> None:
        """Count an answer until it is read. Raises `CallRefused` where too much waits to be read."""
        self._calls.hold(self._address, size)
        self._bytes += size

    def end(self, _servicer: "ServicerContext[Any, Any]") -> None:
        """Count it no more."""
        self._calls.hold(self._address, -self._bytes)
        self._calls.end(self._address)
