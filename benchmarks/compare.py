"""Are the answers the same? Thousands of random requests to both servers, bodies compared byte for byte.

The Java broker returns whatever has the key's hash and leaves it to the client to drop what does not have the key; so
its body is filtered as a client filters it, and how often that was needed is reported too.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.remoting import FRAME_PREFIX, Peer
from benchmarks.workload import Requests

_BODY_LENGTH_POSITION = 84  # in a record with IPv4 hosts (store-format §2.2)


@dataclass(frozen=True)
class Comparison:
    """``differing`` of ``requests`` answers were not equal; ``filtered`` of Java's held messages without the key."""

    workload: str
    requests: int
    differing: int
    filtered: int
    first_difference: str | None


def compare_servers(workload: str, requests: Requests, our_port: int, java_port: int) -> Comparison:
    """Sends every request to both."""
    ours, theirs = _answers(our_port, requests), _answers(java_port, requests)
    differing, filtered, first_difference = 0, 0, None
    for number in range(len(requests)):
        (code, body), (java_code, java_body) = ours[number], theirs[number]
        expected = java_body if workload == "view" else filter_as_client(java_body, requests.frame(number))
        filtered += expected != java_body
        if (code, body) != (java_code, expected):
            differing += 1
            first_difference = first_difference or (
                f"{requests.frame(number)!r}: code {code}, {len(body)} bytes; "
                f"Java code {java_code}, {len(expected)} bytes"
            )
    return Comparison(workload, len(requests), differing, filtered, first_difference)


def filter_as_client(body: bytes, frame: bytes) -> bytes:
    """The records of a QUERY_MESSAGE answer that a Java client keeps: those that really have the key."""
    fields = json.loads(frame[FRAME_PREFIX.size :])["extFields"]
    name = "UNIQ_KEY" if fields["indexType"] == "U" else "KEYS"
    return b"".join(record for record in split_records(body) if _has_key(record, name, fields["topic"], fields["key"]))


def split_records(body: bytes) -> Iterator[bytes]:
    """The stored records of an answer's body, by their lengths."""
    position = 0
    while position < len(body):
        size = int.from_bytes(body[position : position + 4], "big")
        if size <= 0:
            raise ValueError(f"a record of {size} bytes at position {position}")
        yield body[position : position + size]
        position += size


def _has_key(record: bytes, name: str, topic: str, key: str) -> bool:
    body_end = (
        _BODY_LENGTH_POSITION + 4 + int.from_bytes(record[_BODY_LENGTH_POSITION : _BODY_LENGTH_POSITION + 4], "big")
    )
    topic_end = body_end + 1 + record[body_end]
    properties = dict(pair.split("\x01", 1) for pair in record[topic_end + 2 :].decode().split("\x02") if pair)
    value = properties.get(name, "")
    return record[body_end + 1 : topic_end].decode() == topic and key in (
        value.split(" ") if name == "KEYS" else [value]
    )


def _answers(port: int, requests: Requests) -> Sequence[tuple[int, bytes]]:
    """(code, body) by request number."""
    frames = [requests.frame(number) for number in range(len(requests))]
    found: list[tuple[int, bytes]] = [(-1, b"")] * len(frames)
    with Peer(port) as peer:
        for opaque, code, body in peer.call_many(frames):
            found[opaque] = (code, body)
    return found
