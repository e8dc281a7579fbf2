"""The `rocketlens` command: a group of one module a subcommand.

Modules of this package import numba, NumPy and rich only where they use them: `--help` and usage errors come at once.
The bulk jobs' commands are defined beside the jobs, for spark-submit, and imported when they are asked for.
"""

import click

from broker.cli.compact import compact
from broker.cli.diff import diff
from broker.cli.doctor import doctor
from broker.cli.filter import filter_
from broker.cli.lazy_group import LazyGroup
from broker.cli.life import life
from broker.cli.lookup import lookup
from broker.cli.query import query
from broker.cli.rebuild import rebuild
from broker.cli.search import search
from broker.cli.serve import serve
from broker.cli.view import view


@click.group(
    cls=LazyGroup,
    later={"export": "spark_jobs.export_store:export_store", "verify": "spark_jobs.verify_store:verify_store"},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="rocketlens", prog_name="rocketlens")
def main() -> None:
    """Find messages in Apache RocketMQ store directories, without a broker; export, rebuild, compact, verify them.

    Only `rebuild` and `compact` without --out change a store.

    Exit codes: 0 found (or done, or stopped as asked), 1 not found (or serve cannot listen, or diff found a
    difference), 2 wrong usage, or no room for the output, or the process has too little memory or too few files, 3 the
    store cannot be read or is in use by a broker, or a rebuild would lead to fewer messages than what it replaces, or
    the server asked does not answer, 4 rebuilt, compacted or exported, but the log is damaged (or verify or doctor
    found something wrong), 130 stopped with Ctrl-C, 141 nobody read on, as behind `| head`.
    """


main.add_command(serve)
main.add_command(view)
main.add_command(query)
main.add_command(search)
main.add_command(lookup)
main.add_command(life)
main.add_command(filter_)
main.add_command(rebuild)
main.add_command(compact)
main.add_command(doctor)
main.add_command(diff)
