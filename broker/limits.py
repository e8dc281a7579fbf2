"""Limits on what clients may cost, each under a name: `serve --limit NAME=VALUE`.

Bytes are counted as they are held here; the kernel's socket buffers do not count. To keep a limit over all connections,
the connection that has kept us waiting longest is closed first, so that clients that send whole requests and read their
answers are not affected by those that do not.
"""

from dataclasses import dataclass, field, fields, replace

from protocol.errors import ConfigError

MIB = 1024 * 1024


def _limit(default: int, smallest: int, meaning: str) -> int:
    """A field of `Limits`: its default, the least value that makes sense, and a sentence for the documentation."""
    described: int = field(default=default, metadata={"smallest": smallest, "meaning": meaning})
    return described


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one server process; the meaning of each is in its field's metadata, and in docs/port.md."""

    header_bytes: int = _limit(
        256 * 1024, 4096, "Bytes of one request's header; a longer one ends the connection before it is received."
    )
    body_bytes: int = _limit(
        MIB,
        4096,
        "Bytes of the body of a request whose body is read (heartbeats, locks and the like); a longer one is "
        "answered SYSTEM_ERROR, and is discarded on arrival.",
    )
    ext_fields: int = _limit(256, 32, "Fields of one request (extFields); one with more is answered SYSTEM_ERROR.")
    connections: int = _limit(20_000, 1, "Connections at a time; further ones are closed as soon as they are accepted.")
    requests_per_connection: int = _limit(
        16_384, 1, "Requests of one connection that may wait; at the limit it is not read until one is answered."
    )
    lookups_per_connection: int = _limit(
        16, 1, "Requests of one connection that may wait for the disk; at the limit it is not read."
    )
    in_flight_bytes_per_connection: int = _limit(
        64 * MIB, 65_536, "Bytes that one connection's waiting requests hold; above the limit it is not read."
    )
    in_flight_bytes: int = _limit(
        512 * MIB,
        MIB,
        (
            "Bytes that the waiting requests of all connections hold; above the limit, a request "
            "that would wait is answered SYSTEM_BUSY."
        ),
    )
    received_bytes: int = _limit(
        256 * MIB,
        MIB,
        "Bytes received of requests that are incomplete or cannot be processed yet, over all connections; "
        "above the limit the connection that has been busy with one request for the longest time is closed.",
    )
    unsent_bytes_per_connection: int = _limit(
        256 * 1024,
        65_536,
        "Bytes of answers that wait for one client to read them; above the limit it gets no further answers.",
    )
    unsent_bytes: int = _limit(
        256 * MIB,
        MIB,
        (
            "Bytes of answers that wait for all clients to read them; above the limit, "
            "connections that have not read for the longest time are closed."
        ),
    )
    idle_seconds: int = _limit(
        120, 1, ("Seconds without a request or an answer in progress after which a client is idle.")
    )
    frame_seconds: int = _limit(
        60,
        1,
        "Seconds that a client may take to send one request, from its first byte on, while the server reads. "
        "A client may be silent between requests.",
    )
    reader_seconds: int = _limit(
        60, 1, "Seconds that a client which gets no further answers may take to read those that wait for it."
    )
    registry_bytes: int = _limit(
        256 * MIB,
        MIB,
        "Bytes that one process remembers about clients: groups, subscriptions, filters, offsets, locks; "
        "requests that need more are answered SYSTEM_BUSY.",
    )
    handshake_seconds: int = _limit(10, 1, "Seconds for a PROXY header and a TLS handshake.")

    def check(self) -> "Limits":
        """Return itself, or raise `ConfigError` naming the bound that is too low or too high."""
        for each in fields(self):
            value, smallest = getattr(self, each.name), each.metadata["smallest"]
            if not smallest <= value < 2**40:
                raise ConfigError(f"--limit {each.name}={value}: expected {smallest} or more")
        return self

    def changed(self, texts: tuple[str, ...]) -> "Limits":
        """Return limits with those changed that are given as `NAME=VALUE`. Raises `ConfigError`."""
        changes: dict[str, int] = {}
        names = [each.name for each in fields(self)]
        for text in texts:
            name, equals, value = text.partition("=")
            if name not in names:
                raise ConfigError(f"--limit {text}: there is no limit {name!r}, only {', '.join(names)}")
            if not equals or not value.isascii() or not value.isdigit() or len(value) > 12:
                raise ConfigError(f"--limit {text}: expected {name}=NUMBER")
            changes[name] = int(value)
        return replace(self, **changes).check()


DEFAULT_LIMITS = Limits()
