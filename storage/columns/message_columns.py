"""The columns of messages, gathered from where their records lie.

| name | what | kind |
|---|---|---|
| topic | | text |
| queue_id | | i32 |
| queue_offset | number in its queue | i64 |
| physical_offset | where the record starts in the commit log | i64 |
| size | bytes of the record | i32 |
| store_timestamp, born_timestamp | the broker's clock, the client's; ms | time |
| store_host, born_host | `ip:port` | text |
| unique_key, tags | None without | text |
| keys | | list of texts |
| properties | | map of texts |
| flag, sys_flag, reconsume_times | | i32 |
| prepared_transaction_offset | | i64 |
| body_crc | of the body as stored | i32 |
| body | decompressed; None if that is impossible | bytes |
| body_error | why | text |

Texts that are no UTF-8 are decoded as Java does. A message of a batch has its own flag, body and properties, the next
queue offset after the one before it, and else what the batch's record has, of which all have place and size.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from protocol.body_content import FIRST_BYTES, Content, consumed
from protocol.checksum import body_crc
from protocol.compression import Budget
from protocol.errors import CorruptRecord
from protocol.sys_flag import OF_BATCH, SysFlag
from storage.columns.body_content import BodyContent, BodyCounts
from storage.columns.names import KINDS, PROPERTIES_OF, ColumnKind
from storage.columns.properties import Properties
from storage.columns.rows import MessageRows
from storage.columns.texts import (
    AnyTexts,
    Numbers,
    RepeatedTexts,
    TextLists,
    TextMaps,
    TextPlaces,
    Texts,
    gather_hosts,
    gather_keys,
)
from storage.kernels import message_rows as kernel
from storage.kernels import records as codes
from storage.kernels.region import Region
from storage.kernels.texts import bytes_at

MessageRow: TypeAlias = dict[str, Any]
"""One message by column; the caller chooses the columns."""

Column: TypeAlias = Numbers | npt.NDArray[np.int32] | AnyTexts | TextLists | TextMaps

MOST_BODY_BYTES: Final = 32 * 1024 * 1024
"""Decompressed bodies beyond so many bytes end a block of columns."""

NO_BODIES: Final = BodyCounts()

_COMPRESSED: Final = int(SysFlag.COMPRESSED)
_FIRST_BYTES: Final = np.array(sorted(FIRST_BYTES), np.int64)
_NUMBERS: Final = {
    # name: the field of the table it counts from, how far behind that it stands, its bits
    "body_crc": ("position", codes.BODY_CRC, 32),
    "queue_id": ("position", codes.QUEUE_ID, 32),
    "flag": ("position", codes.FLAG, 32),
    "queue_offset": ("position", codes.QUEUE_OFFSET, 64),
    "physical_offset": ("position", codes.PHYSICAL_OFFSET, 64),
    "sys_flag": ("position", codes.SYS_FLAG, 32),
    "born_timestamp": ("position", codes.BORN_TIMESTAMP, 64),
    "store_timestamp": ("store_host", -8, 64),
    "reconsume_times": ("body", -16, 32),
    "prepared_transaction_offset": ("body", -12, 64),
}


_NAMED: Final[dict[str, Callable[[TextPlaces], Column]]] = {
    # name, which is that of the field that says where the value lies: what makes a column of it
    "unique_key": TextPlaces.gather_utf8,
    "tags": TextPlaces.gather_repeated_utf8,
    "keys": gather_keys,
}


class Columns(dict[str, Column]):
    """Columns by name, all of them `count` long.

    `bodies` counts what was met in them.
    """

    def __init__(self, count: int, columns: dict[str, Column], bodies: BodyCounts = NO_BODIES) -> None:
        """`columns` in the order wanted."""
        super().__init__(columns)
        self.count = count
        self.bodies = bodies


def needs_names(names: Sequence[str]) -> bool:
    """Whether the reader of rows is to note where keys, tag and unique key lie.

    Where all properties are wanted they are taken apart anyway, and these are found on the way.
    """
    return "properties" not in names and not _NAMED.keys().isdisjoint(names)


def gather(rows: MessageRows, names: Sequence[str], content: BodyContent | None = None) -> Iterator[Columns]:
    """The columns of some messages, copied; in several blocks where bodies become very much.

    `content` says what becomes of bodies, None that they stay what consumers get.
    """
    if "body" not in names and "body_error" not in names:
        yield _gather(rows, names, {}, {})
        return
    flags = numbers_of(rows, "sys_flag")
    is_compressed = (flags & _COMPRESSED != 0) & (rows.table["body_length"] > 0)
    to_make = np.flatnonzero(is_compressed | _may_change(rows, content)).tolist()
    start, held = 0, 0
    bodies: dict[int, bytes] = {}
    errors: dict[int, bytes] = {}
    counts = NO_BODIES
    budget, of_batch = Budget(), -1
    batches = np.where(rows.table["inner"] >= 0, rows.table["position"], -1).tolist()
    for row in to_make:
        if batches[row] < 0 or batches[row] != of_batch:  # the messages of a batch have one together
            budget, of_batch = Budget(), batches[row]
        try:
            found = consumed(_stored(rows, row), int(flags[row]), budget)
            body = bytes(found.data)
            made = Content(body) if content is None else content.of(body, budget)
            counts = counts.plus(BodyCounts(made.error is not None, found.note is not None, bool(made.packings)))
            if made.data is not body or is_compressed[row]:
                bodies[row - start] = bytes(made.data)
                held += len(made.data)
        except CorruptRecord as error:
            errors[row - start] = str(error).partition(": ")[2].encode()
            counts = counts.plus(BodyCounts(unreadable=1))
        if held > MOST_BODY_BYTES:
            yield _gather(rows.slice(start, row + 1), names, bodies, errors, counts)
            start, held, bodies, errors, counts = row + 1, 0, {}, {}, NO_BODIES
    if start < len(rows):
        yield _gather(rows.slice(start, len(rows)), names, bodies, errors, counts)


def _may_change(rows: MessageRows, content: BodyContent | None) -> npt.NDArray[np.bool_]:
    """Which bodies may become others by their content: of most formats, those that begin as something packed does."""
    if content is None:
        return np.zeros(len(rows), np.bool_)
    is_there: npt.NDArray[np.bool_] = rows.table["body_length"] > 0
    if not content.changes_texts:
        beginnings = np.zeros(len(rows), np.int64)
        there = np.flatnonzero(is_there)
        found = np.empty(len(there), np.int64)
        # Behind each body there is a topic or the length of properties, so that four bytes are there in any case.
        kernel.load_numbers(rows.region, rows.column("body")[there], 0, 32, found)
        beginnings[there] = found >> 24 & 0xFF
        is_there = is_there & np.isin(beginnings, _FIRST_BYTES)
    return is_there


def _gather(
    rows: MessageRows,
    names: Sequence[str],
    bodies: dict[int, bytes],
    errors: dict[int, bytes],
    counts: BodyCounts = NO_BODIES,
) -> Columns:
    columns: dict[str, Column] = {}
    properties = _properties(rows) if "properties" in names else None
    for name in names:
        if name == "body":
            columns[name] = _bodies(rows, bodies, errors)
        elif name == "body_error":
            columns[name] = _errors(len(rows), errors)
        elif name in _NAMED:
            places = _places(rows, name) if properties is None else properties.of(PROPERTIES_OF[name].encode())
            columns[name] = _NAMED[name](places)
        elif name in _NUMBERS:
            columns[name] = _sized(name, numbers_of(rows, name))
        elif properties is not None and name == "properties":
            columns[name] = properties.maps()
        else:
            columns[name] = _GATHER[name](rows)
    return Columns(len(rows), columns, counts)


def numbers_of(rows: MessageRows, name: str) -> Numbers:
    """One of the columns of numbers, as 64 bits."""
    field, distance, bits = _NUMBERS[name]
    numbers = np.empty(len(rows), np.int64)
    kernel.load_numbers(rows.region, rows.column(field), distance, bits, numbers)
    inner = np.flatnonzero(rows.column("inner") >= 0)
    if inner.size and name in _OF_INNER:
        numbers[inner] = _OF_INNER[name](rows, inner, numbers[inner])
    return numbers


def _flags_of_inner(rows: MessageRows, inner: Numbers, _of_records: Numbers) -> Numbers:
    flags = np.empty(len(inner), np.int64)
    kernel.load_numbers(rows.region, rows.column("body")[inner], codes.INNER_FLAG - codes.INNER_HEAD, 32, flags)
    return flags


def _behind_hosts(rows: MessageRows, inner: Numbers, distance: int, bits: int) -> Numbers:
    """Read the numbers at a distance behind the hosts of the records, where plain records have their bodies nearby."""
    flags, numbers = np.empty(len(inner), np.int64), np.empty(len(inner), np.int64)
    kernel.load_numbers(rows.region, rows.column("position")[inner], codes.SYS_FLAG, 32, flags)
    hosts = codes.RECONSUME_TIMES - codes.STORE_IP + np.where(flags & codes.STORE_HOST_V6, codes.IPV6_EXTRA, 0)
    kernel.load_numbers(rows.region, rows.column("store_host")[inner] + hosts, distance, bits, numbers)
    return numbers


def _sums_of_inner(rows: MessageRows, inner: Numbers, _of_records: Numbers) -> Numbers:
    places = zip(rows.column("body")[inner].tolist(), rows.column("body_length")[inner].tolist(), strict=True)
    return np.array([body_crc(bytes_at(rows.region, *place)) for place in places], np.int64)


_OF_INNER: Final[dict[str, Callable[[MessageRows, Numbers, Numbers], Numbers]]] = {
    # name: the numbers of messages in batches, by their rows and the numbers of their records
    "queue_offset": lambda rows, inner, numbers: numbers + rows.column("inner")[inner],
    "sys_flag": lambda _rows, _inner, numbers: numbers & ~OF_BATCH,
    "flag": _flags_of_inner,
    "body_crc": _sums_of_inner,
    "reconsume_times": lambda rows, inner, _numbers: _behind_hosts(rows, inner, 0, 32),
    "prepared_transaction_offset": lambda rows, inner, _numbers: _behind_hosts(rows, inner, 4, 64),
}


def _sized(name: str, numbers: Numbers) -> Column:
    return numbers.astype(np.int32) if KINDS[name] is ColumnKind.INT else numbers


def _size(rows: MessageRows) -> Column:
    return _sized("size", rows.column("size"))


def topics_of(rows: MessageRows) -> AnyTexts:
    """The topics."""
    return _places(rows, "topic").gather_repeated_utf8()


def _places(rows: MessageRows, field: str) -> TextPlaces:
    return TextPlaces(rows.region, rows.column(field).copy(), rows.column(f"{field}_length").copy())


def _properties(rows: MessageRows) -> Properties:
    return Properties(rows.region, rows.column("properties").copy(), rows.column("properties_length").copy())


def _hosts(field: str, bit: int) -> Callable[[MessageRows], Column]:
    def gather_them(rows: MessageRows) -> Column:
        return gather_hosts(rows.region, rows.column(field).copy(), numbers_of(rows, "sys_flag") & bit != 0)

    return gather_them


_GATHER: Final[dict[str, Callable[[MessageRows], Column]]] = {
    "size": _size,
    "topic": topics_of,
    "store_host": _hosts("store_host", codes.STORE_HOST_V6),
    "born_host": _hosts("born_host", codes.BORN_HOST_V6),
}


def _stored(rows: MessageRows, row: int) -> bytes:
    return bytes_at(rows.region, int(rows.table["body"][row]), int(rows.table["body_length"][row]))


def _bodies(rows: MessageRows, bodies: dict[int, bytes], errors: dict[int, bytes]) -> Texts:
    places = _places(rows, "body")
    if errors:
        places.lengths[list(errors)] = -1
    if bodies:
        places.put(list(bodies), list(bodies.values()))
    return places.gather()


def _errors(count: int, errors: dict[int, bytes]) -> Texts:
    places = TextPlaces(Region(b""), np.zeros(count, np.int64), np.full(count, -1, np.int64))
    if errors:
        places.put(list(errors), list(errors.values()))
    return places.gather()


def python_rows(columns: Columns) -> Iterator[MessageRow]:
    """A map of each message, by column: numbers, texts, bytes for bodies, lists and maps; times are ms."""
    values = [python_values(name, column) for name, column in columns.items()]
    names = tuple(columns)
    for row in zip(*values, strict=True):
        yield dict(zip(names, row, strict=True))


def python_values(name: str, column: Column) -> list[Any]:
    """The values of one column."""
    if isinstance(column, Texts | RepeatedTexts):
        return _pieces(column) if isinstance(column, Texts) and KINDS[name] is ColumnKind.BYTES else _decoded(column)
    if isinstance(column, TextLists):
        texts = _decoded(column.texts)
        return [texts[start:stop] for start, stop in itertools.pairwise(column.offsets.tolist())]
    if isinstance(column, TextMaps):
        pairs = list(zip(_decoded(column.names), _decoded(column.values), strict=True))
        return [dict(pairs[start:stop]) for start, stop in itertools.pairwise(column.offsets.tolist())]
    values: list[Any] = column.tolist()
    return values


def _pieces(texts: Texts) -> list[bytes | None]:
    data = texts.data.tobytes()
    pieces: list[bytes | None] = [data[start:stop] for start, stop in itertools.pairwise(texts.offsets.tolist())]
    if texts.present is not None:
        for row in (~texts.present).nonzero()[0].tolist():
            pieces[row] = None
    return pieces


def _decoded(texts: AnyTexts) -> list[str | None]:
    if isinstance(texts, RepeatedTexts):
        words = [*_decoded(texts.words), None]  # to which −1 leads
        return [words[code] for code in texts.codes.tolist()]
    return [None if piece is None else piece.decode() for piece in _pieces(texts)]
