"""The conditions that messages are searched by, as `search` and `replay` take them."""

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import click
import msgspec

from rocketlens.arguments import SearchOptions
from rocketlens.cli.options import where_option
from rocketlens.cli.time_options import stored_options

Command = TypeVar("Command", bound=Callable[..., Any])

PLACES = ("body", "properties", "any")


class SearchConditions(msgspec.Struct, frozen=True):
    """What the options say of the messages that are looked for."""

    begin: int | None = None
    end: int | None = None
    contains: str | None = None
    regex: str | None = None
    place: str = PLACES[0]
    json_path: str | None = None
    where: str | None = None
    tag: str | None = None
    key: str | None = None
    key_prefix: str | None = None
    born_host: str | None = None
    size: str | None = None
    charset: str | None = None

    def options(self, maximum: int | None, cursor: str | None = None) -> SearchOptions:
        """Return the conditions as keyword arguments of a search for at most `maximum` messages."""
        contains = None if self.contains is None else os.fsencode(self.contains)  # bytes that may be no UTF-8
        more: SearchOptions = {"contains": contains, "limit": maximum, "cursor": cursor}
        return cast(SearchOptions, msgspec.structs.asdict(self) | more)


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
            default=PLACES[0],
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
