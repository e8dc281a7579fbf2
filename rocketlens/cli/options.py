"""Options that several commands share, how their texts are read, and how a command gets many of them as one."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from broker.endpoint import Endpoint
from protocol.body_content import charset_of
from protocol.errors import ConfigError
from rocketlens.opening import StoreArguments

Command = TypeVar("Command", bound=Callable[..., Any])


class RenamedOption(click.Option):
    """An option that is also taken by its earlier spellings, which help does not show and which go soon."""

    def __init__(self, declarations: Sequence[str], *, earlier: Sequence[str], **more: Any) -> None:
        """`earlier` are spellings that give the same value."""
        super().__init__(declarations, **more)
        self.earlier = tuple(earlier)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Have the parser take all spellings."""
        shown = self.opts
        self.opts = [*shown, *self.earlier]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


def limit_option(
    text: str = "List at most N messages.", *, earlier: Sequence[str] = (), default: int | None = None
) -> Callable[[Command], Command]:
    """`--limit`: how many messages a command lists at most; it gets the number as `maximum`."""
    return click.option(
        "--limit",
        "maximum",
        cls=RenamedOption,
        earlier=earlier,
        type=click.IntRange(1),
        metavar="N",
        default=default,
        show_default=default is not None,
        help=text,
    )


cursor_option = click.option(
    "--cursor",
    type=click.IntRange(0, 2**63 - 1),
    metavar="OFFSET",
    help="Only matches below this; with one TEXT, --topic and --as.",
)


def where_option(text: str, *, earlier: Sequence[str] = (), name: str = "sql") -> Callable[[Command], Command]:
    """`--where`: an expression in SQL92 over the properties of messages."""
    return click.option(
        "--where",
        name,
        cls=RenamedOption,
        earlier=earlier,
        metavar="SQL92",
        help=f"{text}: \"a > 5 AND region = 'hz'\".",
    )


def gathered(**structs: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Pass the values of some options to a command as structs, each under the name given here.

    The fields of a struct are named as click names the options' values. Put this decorator below the options; these
    stay as they are, so help and errors do not show the groups.
    """

    def gather(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            groups = {
                name: struct(**{field: arguments.pop(field) for field in struct.__struct_fields__})
                for name, struct in structs.items()
            }
            command(**arguments, **groups)

        return run

    return gather


def is_typed(*names: str) -> bool:
    """Whether one of these parameters of the command that runs was typed, not given in the environment or by default.

    `names` are those that click gives the values.
    """
    context = click.get_current_context()
    return any(context.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in names)


def endpoint(text: str) -> Endpoint:
    """Read `HOST:PORT` or `[IPv6]:PORT`; a wrong one is a usage error."""
    try:
        return Endpoint.parse(text)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from error


def own_endpoint(text: str) -> Endpoint:
    """Read where to listen: `HOST:PORT`, or a port alone, which is one of the loopback address."""
    port = text.strip().removeprefix(":")
    return endpoint(f"127.0.0.1:{port}" if port.isdigit() else text)


def charset(text: str) -> str:
    """Read the name of a charset; another one is a usage error."""
    try:
        return charset_of(text)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from error


def mask_rules(rules: tuple[str, ...]) -> tuple[str, ...]:
    """Check rules of a mask; a wrong one is a usage error."""
    if not rules:
        return rules
    from storage.patterns.mask import mask_of

    try:
        mask_of(rules)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from error
    return rules


charset_option = click.option(
    "--charset",
    type=charset,
    metavar="NAME",
    help="Charset of bodies that are text, such as gbk, gb18030, big5 or shift_jis. [default: utf-8]",
)


def directories(text: str) -> tuple[Path, ...]:
    """Read directories separated by commas, as a broker's storePathCommitLog has them."""
    pieces = [piece.strip() for piece in text.split(",")]
    if not all(pieces):
        raise click.BadParameter(f"{text!r} has an empty directory name")
    return tuple(map(Path, pieces))


DIRECTORY = click.Path(readable=False, path_type=Path)

_STORE_OPTIONS = (
    click.option(
        "--commit-log",
        "commit_log_directories",
        type=directories,
        metavar="DIR,...",
        help="Directories of the log, in the broker's order, if not STORE/commitlog.",
    ),
    click.option(
        "--index-slots",
        type=click.IntRange(1, 2**31 - 1),
        metavar="N",
        help="Slots of an index file (maxHashSlotNum), if the files do not tell.",
    ),
    click.option(
        "--index-entries",
        type=click.IntRange(1, 2**31 - 1),
        metavar="N",
        help="Entries of an index file (maxIndexNum), if the files do not tell.",
    ),
    click.option(
        "--state-dir",
        "state_directory",
        type=DIRECTORY,
        metavar="DIR",
        help="Directory for results of checks, and of serve for offsets of groups and keys that no index file holds. "
        "[default: in the user's state directory]",
    ),
    click.option(
        "--tier",
        type=DIRECTORY,
        metavar="DIR",
        help="The tiered files (tieredStoreFilePath): queues begin there and go on in STORE.",
    ),
    click.option(
        "--mask",
        "masked",
        multiple=True,
        callback=lambda _context, _parameter, rules: mask_rules(rules),
        metavar="RULE",
        help="Show asterisks for a field (body, keys, tags, unique_key, hosts, properties.NAME ...), a JSONPath "
        "($.a.b) or what /REGEX/ matches; repeatable. What is masked cannot be searched.",
    ),
    click.option(
        "--mask-file",
        "mask_files",
        multiple=True,
        metavar="FILE",
        help="The same, a rule on each line of a file.",
    ),
)


def verbose_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add `-v`, with which an empty answer is followed by what was searched in vain."""
    return click.option(
        "-v", "--verbose", is_flag=True, help="Where nothing is found, also print what was searched in vain."
    )(command)


def store_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add what a command that opens a store takes; it gets them as `store_arguments`."""
    command = gathered(store_arguments=StoreArguments)(command)
    for option in reversed(_STORE_OPTIONS):
        command = option(command)
    return command
