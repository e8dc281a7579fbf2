"""Bounds how often a secret may be guessed: so many wrong ones for one name from one address, and so many from it.

A failed attempt takes one from an allowance that fills up again evenly. Without any left every attempt is refused
before its secret is looked at, also with the right one: else the bound would be none. The same wrong secret again, as a
program with an old one sends it, is no new guess and costs nothing. What is remembered is bounded: when it is full, all
further names and addresses share one allowance. A client that has logged in recently is not affected by what others on
its address try.
"""

import hashlib
import ipaddress
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

Key: TypeAlias = tuple[str, bytes]
"""An address, or a network of IPv6, and what stands for a name; `ALL` for all names of the address."""

ALL: Final = b""

MOST_KEYS: Final = 4096
"""Allowances that are remembered; each costs some hundred bytes, until it is full again."""

MOST_KNOWN: Final = 1024
"""Clients that are remembered as having logged in."""

PURGE_SECONDS: Final = 1.0
"""How often at most full allowances are looked for to make room."""

NETWORK_BITS: Final = 64
"""One client of IPv6 has a whole network of this prefix, so its addresses count as one."""


@dataclass(frozen=True, slots=True)
class AttemptAllowance:
    """So many attempts at once; `seconds` after the last one all of them are there again."""

    attempts: int
    seconds: float

    @property
    def interval(self) -> float:
        """Seconds until one more attempt is there."""
        return self.seconds / self.attempts


OF_NAME: Final = AttemptAllowance(10, 60.0)
OF_ADDRESS: Final = AttemptAllowance(60, 60.0)


@dataclass(slots=True)
class _Debt:
    """When an allowance is full again (s, the clock's), and the wrong secret that was tried last."""

    full_at: float
    last: bytes = b""


class FailedAttempts:
    """The failed attempts of all clients; for one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._debts: dict[Key, _Debt] = {}
        self._known: OrderedDict[Key, None] = OrderedDict()
        self._purged_at = clock()
        # Whatever is kept of a secret is of no use outside of this process.
        self._salt = os.urandom(32)

    def __len__(self) -> int:
        """Allowances that are remembered."""
        return len(self._debts)

    def wait_seconds(self, address: str | None, name: str) -> float:
        """How long every attempt for a name from an address is refused; 0.0: the next one may be made."""
        key = self._key(address, name)
        own = self._wait(key, OF_NAME)
        return own if key in self._known else max(own, self._wait((key[0], ALL), OF_ADDRESS))

    def note_failed(self, address: str | None, name: str, secret: bytes) -> bool:
        """Count an attempt with a wrong secret; False for one that was tried just before and costs nothing."""
        key, tried = self._key(address, name), self._digest(secret)
        debt = self._debts.get(key)
        if debt is not None and debt.last == tried:
            return False
        self._owe(key, OF_NAME, tried)
        self._owe((key[0], ALL), OF_ADDRESS, b"")
        return True

    def note_success(self, address: str | None, name: str) -> None:
        """Remember a client that has logged in."""
        key = self._key(address, name)
        self._known[key] = None
        self._known.move_to_end(key)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)

    def _key(self, address: str | None, name: str) -> Key:
        return _place(address), self._digest(name.encode("utf-8", "surrogatepass"))

    def _digest(self, data: bytes) -> bytes:
        return hashlib.blake2b(data, digest_size=16, key=self._salt).digest()

    def _wait(self, key: Key, allowance: AttemptAllowance) -> float:
        place = self._slot(key, allowance)
        if place != key and key in self._known:
            return 0.0
        debt = self._debts.get(place)
        if debt is None:
            return 0.0
        spare = (allowance.attempts - 1) * allowance.interval
        return max(debt.full_at - self._clock() - spare, 0.0)

    def _owe(self, key: Key, allowance: AttemptAllowance, tried: bytes) -> None:
        now = self._clock()
        debt = self._debts.setdefault(self._slot(key, allowance), _Debt(now))
        debt.full_at = max(debt.full_at, now) + allowance.interval
        debt.last = tried

    def _slot(self, key: Key, allowance: AttemptAllowance) -> Key:
        """The key under which an allowance is counted: its own, or that of all for which there is no room."""
        if key in self._debts or len(self._debts) < MOST_KEYS:
            return key
        now = self._clock()
        if now - self._purged_at >= PURGE_SECONDS:
            self._purged_at = now
            self._debts = {each: debt for each, debt in self._debts.items() if debt.full_at > now}
            if len(self._debts) < MOST_KEYS:
                return key
        return "everybody else", b"" if allowance is OF_ADDRESS else b"name"


def _place(address: str | None) -> str:
    """What counts as one client: an address of IPv4, a network of IPv6; all whose address is not known together."""
    if address is None:
        return ""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return str(found)
    mapped = found.ipv4_mapped
    if mapped is not None:
        return str(mapped)
    return str(ipaddress.ip_network((int(found), NETWORK_BITS), strict=False))
