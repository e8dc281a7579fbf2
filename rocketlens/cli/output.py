"""Messages as a person or a program wants them: a readable table, JSON lines, or a stream of msgpack maps.

A program gets the fields that docs/message.schema.json describes, named in camel case as RocketMQ's own; times are
milliseconds since 1970. The body is decompressed, and unpacked where the application packed it, as `bodyPackings` says
(:mod:`protocol.body_content`). In JSON it is text when it is text (UTF-8, or the charset that is asked for, as
`text_in` there decides), else base64; `bodyEncoding` says which; in msgpack it is bytes. A body that cannot be
decompressed is given as it is stored, one that cannot be unpacked as it was sent, and `bodyError` says why.
"""

import base64
import functools
import os
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import click
import msgspec

from protocol.body_content import indented_json, looks_like, text_in, unpack
from protocol.compression import Budget
from protocol.errors import StoreError
from protocol.message import Message
from protocol.printable import printable
from rocketlens.cli.errors import say, store_in_question
from rocketlens.cli.options import is_typed
from rocketlens.cli.time_options import chosen_zone
from storage.amounts import counted
from storage.times import format_local, zone_name

if TYPE_CHECKING:
    from protocol.question import Answer

Fields: TypeAlias = dict[str, Any]
Writer: TypeAlias = Callable[[Iterable[Message]], None]

FORMATS = ("table", "json", "msgpack")

BODY_PREVIEW = 60
"""Characters of a body in a list of messages."""

LONGEST_BODY = 20_000
"""Characters of a body shown to a person; programs get all."""

PREVIEW_BYTES = 4096
"""Bytes of a body that are looked at for them."""

MOST_LOOKED_AT = 100
"""Bodies that are no text of which the charset is guessed, until one is found."""

_LOOKED_AT: Final = "rocketlens.charset looked for"

NUMBERS = (
    *("QUEUE", "OFFSET", "PHYSICAL", "QUEUES", "MESSAGES", "BEHIND", "FIRST OFFSET", "END OFFSET", "NEXT OFFSET"),
)
"""Columns of a table that are aligned to the right."""

TIMES = frozenset({"STORED", "FIRST STORED", "LAST STORED", "TIME", "DUE", "NEXT DUE", "LAST DUE", "HOUR"})
"""Columns of times; their headings name the zone."""

STORE: Final = "STORE"
"""The first column of a table about several stores."""

GROWING = ("MESSAGE ID", "TOPIC", "QUEUE", "OFFSET", "PHYSICAL", "STORED", "TAG", "KEYS", "BODY")
"""Columns of a list that grows."""

BETWEEN: Final = "  "
"""What stands between two columns."""


def message_fields(message: Message) -> Fields:
    """All fields of a message by name, in the order in which they are written; the body as bytes.

    `bodyPackings` is there where something was unpacked, `bodyNote` where the body is not compressed as `sysFlag` says,
    `bodyError` where something could not be unpacked.
    """
    fields: Fields = {
        "messageId": message.message_id,
        "uniqueKey": message.unique_key,
        "offsetMessageId": message.offset_message_id,
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "totalSize": message.total_size,
        "magic": message.magic & 0xFFFFFFFF,
        "bodyCrc": message.body_crc,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": str(message.born_host),
        "storeTimestamp": message.store_timestamp,
        "storeHost": str(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.properties,
    }
    content = message.content()
    fields["body"] = bytes(content.data)
    if content.packings:
        fields["bodyPackings"] = list(content.packings)
    if content.note is not None:
        fields["bodyNote"] = content.note
    if content.error is not None:
        fields["bodyError"] = content.error
    return fields


def time_text(timestamp: int) -> str:
    """Milliseconds since 1970 as a time of the command's zone; what lies outside the calendar stays a number."""
    return format_local(timestamp, chosen_zone())


def has_no_color() -> bool:
    """Whether the environment asks for output that is neither bold nor coloured (no-color.org)."""
    return bool(os.environ.get("NO_COLOR"))


def optional_time(timestamp: int | None) -> str:
    """As `time_text`; empty for a time that is not known."""
    return "" if timestamp is None else time_text(timestamp)


def json_fields(message: Message, charset: str | None = None) -> Fields:
    """The fields of a message for JSON: as `message_fields`, with the body as text of a charset, or base64.

    What could not be decompressed or unpacked is no text, even where it looks like one.
    """
    fields = message_fields(message)
    text = None if "bodyError" in fields else text_in(fields["body"], charset)
    if text is None:
        _propose_charset(fields["body"], charset)
    fields["bodyEncoding"] = "base64" if text is None else "text"
    fields["body"] = base64.b64encode(fields["body"]).decode() if text is None else text
    return fields


def _fields_in(name: str, charset: str | None) -> Callable[[Message], Fields]:
    """What makes the fields of a message for one of the formats for programs."""
    return functools.partial(json_fields, charset=charset) if name == "json" else message_fields


def write_maps(name: str, maps: Iterable[Fields], charset: str | None = None) -> None:
    """Write maps to stdout as JSON lines or msgpack; a `Message` in one of them becomes a map of its fields.

    Each begins with `store` where several stores are asked.
    """
    import msgpack

    fields_of, store = _fields_in(name, charset), store_in_question()
    for each in maps:
        first: Fields = {} if store is None else {"store": store}
        plain = first | {key: fields_of(value) if isinstance(value, Message) else value for key, value in each.items()}
        sys.stdout.buffer.write(msgspec.json.encode(plain) + b"\n" if name == "json" else msgpack.packb(plain))
    sys.stdout.buffer.flush()


def write_messages(name: str, rows: Iterable[tuple[Message, Fields]], charset: str | None = None) -> None:
    """Write messages, each with some fields before its own, as :func:`write_maps` does."""
    fields_of = _fields_in(name, charset)
    write_maps(name, ({**more, **fields_of(message)} for message, more in rows))


def found_writer(name: str, charset: str | None = None, *, lists_copies: bool = False) -> "Callable[[Answer], None]":
    """As :func:`growing_writer`, for what a text names: each message with what it was found by, and with its stage.

    And with its store, where several are asked. In a table the copies of a message share the row of the one that was
    stored last, unless `lists_copies`.
    """
    from protocol.system_topics import stage_of

    def write_rows(found: "Answer") -> None:
        print_table(
            (*((STORE,) if found.stores else ()), "FOUND BY", "MESSAGE ID", "STAGE", *GROWING[1:]),
            (
                (
                    *row.store,
                    row.kind,
                    row.message.message_id,
                    ": ".join(filter(None, (stage_of(row.message.topic).value, row.outcome)))
                    + (f" +{counted(copies, 'copy', 'copies')}" if copies else ""),
                    *_growing_row(row.message, charset)[1:],
                )
                for row, copies in rows_of(found, lists_copies=lists_copies)
            ),
        )

    def fields(row: FoundRow) -> Fields:
        found_so = {"foundBy": row.kind, "stage": stage_of(row.message.topic).value, "outcome": row.outcome or None}
        return {**dict(zip(("store",), row.store, strict=False)), **found_so}

    if name == "table":
        return write_rows
    return lambda found: write_messages(
        name, ((row.message, fields(row)) for row, _ in rows_of(found, lists_copies=True)), charset
    )


class FoundRow(NamedTuple):
    """A message that a text names: as what, how its transaction ended, and of several stores the one that it is in."""

    message: Message
    kind: str
    outcome: str
    store: tuple[str, ...]


def rows_of(found: "Answer", *, lists_copies: bool) -> list[tuple[FoundRow, int]]:
    """The rows of messages, those of copies of one message once: the last one that was stored, and how many more.

    A broker that makes a copy keeps the unique key, and when and where the message was born.
    """
    outcomes = found.outcomes or [""] * len(found)
    stores: Sequence[tuple[str, ...]] = [(each,) for each in found.stores] or [()] * len(found)
    alike: dict[object, list[FoundRow]] = {}
    for row in map(FoundRow, found, found.kinds, outcomes, stores):
        message = row.message
        born = (message.unique_key, message.born_timestamp, message.born_host)
        alike.setdefault(id(row) if lists_copies or not (message.unique_key or "").strip("*") else born, []).append(row)
    return [
        (max(each, key=lambda row: (row.message.store_timestamp, row.message.physical_offset)), len(each) - 1)
        for each in alike.values()
    ]


def say_what_lacks(found: object) -> None:
    """Print what a list or another answer lacks, or what of it is not as it seems."""
    for note in getattr(found, "notes", ()):
        say(note)


def growing_writer(name: str, charset: str | None = None) -> Writer:
    """The function that writes messages to stdout in one of `FORMATS`, piece by piece.

    `charset` is that of bodies that are text; None is UTF-8.
    """
    if name != "table":
        return lambda messages: write_messages(name, ((message, {}) for message in messages), charset)
    write_rows = growing_table(GROWING)
    return lambda messages: write_rows(_growing_row(message, charset) for message in messages)


def growing_table(headings: Sequence[str]) -> Callable[[Iterable[Iterable[str | int]]], None]:
    """What writes a table in pieces: its head comes once, with the first row.

    Columns of later pieces are as wide as those of earlier ones, if not wider.
    """
    widths: list[int] = []

    def write_rows(rows: Iterable[Iterable[str | int]]) -> None:
        shown, placed = _with_store(headings, rows)
        cells = [[printable(str(cell)) for cell in row] for row in placed]
        if cells:
            is_first = not widths
            spaces = map(" ".__mul__, widths or [0] * len(shown))
            widths[:] = [max(map(cell_width, column)) for column in zip(shown, spaces, *cells, strict=True)]
            _print_rows(shown, cells, widths, is_first=is_first)

    return write_rows


def _growing_row(message: Message, charset: str | None) -> tuple[str | int, ...]:
    return (
        *(message.message_id, message.topic, message.queue_id, message.queue_offset, message.physical_offset),
        *(time_text(message.store_timestamp), message.tags or "", " ".join(message.keys), _preview(message, charset)),
    )


def print_table(headings: Sequence[str], rows: Iterable[Iterable[str | int]]) -> None:
    """Write rows of texts and numbers under headings, those of times with the zone; nothing where there are none.

    Each begins with its store where several stores are asked. No cell is wrapped: on a terminal that is too narrow for
    a row each becomes a record of one line a column.
    """
    shown, placed = _with_store(headings, rows)
    _print_rows(shown, [[printable(str(cell)) for cell in row] for row in placed])


def _with_store(
    headings: Sequence[str], rows: Iterable[Iterable[str | int]]
) -> tuple[Sequence[str], Iterable[Iterable[str | int]]]:
    """A table with a column of the store in question, where there is one."""
    store = store_in_question()
    return (headings, rows) if store is None else ((STORE, *headings), ((store, *row) for row in rows))


def _print_rows(
    headings: Sequence[str], cells: Sequence[Sequence[str]], widths: Sequence[int] = (), *, is_first: bool = True
) -> None:
    """Write a table, or a piece of one: the headings are left out but for the first; columns have least `widths`."""
    shown = [f"{heading} ({zone_name(chosen_zone())})" if heading in TIMES else heading for heading in headings]
    if not cells:
        return
    sizes = [max(map(cell_width, column)) for column in zip(*([shown] if is_first else []), *cells, strict=True)]
    sizes = list(map(max, sizes, widths or sizes))
    if sys.stdout.isatty() and sum(sizes) + len(BETWEEN) * (len(sizes) - 1) > shutil.get_terminal_size().columns:
        for number, row in enumerate(cells):
            if number or not is_first:
                click.echo()
            print_fields(zip(shown, row, strict=True))
        return
    sides = [heading in NUMBERS for heading in headings]
    lines = [BETWEEN.join(map(_padded, row, sizes, sides)).rstrip() for row in cells]
    if is_first:
        lines.insert(0, _bold(BETWEEN.join(map(_padded, shown, sizes, sides)).rstrip()))
    click.echo("\n".join(lines))


def cell_width(text: str) -> int:
    """How many columns a text takes on a terminal: two for a wide character, none for one that changes another."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.category(each) in ("Mn", "Me", "Cf") else 1 + (unicodedata.east_asian_width(each) in "WF")
        for each in text
    )


def _padded(text: str, width: int, is_number: bool) -> str:
    blanks = " " * (width - cell_width(text))
    return blanks + text if is_number else text + blanks


def _bold(text: str) -> str:
    """A heading, bold on a terminal that can show it."""
    is_plain = has_no_color() or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb"
    return text if is_plain else click.style(text, bold=True)


def write_details(messages: Iterable[Message], charset: str | None = None, stores: Sequence[str] = ()) -> None:
    """Write each message as a block of one line a field; on a terminal a body that is JSON is indented.

    `stores` are those of the messages, where several are asked.
    """
    for number, message in enumerate(messages):
        if number:
            click.echo()
        store = [("store", stores[number])] if stores else []
        print_fields([*store, *_details(message, charset)])


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Write names and values, one of each on a line."""
    rows = list(fields)
    width = max((cell_width(name) for name, _ in rows), default=0)
    for name, value in rows:
        shown = printable(value).replace("\n", f"\n{' ' * width}{BETWEEN}")
        click.echo(f"{_bold(_padded(name, width, False))}{BETWEEN}{shown}".rstrip())


def format_options_with(*more: str, said: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Options `--format` and `--json`; a command gets the one of `FORMATS`, or of `more`, that they choose as
    `output_format`. `said` is what help says of these.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(*, output_format: str | None, as_json: bool, **arguments: Any) -> None:
            command(output_format=chosen_format(output_format, as_json), **arguments)

        with_json = click.option("--json", "as_json", is_flag=True, help="The same as --format json.")(run)
        return click.option(
            "--format",
            "output_format",
            type=click.Choice((*FORMATS, *more)),
            metavar="NAME",
            help=f"table for people, json for an object on each line, msgpack for a stream of maps{said}. "
            "[default: table]",
        )(with_json)

    return decorate


format_options = format_options_with()


def chosen_format(output_format: str | None, as_json: bool) -> str:
    """Settle `--format` and `--json`; a contradiction is a usage error, unless one of them alone was typed.

    The other one, from the environment, does not count then.
    """
    is_json_typed = is_typed("as_json")
    if is_typed("output_format") != is_json_typed:
        return "json" if is_json_typed else output_format or "table"
    if as_json and output_format not in (None, "json"):
        raise click.UsageError(f"--json and --format {output_format} exclude each other")
    return "json" if as_json else output_format or "table"


def _details(message: Message, charset: str | None) -> list[tuple[str, str]]:
    fields = message_fields(message)
    body, *remarks = (fields.pop(name, None) for name in ("body", "bodyNote", "bodyError"))
    properties = fields.pop("properties")
    rows = [(name, _detail(name, value)) for name, value in fields.items() if value not in (None, [])]
    rows += [(f"property {printable(name)}", value) for name, value in properties.items()]
    rows += [(name, text) for name, text in zip(("bodyNote", "bodyError"), remarks, strict=True) if text]
    return [*rows, ("body", _body_for_people(body, charset))]


def _detail(name: str, value: Any) -> str:
    if name.endswith("Timestamp"):
        return f"{time_text(value)} ({value})"
    if name in ("magic", "bodyCrc"):
        return f"0x{value & 0xFFFFFFFF:08x}"
    return " ".join(value) if isinstance(value, list) else str(value)


def _body_for_people(body: bytes, charset: str | None) -> str:
    text = text_in(body, charset)
    if text is None:
        _propose_charset(body, charset)
    if text is not None and sys.stdout.isatty():
        text = indented_json(text) or text
    if text is None:
        text = f"{len(body)} bytes that are not text, in base64: {base64.b64encode(body[:LONGEST_BODY]).decode()}"
    return text if len(text) <= LONGEST_BODY else f"{text[:LONGEST_BODY]}… ({len(body)} bytes; --json shows all)"


def _propose_charset(body: bytes | memoryview, charset: str | None) -> None:
    """Print once in a command that a body looks like text of another charset, and the option that reads it."""
    context = click.get_current_context(silent=True)
    if context is None or charset is not None or context.meta.get(_LOOKED_AT, 0) >= MOST_LOOKED_AT:
        return
    context.meta[_LOOKED_AT] = context.meta.get(_LOOKED_AT, 0) + 1
    likely = looks_like(body)
    if likely is not None:
        context.meta[_LOOKED_AT] = MOST_LOOKED_AT
        say(f"a body looks like {likely.upper()}: --charset {likely} shows such bodies as text")


def _preview(message: Message, charset: str | None) -> str:
    try:
        body = unpack(message.decoded_body(), budget=Budget.of_list()).data
    except StoreError:
        return "(cannot be decompressed)"
    text = text_in(memoryview(body)[:PREVIEW_BYTES], charset, is_cut=len(body) > PREVIEW_BYTES)
    if text is None:
        _propose_charset(body, charset)
        return f"({len(body)} bytes, not text)"
    line = " ".join(text.split())
    return line if len(line) <= BODY_PREVIEW else f"{line[: BODY_PREVIEW - 1]}…"
