"""The `rocketlens` command: a group of one module a subcommand.

Modules of this package import numba, NumPy and rich only where they use them: `--help` and usage errors come at once.
"""

import click

from broker.cli.filter import filter_
from broker.cli.query import query
from broker.cli.serve import serve
from broker.cli.view import view


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rocketlens", prog_name="rocketlens")
def main() -> None:
    """Find messages in Apache RocketMQ store directories, without a broker and without touching the store.

    Exit codes: 0 found (or stopped as asked), 1 not found (or serve cannot listen), 2 wrong usage, 3 the store cannot
    be read or the server asked does not answer.
    """


main.add_command(serve)
main.add_command(view)
main.add_command(query)
main.add_command(filter_)
