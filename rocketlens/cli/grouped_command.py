"""A command whose help begins with the options that it is used with, and then lists others by what they are for."""

import re
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

GROUPS: Final = {
    "Growing table": (
        *("since_last", "partition_by", "drop_before", "compact_files", "every", "metrics", "catalog", "table"),
    ),
    "Processes and limits": ("loop", "fast_lane", "workers", "worker_timeout_seconds", "frame_limit", "limits"),
    "Registration": ("name_servers", "register_as", "register_id"),
    "Page and log": (
        "http",
        "http_hosts",
        "http_proxies",
        "http_auth",
        "http_tls",
        "slow_query_milliseconds",
        "log_format",
    ),
    "Accounts": ("acl", "acl_admin_has_all", "audit_log"),
    "Connection": (
        *("server", "from_id", "tls", "tls_mode", "tls_ca", "tls_cert", "tls_key", "tls_key_password_file"),
        *("tls_client_ca", "tls_client_auth", "tls_no_verify", "credentials", "proxies"),
    ),
    "Layout of the store": (
        *("stores", "commit_log_directories", "index_slots", "index_entries", "state_directory", "tier", "storage"),
        "out_storage",
    ),
    "Masks": ("masked", "mask_files"),
    "Engine": ("engine", "master", "settings", "exchange", "work", "fresh"),
}
"""The parameters of options that many commands have and few calls need, by the titles under which help lists them."""


WIDTHS: Final = range(30, 11, -1)
"""Widths of the column of options, of which help takes the one with the fewest lines."""

NO_LIMIT: Final = re.compile(r"; x>=[01](?=\])|\[(x>=[01]|[01]<=x<=[0-9]{10,})\]|; [01]<=x<=[0-9]{10,}(?=\])")
"""What help says of the bounds of a number that bound nothing."""

NAMING: Final = frozenset({"words", "topic", "topics", "trace_topics", "group", "dead_letters_of"})
"""Parameters whose values are names that lie in a source, or the source itself."""


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from rocketlens.cli.complete_names import complete  # only a shell asks

    return complete(context, parameter, incomplete)


class GroupedCommand(click.Command):
    """A command with titles in the list of its options, of which shells complete topics and groups too."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for each in self.params:
            if each.name in NAMING:
                each._custom_shell_complete = _complete  # click's own argument of this name, for all commands at once

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options of the command itself, then those of each group."""
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        grouped = {name for names in GROUPS.values() for name in names}
        self._list(ctx, formatter, "Options", [each for each in options if each.name not in grouped])
        for title, names in GROUPS.items():
            self._list(ctx, formatter, title, [each for each in options if each.name in names])

    @staticmethod
    def _list(ctx: click.Context, formatter: click.HelpFormatter, title: str, options: list[click.Option]) -> None:
        rows: list[tuple[str, str]] = []
        for each in options:
            shown, each.show_envvar = each.show_envvar, False  # the last line of the help has an example
            record = each.get_help_record(ctx)
            each.show_envvar = shown
            if record is not None:
                rows.append((record[0], NO_LIMIT.sub("", record[1]).rstrip()))
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows, col_max=min(WIDTHS, key=lambda width: _lines(rows, formatter, width)))


def _lines(rows: list[tuple[str, str]], formatter: click.HelpFormatter, width: int) -> int:
    """How many lines options take whose first column has at most a width."""
    trial = click.HelpFormatter(width=formatter.width)
    trial.indent()
    trial.write_dl(rows, col_max=width)
    return trial.getvalue().count("\n")
