"""What a rebuild is asked to do, checked before anything is started."""

from typing import Any, Final

import msgspec

from protocol.errors import ConfigError
from storage.life.delay_levels import DEFAULT_DELAY_LEVELS

AUTO_PROFILE: Final = "auto"
TAGGED_PROFILE: Final = "5.5"
CLASSIC_PROFILE: Final = "classic"
PROFILES: Final = (AUTO_PROFILE, TAGGED_PROFILE, CLASSIC_PROFILE)
"""Which entries a broker puts for a message: with the tag's, without it, or as the index files show that there are."""


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
        check_profile(self.profile)
        if not (self.index or self.queues):
            raise ConfigError("nothing to rebuild: neither the index nor the queues are requested")

    @property
    def target(self) -> str:
        """The directory that gets the output."""
        return self.out or self.store

    def identity(self) -> dict[str, Any]:
        """The options that the output depends on."""
        return output_options(self)


def check_profile(profile: str) -> None:
    """Raise ConfigError for an index profile that there is not."""
    if profile not in PROFILES:
        raise ConfigError(f"profile {profile!r}, expected one of {', '.join(PROFILES)}")


def output_options(request: msgspec.Struct) -> dict[str, Any]:
    """Return the options of a request that its output depends on: a job goes on only where they are the same."""
    fields: dict[str, Any] = msgspec.to_builtins(request)
    for name in ("fresh", "master", "settings", "work", "drop_backup", "keep_checkpoint", "allow_fewer"):
        del fields[name]
    return fields
