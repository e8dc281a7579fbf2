"""What a bulk job is asked to do, and what it answers."""

from typing import Any, Final

import msgspec

from protocol.errors import ConfigError
from spark_jobs.scan.damage import Damage
from storage.life.delay_levels import DEFAULT_DELAY_LEVELS

PROFILES: Final = ("auto", "5.5", "classic")


class RebuildRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a rebuild. Without `out` the store's own directories are replaced.

    `slots` and `entries` are maxHashSlotNum and maxIndexNum, None for what the store shows; `from_offset` is the
    physical offset from which on entries are built anew; `zone` names the time zone of file names; `topics` restricts
    the queues to some; `queue_file_size` and its like are bytes, None for what the store shows. With `allow_fewer` what
    leads to fewer sound records than the store's own is put in its place all the same.
    """

    store: str
    out: str | None = None
    index: bool = False
    queues: bool = False
    profile: str = "auto"
    slots: int | None = None
    entries: int | None = None
    from_offset: int | None = None
    zone: str | None = None
    topics: tuple[str, ...] = ()
    delay_levels: str = DEFAULT_DELAY_LEVELS
    lmq: bool = False
    ext: bool = False
    drop_unknown_topics: bool = False
    queue_file_size: int | None = None
    batch_queue_file_size: int | None = None
    ext_file_size: int | None = None
    commit_log_directories: tuple[str, ...] = ()
    keep_checkpoint: bool = False
    drop_backup: bool = False
    allow_fewer: bool = False
    fresh: bool = False
    work: str | None = None
    master: str = ""
    settings: dict[str, str] = {}

    def __post_init__(self) -> None:
        _check_profile(self.profile)
        if not (self.index or self.queues):
            raise ConfigError("nothing to rebuild: neither the index nor the queues are asked for")

    @property
    def target(self) -> str:
        """The directory that gets the output."""
        return self.out or self.store

    def identity(self) -> dict[str, Any]:
        """The options that the output depends on."""
        return _identity(self)


class CompactRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a compaction of the index. Without `out` the store's own index is replaced.

    With `from_log` it is made from the log, by the rules of `profile`, else from the index files that there are.
    Entries of `topics` are left out, and with `drop_tags` those of tags. `slots` and `entries` are maxHashSlotNum and
    maxIndexNum, None for what the store shows; `zone` names the time zone of file names; `allow_fewer` as in a rebuild.
    """

    store: str
    out: str | None = None
    from_log: bool = False
    drop_tags: bool = False
    topics: tuple[str, ...] = ()
    profile: str = "auto"
    slots: int | None = None
    entries: int | None = None
    zone: str | None = None
    commit_log_directories: tuple[str, ...] = ()
    keep_checkpoint: bool = False
    drop_backup: bool = False
    allow_fewer: bool = False
    fresh: bool = False
    work: str | None = None
    master: str = ""
    settings: dict[str, str] = {}

    def __post_init__(self) -> None:
        _check_profile(self.profile)

    @property
    def target(self) -> str:
        """The directory that gets the output."""
        return self.out or self.store

    def identity(self) -> dict[str, Any]:
        """The options that the output depends on."""
        return _identity(self)


class VerifyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a verification. `limit`: findings of one kind that are listed of one file; more are counted.

    `work` is where a directory for what is half done is made, None for the machine's temporary directory.
    """

    store: str
    delay_levels: str = DEFAULT_DELAY_LEVELS
    commit_log_directories: tuple[str, ...] = ()
    limit: int = 10_000
    fresh: bool = False
    work: str | None = None
    master: str = ""
    settings: dict[str, str] = {}


class Report(msgspec.Struct, kw_only=True, rename="camel"):
    """What a job did. Bytes and messages are those of the log; `steady_seconds` from first read to last publishing."""

    command: str
    store: str
    out: str
    bytes: int = 0
    messages: int = 0
    entries: int = 0
    units: int = 0
    seconds: float = 0.0
    steady_seconds: float = 0.0
    resumed: bool = False
    details: dict[str, Any] = {}
    damages: list[Damage] = []
    more_damages: int = 0
    notes: list[str] = []

    @property
    def exit_code(self) -> int:
        """4 with damage, or where a verification found anything wrong; 1 where nothing was to be exported; else 0."""
        if self.damages or self.more_damages or not self.details.get("clean", True):
            return 4
        return 0 if self.details.get("found", True) else 1


def _check_profile(profile: str) -> None:
    if profile not in PROFILES:
        raise ConfigError(f"profile {profile!r}, expected one of {', '.join(PROFILES)}")


def _identity(request: msgspec.Struct) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(request)
    for name in ("fresh", "master", "settings", "work", "drop_backup", "keep_checkpoint", "allow_fewer"):
        del fields[name]
    return fields
