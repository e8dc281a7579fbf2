"""`rocketlens rebuild clean`: what killed or defeated runs left where the output of jobs goes.

Late imports: help and usage errors come at once without them.
"""

import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from protocol.errors import ConfigError
from protocol.printable import one_line
from rocketlens.cli.command_options import checked, storage_option_where
from rocketlens.cli.command_run import ending_with_a_line
from rocketlens.cli.grouped_command import GroupedCommand
from storage.amounts import bytes_text, counted, duration_text

if TYPE_CHECKING:
    from spark_jobs.places.clean import Leftovers

_AGE: Final = re.compile(r"(\d{1,6})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _age(text: str) -> int:
    found = _AGE.fullmatch(text)
    if found is None:
        raise ConfigError(f"{text!r}, expected a number and s, m, h or d, like 24h")
    return int(found[1]) * _SECONDS[found[2]]


@click.command("clean", cls=GroupedCommand)
@click.argument("place", metavar="URL")
@click.option("--delete", is_flag=True, help="Delete what is listed.")
@click.option("--older-than", default="24h", show_default=True, callback=checked(_age), metavar="AGE",
              help="Pass over what is younger: a run may be under way. Such as 90m, 24h or 7d.")  # fmt: skip
@storage_option_where("URL is one")
@click.option("--json", "as_json", is_flag=True, help="Report as one JSON object that lists everything.")
def clean_place(place: str, storage: str, older_than: int, *, delete: bool, as_json: bool) -> None:
    """List what jobs left in URL, a URL or a directory given to --out, that no manifest names.

    These are attempts of runs that were killed, or were not the first to finish, and unfinished uploads. A run that was
    killed can be continued until they are deleted. Only what jobs write is ever listed; a store is refused.
    """
    from spark_jobs.places.clean import clean

    with ending_with_a_line(goes_on=False):
        found = clean(place, storage, older_than, time.time(), delete=delete)
    if as_json:
        _print_json(found)
        return
    for each in found.orphans:
        moment = datetime.fromtimestamp(each.written, UTC).isoformat(timespec="seconds")
        what = bytes_text(each.bytes) if not each.upload else "unfinished upload"
        click.echo(f"{one_line(each.name)}  {what}  {moment}")
    for line in _summary(found):
        click.echo(one_line(line))


def _summary(found: "Leftovers") -> list[str]:
    committed = found.committed
    orphans = f"{counted(len(found.orphans), 'orphan')}, {bytes_text(found.bytes)}"
    hint = "" if found.deleted or not found.orphans else "; --delete deletes them"
    lines = [f"{orphans}, {'deleted' if found.deleted else f'older than {duration_text(found.older_than)}'}{hint}"]
    if found.younger:
        lines.append(f"note: {counted(found.younger, 'object')} that no manifest names yet: younger, left alone")
    if committed is None:
        lines.append("note: nothing is finished there; what is unfinished can be continued until it is deleted")
    return lines


def _print_json(found: "Leftovers") -> None:
    import msgspec

    from rocketlens.cli.show_report import as_texts, print_json

    report = {**msgspec.to_builtins(found), "bytes": found.bytes}
    report["committed"] = found.committed and {
        name: getattr(found.committed, name) for name in ("command", "run", "host", "written")
    }
    print_json(msgspec.json.encode(as_texts(report)))
