"""`rocketlens rebuild fetch`: what a rebuild or compaction left behind a URL, into the store.

Late imports: help and usage errors come at once without NumPy and the kernels.
"""

from typing import Any

import click

from rocketlens.cli.command_options import (
    allow_fewer_option,
    commit_log_option,
    drop_backup_option,
    fresh_option,
    storage_option_where,
    store_argument,
    work_option,
)
from rocketlens.cli.command_run import check_places, ending_with_a_line, fetch, progress_of
from rocketlens.cli.grouped_command import GroupedCommand


@click.command("fetch", cls=GroupedCommand)
@click.argument("url", metavar="URL")
@store_argument
@storage_option_where("URL needs them")
@drop_backup_option
@allow_fewer_option
@work_option(".rocketlens-work in STORE")
@fresh_option
@commit_log_option
@click.option("--json", "as_json", is_flag=True, help="Report as one JSON object that lists everything.")
def fetch_store(*, as_json: bool, **options: Any) -> None:
    """Bring what `rebuild` or `compact index` with --out URL left at URL into the store in STORE.

    It takes the place of the store's own files. Sizes and checksums are compared, and the log, or the index that was
    compacted, must be the one that was read. The store is locked as by a rebuild
    in place, and the old files are kept. Run the same command again to continue one that was stopped.

    Exit code 4: done, but the log was damaged when it was read.
    """
    from rocketlens.cli.show_report import print_report

    with ending_with_a_line(goes_on=True):
        check_places({name: value for name, value in options.items() if name != "storage"})
        report = fetch(options, progress_of(as_json=as_json))
    print_report(report, as_json=as_json)
    raise SystemExit(report.exit_code)
