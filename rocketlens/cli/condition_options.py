"""The conditions that messages are searched by, as `search` and `replay` take them."""

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
import msgspec

from rocketlens.arguments import SearchOptions
from rocketlens.cli.options import where_option
from rocketlens.cli.time_options import stored_options

Command = TypeVar("Command", bound=Callable[..., Any])

PLACES = ("body", "properties", "any")


class SearchConditions(msgspec.Struct, frozen=True):
    """What the options say of the messages that are looked for."""

    begin: int | None
    end: int | None
    contains: str | None
    regex: str | None
    place: str
    json_path: str | None
    where: str | None
    tag: str | None
    key: str | None
    key_prefix: str | None
    born_host: str | None
    size: str | None
    charset: str | None

    def options(self, maximum: int | None, cursor: str | None = None) -> SearchOptions:
        """The same as keyword arguments of a search for so many messages."""
        return SearchOptions(
            begin=self.begin,
            end=self.end,
            contains=None if self.contains is None else os.fsencode(self.contains),  # bytes that may be no UTF-8
            regex=self.regex,
            place=self.place,
            json_path=self.json_path,
            where=self.where,
            tag=self.tag,
            key=self.key,
            key_prefix=self.key_prefix,
            born_host=self.born_host,
            size=self.size,
            charset=self.charset,
            limit=maximum,
            cursor=cursor,
        )


def condition_options(
    *earlier_times: tuple[str, str], earlier_where: Sequence[str] = ()
) -> Callable[[Command], Command]:
    """Add the options of `SearchConditions` but for the topic; times and expressions may have earlier spellings."""
    options = (
        stored_options(*earlier_times, is_optional=True),
        click.option("--contains", metavar="TEXT", help="The unpacked body contains this text (see --in)."),
        click.option("--regex", metavar="RE", help="A regular expression matches in it (see --in)."),
        click.option(
            "--in",
            "place",
            type=click.Choice(PLACES),
            default="body",
            show_default=True,
            metavar="PLACE",
            help="Where --contains and --regex look: in the body, in the values of the properties (also KEYS and "
            "TAGS), or in any of both.",
        ),
        click.option(
            "--json-path",
            metavar="EXPR=VALUE",
            help="The JSONPath finds the value in a body of JSON: '$.order.id=4711' finds 4711 and \"4711\".",
        ),
        where_option("The properties fulfil this expression", name="where", earlier=earlier_where),
        click.option("--tag", metavar="EXPRESSION", help="A tag subscription: 'TagA || TagB'."),
        click.option("--key", help="A key or unique key. With a topic the index is used."),
        click.option("--key-prefix", metavar="P", help="A key or unique key starts so; no index is used."),
        click.option(
            "--born-host",
            metavar="H",
            help="The sender, behind a proxy too: an address, address:port, network (10.1.0.0/16) or host name.",
        ),
        click.option(
            "--size", metavar="RANGE", help="Bytes of the decompressed body: 512, 1k..64k, ..2M or 100.. (k is 1024)."
        ),
    )

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
