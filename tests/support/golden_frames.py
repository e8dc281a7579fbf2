"""The recorded remoting sessions of `tests/golden`: which there are, their exchanges, and bodies as values."""

import base64
import json
import lzma
import struct
import tarfile
import tempfile
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from golden.record.records import walk
from golden_store import G1, GOLDEN, unpack
from interop.wire import BINARY_HEADER, decode_frame

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2
NOTIFY_CONSUMER_IDS_CHANGED = 40
PULL_MESSAGE, LITE_PULL_MESSAGE = 11, 361
HELD_CODES = frozenset({PULL_MESSAGE, LITE_PULL_MESSAGE})
QUEUE_FOLDERS = ("consumequeue", "batchconsumequeue")
SET_MEMBERS = {"topicList", "groupList", "consumerIdList", "connectionSet", "consumeStatsList", "lockOKMQSet"}
"""Members that Java fills from a set or from the values of a hash map: their order says nothing."""


@dataclass(frozen=True)
class Answer:
    code: int
    remark: str | None = None
    ext_fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class Exchange:
    """One recorded request (`header` as its JSON object) with its recorded answer, None for a oneway request.

    `connection` is the pair of ports that identifies a TCP connection of the session; `number` counts from 0 by time.
    `stored_topics` are the topics that have queues in the session's store. `binary` is the header as it was sent, where
    that was not JSON. A pull that was still held when its client went away has no answer either.
    """

    number: int
    connection: tuple[int, int]
    header: dict[str, Any]
    body: bytes
    recorded: Answer | None
    stored_topics: frozenset[str] = field(default=frozenset(), repr=False)
    binary: bytes | None = field(default=None, repr=False)

    @property
    def code(self) -> int:
        return int(self.header["code"])

    @property
    def ext_fields(self) -> dict[str, str]:
        return dict(self.header.get("extFields") or {})

    def __str__(self) -> str:
        return f"exchange {self.number}, code {self.code} {self.ext_fields}"


@dataclass(frozen=True)
class Session:
    name: str
    frames: Path
    archive: Path
    has_consumers: bool = False

    def frames_read(self) -> list[dict[str, Any]]:
        with lzma.open(self.frames, "rt", encoding="utf-8") as lines:
            return [_with_header(json.loads(line)) for line in lines]

    def exchanges(self) -> list[Exchange]:
        exchanges = pair_up(self.frames_read(), HELD_CODES if self.has_consumers else frozenset())
        topics = self.stored_topics()
        return [replace(exchange, stored_topics=topics) for exchange in exchanges]

    def notices(self) -> list[tuple[tuple[int, int], str]]:
        """Each notice to a member that its group changed: the client's connection, and the group; sorted."""
        return sorted(
            ((frame["dst"], frame["src"]), frame["header"]["extFields"]["consumerGroup"])
            for frame in self.frames_read()
            if frame["header"]["code"] == NOTIFY_CONSUMER_IDS_CHANGED and not frame["header"]["flag"] & RESPONSE_FLAG
        )

    def stored_topics(self) -> frozenset[str]:
        """The topics that have a folder of queues in the archive; where queues are in RocksDB, those of its records."""
        with tarfile.open(self.archive) as archive:
            paths = [name.split("/") for name in archive.getnames()]
        if any(path[1:] == ["consumequeue", "CURRENT"] for path in paths):
            with tempfile.TemporaryDirectory() as directory:
                records = list(walk([unpack("store", Path(directory), archives=self.archive.parent) / "commitlog"]))
            light = {name for each in records for name in each.properties.get("INNER_MULTI_DISPATCH", "").split(",")}
            return frozenset({each.topic for each in records} | light - {""})
        return frozenset(path[2] for path in paths if len(path) > 2 and path[1] in QUEUE_FOLDERS)


def sessions() -> list[Session]:
    """Every folder under `tests/golden` that holds both frames (`*frames.jsonl.xz`) and the store they are about."""
    found = [(path, path.with_name("store.tar.xz")) for path in sorted(GOLDEN.rglob("*frames.jsonl.xz"))]
    return [Session(str(path.parent.relative_to(GOLDEN)), path, store) for path, store in found if store.exists()]


def consumer_sessions() -> list[Session]:
    """The sessions of consumers, which were recorded on the stores of other sessions."""
    return [
        Session(f"{frames.parent.relative_to(GOLDEN)}/consumers", frames, frames.with_name("store.tar.xz"), True)
        for frames in sorted(GOLDEN.rglob("client-flows.jsonl.xz"))
    ]


def _with_header(frame: dict[str, Any]) -> dict[str, Any]:
    if "binary" not in frame["header"]:
        return frame
    raw = bytes.fromhex(frame["header"]["binary"])
    payload = struct.pack(">I", BINARY_HEADER << 24 | len(raw)) + raw
    return frame | {"header": decode_frame(payload).header, "binary": raw}


def pair_up(frames: list[dict[str, Any]], may_be_held: frozenset[int] = frozenset()) -> list[Exchange]:
    """Match requests and responses; a request without one must be a oneway one, or of a code that `may_be_held`."""
    pairs = enumerate(_requests_of_clients(frames, may_be_held))
    return [
        Exchange(number, (each["src"], each["dst"]), each["header"], _body_of(each), answer, binary=each.get("binary"))
        for number, (each, answer) in pairs
    ]


def _requests_of_clients(frames, may_be_held):
    servers = {frame["src"] for frame in frames if frame["header"]["flag"] & RESPONSE_FLAG}
    for position, frame in enumerate(frames):
        flag = frame["header"]["flag"]
        if flag & RESPONSE_FLAG or frame["src"] in servers:
            continue
        answer = next((later for later in frames[position + 1 :] if _answers(later, frame)), None)
        if answer is None and not flag & ONEWAY_FLAG and frame["header"]["code"] not in may_be_held:
            raise ValueError(f"no answer was recorded to {frame['header']}")
        yield frame, None if answer is None else answer_of(answer["header"], _body_of(answer))


def _answers(later: dict[str, Any], request: dict[str, Any]) -> bool:
    return bool(
        later["header"]["flag"] & RESPONSE_FLAG
        and (later["src"], later["dst"]) == (request["dst"], request["src"])
        and later["header"]["opaque"] == request["header"]["opaque"]
    )


def answer_of(header: dict[str, Any], body: bytes) -> Answer:
    return Answer(header["code"], header.get("remark") or None, header.get("extFields") or {}, body)


def _body_of(frame: dict[str, Any]) -> bytes:
    return base64.b64decode(frame["body"] or "")


def value_of(body: bytes) -> Any:
    """A body as what is compared: JSON as values with its sets sorted, properties text as a dict, else the bytes."""
    if body[:1] in (b"{", b"["):
        return in_any_order(parse_java_json(body.decode("utf-8")))
    if body[:1].isalpha() and b"\0" not in body:
        return dict(line.split("=", 1) for line in body.decode("utf-8").splitlines() if "=" in line)
    return body


def in_any_order(value: Any, member: str = "") -> Any:
    if isinstance(value, dict):
        is_table_of_sets = member == "clusterAddrTable"
        return {key: in_any_order(inner, "set" if is_table_of_sets else key) for key, inner in value.items()}
    if isinstance(value, list):
        items = [in_any_order(item) for item in value]
        return sorted(items, key=repr) if member in SET_MEMBERS or member == "set" else items
    return value


def parse_java_json(text: str) -> Any:
    """JSON as fastjson writes it; a key that is a number becomes its digits, an object its JSON text, sorted."""
    value, end = _value(text, 0)
    if text[end:].strip():
        raise ValueError(f"text after the JSON value at {end}: {text[end : end + 40]!r}")
    return value


def _value(text, position):
    position = _skip_blanks(text, position)
    closing = {"{": "}", "[": "]"}.get(text[position])
    if closing is None:
        return json.JSONDecoder().raw_decode(text, position)
    items, position = [], _skip_blanks(text, position + 1)
    while text[position] != closing:
        item, position = _value(text, position)
        if closing == "}":
            value, position = _value(text, _expect(text, position, ":"))
            item = item if isinstance(item, str) else json.dumps(item, sort_keys=True), value
        items.append(item)
        position = _skip_blanks(text, position)
        if text[position] != closing:
            position = _skip_blanks(text, _expect(text, position, ","))
    members = dict(items) if closing == "}" else items
    if len(members) < len(items):
        raise ValueError(f"a key appears twice: {items}")
    return members, position + 1


def _skip_blanks(text: str, position: int) -> int:
    while text[position].isspace():
        position += 1
    return position


def _expect(text: str, position: int, character: str) -> int:
    position = _skip_blanks(text, position)
    if text[position] != character:
        raise ValueError(f"expected {character!r} at {position}, found {text[position]!r}")
    return position + 1


class Recorded(NamedTuple):
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


def _read():
    for name in ("mqadmin-frames.jsonl.xz", "client-flows.jsonl.xz"):
        with lzma.open(G1 / name, "rt", encoding="utf-8") as lines:
            for line in lines:
                frame = json.loads(line)
                binary = bytes.fromhex(frame["header"].get("binary", ""))
                header = {} if binary else frame["header"]
                yield Recorded(header, binary, base64.b64decode(frame["body"] or ""), frame["src"], frame["dst"])
