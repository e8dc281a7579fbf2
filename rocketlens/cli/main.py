"""The `rocketlens` command: a group of one module a subcommand.

A command is imported when it is asked for, and what it works with when it works: `--help` and usage errors come at
once. So this module holds the list of commands and nothing that any of them needs.
"""

import os

import click

from rocketlens.cli.errors import STORE_ERROR
from rocketlens.cli.lazy_group import Later, LazyGroup

# NumPy's OpenBLAS makes threads and buffers for them as soon as it is loaded; nothing here multiplies matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

COMMANDS = {
    "clean": Later("rocketlens.cli.clean:clean_place", "As `rebuild clean`.", now="rebuild clean URL"),
    "compact": Later("rocketlens.cli.compact:compact", "Make the index of a store smaller and faster to read."),
    "completion": Later("rocketlens.cli.completion:completion", "Print what a shell reads to complete commands."),
    "convert": Later("rocketlens.cli.convert:convert_store", "Make a plain store of one of DLedger's."),
    "diff": Later("rocketlens.cli.diff:diff", "Compare the messages of two stores."),
    "doctor": Later("rocketlens.cli.doctor:doctor", "Say what is wrong with a store, and how to fix it."),
    "export": Later("rocketlens.cli.export:export_store", "Write the messages of a store into files."),
    "fetch": Later("rocketlens.cli.fetch:fetch_store", "As `rebuild fetch`.", now="rebuild fetch URL STORE"),
    "filter": Later("rocketlens.cli.filter:filter_", "As `search`.", now="search SOURCE TOPIC --tag EXPRESSION"),
    "find": Later("rocketlens.cli.find:find", "Find the messages that a text names, whatever it is."),
    "groups": Later("rocketlens.cli.groups:groups", "List consumer groups: offsets, and how far they are behind."),
    "info": Later("rocketlens.cli.info:info", "Show which store or broker this is, and how far it reaches."),
    "life": Later("rocketlens.cli.life:life", "Show everything that happened to one message."),
    "lookup": Later("rocketlens.cli.find_earlier:lookup", "As `find -f FILE`.", now="find SOURCE -f FILE"),
    "mcp": Later("rocketlens.cli.mcp:mcp", "Answer an assistant (MCP) over stdin and stdout."),
    "pending": Later("rocketlens.cli.pending:pending", "List the messages that wait for a time, by topic."),
    "query": Later(
        "rocketlens.cli.find_earlier:query",
        "As `find --as key --topic TOPIC`.",
        now="find SOURCE TEXT --topic TOPIC --as KIND",
    ),
    "rebuild": Later("rocketlens.cli.rebuild:rebuild", "Build the index files or queues of a store anew."),
    "replay": Later("rocketlens.cli.replay:replay", "Send messages to a running cluster again."),
    "rescue": Later("rocketlens.cli.rescue:rescue_store", "Make a whole store of a damaged one."),
    "search": Later("rocketlens.cli.search:search", "Search a store for messages by their content."),
    "serve": Later("rocketlens.cli.serve:serve", "Answer RocketMQ clients and mqadmin from stores."),
    "space": Later("rocketlens.cli.space:space", "Show what takes the disk, and until when there is room."),
    "tail": Later("rocketlens.cli.tail:tail", "List the newest messages of a topic, and those that come."),
    "topics": Later("rocketlens.cli.topics:topics", "List topics, or the queues of one: counts, offsets and times."),
    "verify": Later("rocketlens.cli.doctor:verify_store", "As `doctor --deep`.", now="doctor STORE --deep"),
    "view": Later("rocketlens.cli.find_earlier:view", "As `find --full`.", now="find SOURCE TEXT --full"),
}
"""The commands, and those whose names have changed."""

SERVE = "serve"
"""Its supervisor sees that a worker met a file that was cut, and replaces it."""

CUT = "rocketlens: a file of the store became shorter, or cannot be read any more, while it was read: run it again\n"


@click.group(
    cls=LazyGroup,
    later=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(None, "-V", "--version", package_name="rocketlens", prog_name="rocketlens")
@click.pass_context
def main(context: click.Context) -> None:
    """Find messages in Apache RocketMQ store directories, without a broker; export, send, rebuild, compact, check them.

    Only `rebuild fetch`, and `rebuild` and `compact` without --out, change a store; only `replay --go` sends messages.

    Every option can be given in the environment too, as the last line of each help says: `rocketlens find --limit 5` is
    ROCKETLENS_FIND_LIMIT=5. A flag is set by 1, true or yes; an option that is repeatable takes several values with
    blanks between them, or colons where they are paths. What is typed counts more, and a STORE that is
    typed more than a server in the environment. With NO_COLOR set nothing is bold
    or coloured. The command `completion` has shells complete commands and options.

    Exit codes: 0 found (or done, or stopped as asked); 1 not found (or serve cannot listen, or diff found a
    difference); 2 wrong usage, or disk full, or the limits of memory or open files are too low; 3 the store cannot be
    read or is in use by a broker, or the server does not answer, or a rebuild would lead to fewer messages than the
    files that it replaces; 4 rebuilt, compacted or exported, but the log is damaged (or doctor found something
    wrong); 130 stopped with Ctrl-C; 141 output pipe closed, as by `| head`.
    """
    if context.invoked_subcommand != SERVE:
        from storage.kernels.file_map import end_at_cut  # only where a command runs

        end_at_cut(CUT.encode(), STORE_ERROR)


@main.command("help", hidden=True)
@click.argument("names", nargs=-1, metavar="[COMMAND]...")
@click.pass_context
def help_(context: click.Context, names: tuple[str, ...]) -> None:
    """Print the help of a command: `rocketlens help find` is `rocketlens find --help`."""
    assert context.parent is not None
    main.main([*names, "--help"], prog_name=context.parent.info_name)


@main.command("version", hidden=True)
def version() -> None:
    """Print the version, as --version does."""
    main.main(["--version"])
