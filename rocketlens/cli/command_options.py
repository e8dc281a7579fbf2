"""Options of the bulk jobs' commands; their parameters bear the names of the requests' fields.

Nothing here imports pyspark: a usage error comes at once.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

import click

from protocol.errors import ConfigError, FilterSyntaxError
from protocol.redaction import keep_secrets
from spark_jobs.build.exchange_names import EXCHANGES, FILES, SHUFFLE
from spark_jobs.build.index_profiles import AUTO_PROFILE, PROFILES
from spark_jobs.run.engine_names import AUTO, ENGINES
from storage.layout.delay_levels import DEFAULT_DELAY_LEVELS, parse_delay_levels
from storage.times import parse_zone

Command = TypeVar("Command", bound=Callable[..., Any])
Value = TypeVar("Value")
Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

COUNT: Final = click.IntRange(1, 2**31 - 1)
DIRECTORY: Final = click.Path(readable=False)


def checked(read: Callable[[Any], Value]) -> Callable[[click.Context, click.Parameter, Any], Value | None]:
    """A callback that gives what `read` makes of a value that was given; what it refuses is a usage error."""

    def callback(_context: click.Context, _parameter: click.Parameter, value: Any) -> Value | None:
        try:
            return None if value is None else read(value)
        except (ConfigError, FilterSyntaxError) as error:
            raise click.BadParameter(str(error)) from error

    return callback


def _zone(text: str) -> str:
    parse_zone(text)
    return text


def _delay_levels(text: str) -> str:
    parse_delay_levels(text)
    return text


def _settings(_context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Read KEY=VALUE of Spark; the last of a key wins."""
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (equals and key.startswith("spark.")):
            raise click.BadParameter(f"{text!r}, expected a Spark property like spark.driver.memory=4g")
        settings[key] = value
    keep_secrets(settings)
    return settings


def _directories(_context: click.Context, _parameter: click.Parameter, text: str | None) -> tuple[str, ...]:
    """Read directories separated by commas, as a broker's storePathCommitLog has them."""
    pieces = [piece.strip() for piece in text.split(",")] if text is not None else []
    if not all(pieces):
        raise click.BadParameter(f"{text!r} has an empty directory name")
    return tuple(pieces)


def _checked_storage(text: str) -> str:
    """Options of a file system as JSON; raises ConfigError."""
    from spark_jobs.places.file_systems import check_storage  # few commands have a URL

    return check_storage(text)


def _together(*options: Decorator) -> Callable[[Command], Command]:
    """One decorator of several; help lists the options in the order given."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)  # type: ignore[assignment]
        return command

    return decorate


store_argument = click.argument("store", type=DIRECTORY)


def storage_option_where(url: str, flag: str = "--storage-options", name: str = "storage") -> Decorator:
    """Options of the file system of a URL; `url` says which one is meant."""
    return click.option(
        flag,
        name,
        default="",
        callback=checked(_checked_storage),
        metavar="JSON",
        help=f'For the file system, if {url}: {{"anon": true}}.',
    )


storage_option = storage_option_where("STORE is a URL")


built_out_options = _together(
    click.option(
        "--out",
        type=DIRECTORY,
        metavar="DIR",
        help="Write here and do not change the store; a broker may be running on it. A URL (s3://, gs://, hdfs://, "
        f"file://) needs --work or --exchange {SHUFFLE}; `rocketlens rebuild fetch` brings the result into the store. "
        "[default: replace the store's own files; no broker may be using it]",
    ),
    storage_option_where("--out is a URL", "--out-storage-options", "out_storage"),
)

index_options = _together(
    click.option(
        "--profile",
        type=click.Choice(PROFILES),
        default=AUTO_PROFILE,
        show_default=True,
        help="Which entries a broker writes for a message: 5.5 writes unique key, keys and tag; classic (5.3 "
        "and earlier) no tag. auto reads this, and the counts below, from the existing index files, or "
        "else uses 5.5's defaults.",
    ),
    click.option("--slots", type=COUNT, metavar="N", help="Slots of an index file (maxHashSlotNum)."),
    click.option("--entries", type=COUNT, metavar="N", help="Entries of an index file (maxIndexNum)."),
    click.option(
        "--tz",
        "zone",
        callback=checked(_zone),
        metavar="ZONE",
        help="Time zone of file names: Asia/Shanghai, +08:00. [default: that of the existing names, else "
        "this machine's]",
    ),
)

from_offset_option = click.option(
    "--from-offset",
    type=click.IntRange(0, 2**63 - 1),
    metavar="N",
    help="Build entries anew from this physical offset on; 0: all. [default: behind the intact files at the front]",
)

delay_levels_option = click.option(
    "--delay-levels",
    default=DEFAULT_DELAY_LEVELS,
    show_default=True,
    callback=checked(_delay_levels),
    metavar="TEXT",
    help="The broker's messageDelayLevel, which determines when messages of the schedule topic are due.",
)

without_config_option = click.option(
    "--without-config",
    is_flag=True,
    help="Make no files of the topics, groups and offsets that the store keeps in RocksDB. [default: config/ in --out "
    "gets them if the queues are in RocksDB]",
)

queue_options = _together(
    click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Queues of this topic only; repeatable."),
    delay_levels_option,
    click.option("--lmq", is_flag=True, help="Make light queues (LMQ), if the store no longer shows that it had any."),
    click.option("--ext", is_flag=True, help="Make consumequeue_ext, if the store no longer shows that it had one."),
    click.option("--drop-unknown-topics", is_flag=True, help="Leave out topics that config/topics.json does not name."),
    without_config_option,
    click.option(
        "--queue-file-size",
        type=COUNT,
        metavar="BYTES",
        help="Size of a queue's file. [default: as in the store, else 6000000]",
    ),
    click.option(
        "--batch-queue-file-size",
        type=COUNT,
        metavar="BYTES",
        help="Size of a batch queue's file. [default: as in the store, else 13800000]",
    ),
    click.option(
        "--ext-file-size",
        type=COUNT,
        metavar="BYTES",
        help="Size of a file of consumequeue_ext. [default: as in the store, else 50331648]",
    ),
)

compact_options = _together(
    click.option("--from-log", is_flag=True, help="Build from the log instead of the index files."),
    click.option("--drop-tags", is_flag=True, help="Leave out the entries of tags."),
    click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Leave out this topic; repeatable."),
)

drop_backup_option = click.option(
    "--drop-backup", is_flag=True, help="Delete the replaced files, which are otherwise kept as STORE/NAME.bak-TIME."
)

allow_fewer_option = click.option(
    "--allow-fewer",
    is_flag=True,
    help="Also replace files if, in a damaged segment of the log, the new ones lead to fewer sound records "
    "than the old ones; without this option that is refused, with exit code 3.",
)

keep_checkpoint_option = click.option(
    "--keep-checkpoint",
    is_flag=True,
    help="Do not change the time of the newest index entry in the store's checkpoint; after a crash a broker "
    "deletes index files that are newer.",
)


def work_option(default: str) -> Callable[[Command], Command]:
    """Where a job keeps what is half done; `default` says where else."""
    return click.option(
        "--work",
        type=DIRECTORY,
        metavar="DIR",
        help="Directory for unfinished work; it needs about as much space as the result, and the same path "
        f"on all machines. [default: {default}]",
    )


exchange_option = click.option(
    "--exchange",
    type=click.Choice(EXCHANGES),
    default=FILES,
    show_default=True,
    help="How what tasks find comes to those that build: by files in --work, which all machines must see, or "
    "by Spark's own shuffle, which the local engine has not. With shuffle and a URL for --out no disk is shared, and "
    "--work is not needed.",
)

dry_run_option = click.option(
    "--dry-run",
    is_flag=True,
    help="Only say what would be read and written, the disk and the time that it takes, and which sizes were chosen "
    "and why. Nothing is changed.",
)

fresh_option = click.option("--fresh", is_flag=True, help="Start over instead of continuing an earlier run.")

limit_option = click.option(
    "--limit",
    type=COUNT,
    default=10_000,
    show_default=True,
    metavar="N",
    help="List at most N findings of one kind in one file; the rest are only counted.",
)

doctor_options = _together(
    click.option("--index-slots", type=COUNT, metavar="N", help="Slots of an index file."),
    click.option("--index-entries", type=COUNT, metavar="N", help="Entries of an index file."),
    delay_levels_option,
    limit_option,
    work_option("a temporary one"),
    storage_option,
)

commit_log_option = click.option(
    "--commit-log",
    "commit_log_directories",
    callback=_directories,
    metavar="DIR,...",
    help="The commit log's directories, in the broker's order, if it is not in STORE/commitlog.",
)


def engine_options_where(auto: str) -> Callable[[Command], Command]:
    """Where a job runs; `auto` says what happens where no option says anything."""
    return _together(
        click.option(
            "--engine",
            type=click.Choice(ENGINES),
            default=AUTO,
            show_default=True,
            metavar="NAME",
            help="What runs the tasks: local, processes of this machine, or spark. auto is spark with --master or "
            f"--conf, and under spark-submit; else {auto}.",
        ),
        click.option(
            "--master",
            default="",
            metavar="URL",
            help="Spark master: spark://host:7077. [default: local[*]]",
        ),
        click.option(
            "--conf",
            "settings",
            multiple=True,
            callback=_settings,
            metavar="KEY=VALUE",
            help="A Spark property: spark.executor.memory=8g; repeatable.",
        ),
    )


optional_engine_options = engine_options_where("threads of this process, and local for a URL")

job_options = _together(
    commit_log_option,
    engine_options_where("local"),
    click.option("--json", "as_json", is_flag=True, help="Report as one JSON object that lists everything."),
)

build_options = _together(
    drop_backup_option,
    allow_fewer_option,
    work_option(".rocketlens-work in --out, or in STORE"),
    storage_option,
    exchange_option,
    fresh_option,
    dry_run_option,
    job_options,
)
"""What the jobs that build files of a store, in place or for --out, let users choose of how that is done."""


def new_store_option(metavar: str) -> Callable[[Command], Command]:
    """Where a job puts a whole new store."""
    return click.option(
        "--out",
        type=DIRECTORY,
        metavar=metavar,
        required=True,
        help="Where the new store goes: a directory that is not there yet, or empty. It gets there in one step, once "
        "it is complete.",
    )


new_store_options = _together(
    index_options,
    delay_levels_option,
    without_config_option,
    work_option("beside --out, with .rocketlens-work at the end of its name"),
)
"""What the jobs that write a whole new store let users choose of it."""
