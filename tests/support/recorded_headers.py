"""Every frame of the recorded sessions g1, in order: headers as they were read off the wire, bodies as bytes."""

import base64
import json
import lzma
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from golden_store import G1

FILES = ("mqadmin-frames.jsonl.xz", "client-flows.jsonl.xz")


class Recorded(NamedTuple):
    """One frame: `header` the members of a JSON header, or `binary` the bytes of one in the ROCKETMQ form."""

    header: dict[str, Any]
    binary: bytes
    body: bytes
    source: int
    destination: int


@cache
def recorded_frames() -> tuple[Recorded, ...]:
    found = tuple(_read())
    assert found
    return found


def _read() -> Iterator[Recorded]:
    for name in FILES:
        with lzma.open(G1 / name, "rt", encoding="utf-8") as lines:
            for line in lines:
                frame = json.loads(line)
                binary = bytes.fromhex(frame["header"].get("binary", ""))
                header = {} if binary else frame["header"]
                yield Recorded(header, binary, base64.b64decode(frame["body"] or ""), frame["src"], frame["dst"])
