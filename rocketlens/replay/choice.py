"""Which messages are sent again: what a search or a look-up finds, or the lines of a file that an export wrote."""

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, cast

import msgspec
import numpy as np
import numpy.typing as npt

from broker.endpoint import Endpoint
from protocol.checksum import body_crc
from protocol.errors import ConfigError, RocketLensError, StoreError
from protocol.host_address import HIDDEN_HOST, HostAddress
from protocol.message import Message, decode_message
from protocol.message_layout import V2_MAGIC
from protocol.properties import KEYS, MASKED, TAGS, UNIQ_KEY, encode_properties, split_keys
from protocol.sys_flag import COMPRESSION_TYPE_MASK, SysFlag
from protocol.system_topics import is_known_by
from rocketlens.arguments import SearchOptions, never
from rocketlens.replay.account import PlannedTuple
from rocketlens.source import Source
from rocketlens.store import Store
from storage.kernels.region import Region
from storage.kernels.resending import ResendRules, resend_parcels, resend_ways
from storage.search.step import RecordsFound, Step

LONGEST_LINE: Final = 64 * 1024 * 1024
"""Bytes of a line that is read of a file: a body of 16 MiB in base64, and what stands beside it."""

MOST_REMEMBERED: Final = 100_000
BYTES_REMEMBERED: Final = 64 * 1024 * 1024
"""How many messages that were chosen are remembered, and how many bytes of them."""

KNOWN_HOSTS: Final = 1024
"""Addresses whose text is remembered."""

LONGEST_RUN: Final = 256
"""Messages that are looked at in one go, while no answer is taken: benchmarks.replay."""

LINES_AT_ONCE: Final = 1000
BYTES_AT_ONCE: Final = 16 * 1024 * 1024

MASKED_PART: Final = "a part of it is masked"

_SEPARATORS: Final = ("\x01", "\x02")
_COMPRESSED: Final = int(SysFlag.COMPRESSED) | COMPRESSION_TYPE_MASK


@dataclass(frozen=True, slots=True)
class Chosen:
    """A message that was chosen, the name of its place in the source, and why it cannot be sent, if it cannot.

    The place is the same whenever the source is read.
    """

    message: Message
    place: str
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class PlainPiece:
    """Records of one segment that are chosen, as they lie in the log."""

    records: RecordsFound

    def __len__(self) -> int:
        return len(self.records.offsets)

    def __iter__(self) -> Iterator[Chosen]:
        """The messages of the records."""
        for offset in self.records.offsets.tolist():
            yield from self._chosen(offset)

    def runs(self, rules: ResendRules | None) -> Iterator["PlainRun | list[Chosen]"]:
        """The messages in runs: those that are only copied by their ways, the others as they are.

        Runs are as long as they may be, and those of one queue stay in their order.
        """
        offsets = self.records.offsets
        if rules is None or not len(offsets):
            yield list(self)
            return
        region, positions, readable, base = self.place
        ways = resend_ways(region, positions, readable, base, rules)
        for part in np.split(np.arange(len(ways)), _stops(ways)):
            plain, others = part[ways[part] >= 0], part[ways[part] < 0]
            if len(plain):
                plain = plain[np.argsort(ways[plain], kind="stable")]
                for some in np.split(plain, range(LONGEST_RUN, len(plain), LONGEST_RUN)):
                    yield PlainRun(PlainPiece(RecordsFound(self.records.segment, offsets[some])), rules)
            if len(others):
                yield [each for offset in offsets[others].tolist() for each in self._chosen(offset)]

    @property
    def place(self) -> tuple[Region, npt.NDArray[np.int64], int, int]:
        """Where the records lie, as kernels take it: region, positions, readable bytes, and the region's offset."""
        segment = self.records.segment
        return (
            segment.file.region,
            self.records.offsets - segment.base_offset,
            segment.valid_length,
            segment.base_offset,
        )

    def _chosen(self, offset: int) -> Iterator[Chosen]:
        segment = self.records.segment
        view = segment.file.view[offset - segment.base_offset : segment.valid_length]
        with suppress(StoreError):  # it was intact when it was chosen, and the store has changed
            for message in decode_message(view, physical_offset=offset).inner_messages():
                yield Chosen(message.detached(), place_of(message))


def _stops(ways: npt.NDArray[np.int64]) -> list[int]:
    """Where records that are only copied follow others of their queues: see `resend_ways`."""
    stops: list[int] = []
    if (ways < -1).any():
        with_others: set[int] = set()
        for number, way in enumerate(ways.tolist()):
            if way < -1:
                with_others.add(-2 - way)
            elif way in with_others:
                stops.append(number)
                with_others.clear()
    return stops


Piece: TypeAlias = list[Chosen] | PlainPiece
"""What a source brings at once."""


@dataclass(frozen=True, slots=True)
class PlainRun:
    """Records that are only copied, those of one way behind each other."""

    piece: PlainPiece
    rules: ResendRules

    def rows(self) -> list[PlannedTuple]:
        """What an account notes of each message."""
        rows, *_ = resend_parcels(*self.piece.place, self.rules, with_messages=False)
        return [row for row in rows if row is not None]

    def parcels(self) -> "Parcels":
        """The messages as they are sent."""
        return Parcels(*resend_parcels(*self.piece.place, self.rules, with_messages=True))


@dataclass(frozen=True, slots=True)
class Parcels:
    """Messages that are to be sent: what is noted of each, None where it cannot be sent, and their bytes.

    `messages` holds them as in a batch, one behind the other; `ends` says where each ends, `flags` its sysFlag. `times`
    and `keys` are how often each was retried, and what those share whose order counts, where that is not to be 0 and
    none.
    """

    rows: Sequence[PlannedTuple | None]
    messages: bytes
    ends: npt.NDArray[np.int64]
    flags: npt.NDArray[np.int32]
    times: Sequence[int] = ()
    keys: Sequence[str] = ()


def runs_of(piece: Piece, rules: ResendRules | None) -> Iterator[PlainRun | list[Chosen]]:
    """The messages of a piece in runs, as :meth:`PlainPiece.runs`."""
    return piece.runs(rules) if isinstance(piece, PlainPiece) else iter([piece])


class ReplayChoice:
    """The messages of a source that are chosen; each time that it is gone over, the same ones in the same order."""

    is_distinct = False
    """Whether no message can be chosen twice."""

    notes: Sequence[str] = ()
    """At the end: what may be missing."""
    missing: Sequence[str] = ()
    """At the end: texts that name nothing."""

    def pieces(self, should_stop: Callable[[], bool] = never) -> Iterator[Piece]:
        """The messages, piece by piece, in the order of the log."""
        raise NotImplementedError

    def times(self) -> dict[str, int]:
        """The times in ms that the choice depends on, by name."""
        return {}

    def set_times(self, times: Mapping[str, int]) -> None:
        """Choose by the times of an earlier run: those that are said as "-1h" are others by now."""


def place_of(message: Message) -> str:
    """The place of a message in its cluster; messages of a batch share a record, but no queue offset.

    Brokers of different clusters may have one address: their messages have different unique keys.
    """
    host = _host_text(message.store_host)
    return f"{host} {message.physical_offset} {message.queue_offset} {message.unique_key or '-'}"


@lru_cache(KNOWN_HOSTS)
def _host_text(host: HostAddress) -> str:
    return str(host)


class RememberedChoice(ReplayChoice):
    """Another choice, of which the messages are remembered that are chosen first, where these are not too many.

    So the source is read once, to plan, and not again to send.
    """

    def __init__(self, choice: ReplayChoice, most: int = MOST_REMEMBERED, most_bytes: int = BYTES_REMEMBERED) -> None:
        self._choice, self._most, self._most_bytes = choice, most, most_bytes
        self._remembered: list[Piece] | None = None
        self.is_distinct = choice.is_distinct

    def pieces(self, should_stop: Callable[[], bool] = never) -> Iterator[Piece]:
        """As :meth:`ReplayChoice.pieces`."""
        if self._remembered is not None:
            yield from self._remembered
            return
        remembered: list[Piece] | None = []
        count = size = 0
        for piece in self._choice.pieces(should_stop):
            if isinstance(piece, PlainPiece):
                size += piece.records.offsets.nbytes
            else:
                count, size = count + len(piece), size + sum(each.message.total_size for each in piece)
            if remembered is not None:
                remembered.append(piece)
                remembered = None if count > self._most or size > self._most_bytes else remembered
            yield piece
        self.notes, self.missing = self._choice.notes, self._choice.missing
        if not should_stop():
            self._remembered = remembered


@dataclass
class SourceChoice(ReplayChoice):
    """What a source finds: the messages that `texts` name, else those of `topics` that meet the conditions.

    With `copies` also those that wait, are retried or were given up under topics of the broker's own. `is_masked`:
    something of what is found may be hidden.
    """

    source: Source
    topics: Sequence[str] = ()
    texts: Sequence[str] = ()
    conditions: SearchOptions = field(default_factory=SearchOptions)
    copies: bool = False
    is_masked: bool = False

    def pieces(self, should_stop: Callable[[], bool] = never) -> Iterator[Piece]:
        """As :meth:`ReplayChoice.pieces`."""
        self.notes, self.missing = (), ()
        steps = self._records(should_stop)
        if steps is not None:
            for step in steps:
                self.notes = step.notes
                if step.records is not None:
                    yield PlainPiece(step.records)
            return
        for piece in self._looked_up(should_stop) if self.texts else self._found(should_stop):
            yield list(map(self._chosen, piece))

    @property
    def is_distinct(self) -> bool:  # type: ignore[override]
        """As :attr:`ReplayChoice.is_distinct`: a store has each message once."""
        return len(self.topics) <= 1 and isinstance(self.source, Store)

    def _records(self, should_stop: Callable[[], bool]) -> Iterator[Step] | None:
        """The records of the choice, where they are what is chosen; None where their messages are looked at."""
        if self.texts or self.copies or self.is_masked or len(self.topics) > 1 or type(self.source) is not Store:
            return None
        return self.source.search_records(next(iter(self.topics), None), self.conditions, should_stop)

    def times(self) -> dict[str, int]:
        """As :meth:`ReplayChoice.times`."""
        return {name: time for name in ("begin", "end") if isinstance(time := self.conditions.get(name), int)}

    def set_times(self, times: Mapping[str, int]) -> None:
        """As :meth:`ReplayChoice.set_times`."""
        self.conditions = cast(SearchOptions, {**self.conditions, **times})

    def _looked_up(self, should_stop: Callable[[], bool]) -> Iterator[list[Message]]:
        missing = dict.fromkeys(self.texts)
        seen: set[str] = set()
        for topic in self.topics or (None,):
            found = self.source.look_up(self.texts, topic=topic, should_stop=should_stop)
            for matches in found.pieces():
                piece = []
                for match in matches:
                    missing.pop(match.text, None)
                    place = place_of(match.message)
                    if place not in seen:
                        seen.add(place)
                        piece.append(match.message)
                yield piece
            self.notes = (*self.notes, *found.notes)
        self.missing = list(missing)

    def _found(self, should_stop: Callable[[], bool]) -> Iterator[list[Message]]:
        of_topics = self.topics or (None,)
        limit = self.conditions.get("limit")
        for topic in of_topics:
            # Copies are stored under other topics than the one that they are known by.
            searched = None if self.copies else topic
            found = self.source.search(topic=searched, should_stop=should_stop, **self.conditions)
            for messages in found.pieces():
                piece = [each for each in messages if topic is None or is_known_by(each, topic)]
                piece = piece if limit is None else piece[: max(limit, 0)]
                limit = None if limit is None else limit - len(piece)
                yield piece
            self.notes = (*self.notes, *found.notes)

    def _chosen(self, message: Message) -> Chosen:
        return Chosen(message, place_of(message), MASKED_PART if self.is_masked and _holds_asterisks(message) else "")


def _holds_asterisks(message: Message) -> bool:
    """Whether asterisks stand where a mask would leave them."""
    return (
        message.store_host.is_hidden
        or message.born_host.is_hidden
        or MASKED.encode() in bytes(message.stored_body)
        or any(MASKED in value for value in message.properties.values())
    )


_Int: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]
_Long: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _Line(msgspec.Struct, rename="camel"):
    """The fields of a line that are sent, or say where it is from; those that are not there are None."""

    topic: str
    body: str | None
    properties: dict[str, str]
    body_encoding: str = "text"
    body_error: str | None = None
    body_packings: list[str] | None = None
    unique_key: str | None = None
    keys: list[str] | None = None
    tags: str | None = None
    queue_id: _Int = 0
    queue_offset: _Long = 0
    physical_offset: _Long = 0
    flag: _Int = 0
    sys_flag: _Int = 0
    reconsume_times: _Int = 0
    born_timestamp: _Long = 0
    store_timestamp: _Long = 0
    store_host: str | None = None


@dataclass
class LinesChoice(ReplayChoice):
    """The messages of a file of JSON lines, as `export` and `find --json` write them, edited or not.

    A line whose `keys`, `tags` or `uniqueKey` are other ones than its `properties` say cannot be sent: which is meant
    is not known.
    """

    file: Path
    topics: Sequence[str] = ()
    is_distinct = True

    def pieces(self, should_stop: Callable[[], bool] = never) -> Iterator[Piece]:
        """As :meth:`ReplayChoice.pieces`; raises ConfigError for a line that is no message."""
        self.notes = ()
        seen: dict[str, int] = {}
        piece: list[Chosen] = []
        size = 0
        try:
            with self.file.open("rb") as lines:
                number = 0
                while line := lines.readline(LONGEST_LINE):
                    number += 1
                    if should_stop():
                        return
                    if line.strip():
                        chosen = self._chosen(line, number, seen)
                        if not self.topics or chosen.message.topic in self.topics:
                            piece.append(chosen)
                            size += len(line)
                            if len(piece) >= LINES_AT_ONCE or size >= BYTES_AT_ONCE:
                                yield piece
                                piece, size = [], 0
            if piece:
                yield piece
        except OSError as error:
            raise ConfigError(f"{self.file} cannot be read: {error.strerror or error}") from error

    def _chosen(self, line: bytes, number: int, seen: dict[str, int]) -> Chosen:
        try:
            parsed = msgspec.json.decode(line, type=_Line)
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.file}, line {number}: no message in JSON: {error}") from error
        message, refusal = _message_of(parsed)
        place = f"line {number}" if message.store_host.is_hidden else place_of(message)
        if place in seen:
            place, refusal = f"line {number}", refusal or f"the same message as line {seen[place]}"
        seen.setdefault(place, number)
        return Chosen(message, place, refusal)


def _message_of(line: _Line) -> tuple[Message, str]:
    """The message of a line, and why it cannot be sent, if it cannot."""
    refusal = _refusal_of(line)
    body = b""
    if line.body is not None:
        try:
            body = _body_of(line)
        except ValueError as error:
            refusal = refusal or f"its body is no {line.body_encoding}: {error}"
    host = _address(line.store_host)
    message = Message(
        total_size=len(body),
        magic=V2_MAGIC,
        body_crc=body_crc(body),
        queue_id=line.queue_id,
        flag=line.flag,
        queue_offset=line.queue_offset,
        physical_offset=line.physical_offset,
        sys_flag=line.sys_flag & ~_COMPRESSED,
        born_timestamp=line.born_timestamp,
        born_host=HIDDEN_HOST,
        store_timestamp=line.store_timestamp,
        store_host=host or HIDDEN_HOST,
        reconsume_times=line.reconsume_times,
        prepared_transaction_offset=0,
        stored_body=body,
        topic=line.topic,
        properties_bytes=encode_properties(line.properties),
    )
    return message, refusal


def _refusal_of(line: _Line) -> str:
    """Why the message of a line cannot be sent; empty where nothing is against it."""
    properties = line.properties
    hidden = [line.body, line.store_host, line.unique_key, line.tags, *(line.keys or ()), *properties.values()]
    if MASKED in hidden:
        return MASKED_PART
    if line.body is None or line.body_error:
        return f"its body could not be read: {line.body_error or 'there is none'}"
    if line.body_packings:
        packed = ", ".join(line.body_packings)
        return f"its body was unpacked ({packed}), so it is not the one that was sent: export it with --no-unpack"
    said: Mapping[str, tuple[Any, Any]] = {
        "keys": (line.keys, split_keys(properties.get(KEYS, ""))),
        "tags": (line.tags, properties.get(TAGS)),
        "uniqueKey": (line.unique_key, properties.get(UNIQ_KEY)),
    }
    for name, (beside, inside) in said.items():
        if beside is not None and beside != inside:
            return f"its {name} are another than in its properties: change both"
    for name, value in properties.items():
        if any(separator in text for text in (name, value) for separator in _SEPARATORS):
            return f"its property {name!r} holds a separator of properties (0x01, 0x02)"
    return ""


def _body_of(line: _Line) -> bytes:
    assert line.body is not None
    if line.body_encoding == "base64":
        try:
            return base64.b64decode(line.body, validate=True)
        except binascii.Error as error:
            raise ValueError(str(error)) from error
    if line.body_encoding != "text":
        raise ValueError("expected text or base64")
    return line.body.encode()


def _address(text: str | None) -> HostAddress | None:
    """The address ``IP:port``; None for what is none."""
    if text is None:
        return None
    try:
        address = Endpoint.parse(text)
        host = HostAddress(address.host, address.port)
        host.pack()
    except (RocketLensError, ValueError):
        return None
    return host
