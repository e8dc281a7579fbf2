"""The options of all jobs that build files of a store, checked before anything is started."""

from pathlib import Path
from typing import Final

import msgspec

from protocol.errors import ConfigError
from spark_jobs.build.exchange_names import EXCHANGES, FILES, SHUFFLE
from spark_jobs.build.index_profiles import AUTO_PROFILE, PROFILES
from spark_jobs.places.file_systems import has_scheme
from spark_jobs.places.place_names import WORK
from spark_jobs.run.engine import EngineOptions
from spark_jobs.run.work_directory import JobIdentity

_ASIDE: Final = (
    "fresh",
    "engine",
    "master",
    "settings",
    "work",
    "drop_backup",
    "keep_checkpoint",
    "allow_fewer",
    "storage",
    "out_storage",
    "exchange",
)
"""Options that say how a job runs and publishes; the files that it builds are the same whatever they are."""


class BuildRequest(EngineOptions, frozen=True, kw_only=True):
    """Options of a job that builds files of a store. Without `out` the store's own are replaced.

    `store` is a directory or, with `out`, a URL; `storage` are the options of its file system as JSON.
    What is sent to a URL is meant for the store too, into which it is fetched later; `out_storage` are the options of
    that URL's file system.

    `profile` is one of PROFILES; `slots` and `entries` are maxHashSlotNum and maxIndexNum, None for what the store
    shows; `zone` names the time zone of file names. With `allow_fewer` a result that leads to fewer sound records than
    the store's own files is published all the same. `exchange` is one of EXCHANGES: how blocks come from the tasks that
    find them to those that build. Raises ConfigError for a profile or an exchange that there is not.
    """

    store: str
    out: str | None = None
    profile: str = AUTO_PROFILE
    slots: int | None = None
    entries: int | None = None
    zone: str | None = None
    topics: tuple[str, ...] = ()
    commit_log_directories: tuple[str, ...] = ()
    storage: str = ""
    out_storage: str = ""
    keep_checkpoint: bool = False
    drop_backup: bool = False
    allow_fewer: bool = False
    fresh: bool = False
    work: str | None = None
    exchange: str = FILES

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise ConfigError(f"profile {self.profile!r}, expected one of {', '.join(PROFILES)}")
        if self.exchange not in EXCHANGES:
            raise ConfigError(f"exchange {self.exchange!r}, expected one of {', '.join(EXCHANGES)}")

    @property
    def shuffles(self) -> bool:
        """Whether blocks go through Spark's own shuffle."""
        return self.exchange == SHUFFLE

    @property
    def sent_to(self) -> str | None:
        """The URL to which the output goes, None if it goes into a directory."""
        return self.out if self.out is not None and has_scheme(self.out) else None

    @property
    def is_for_store(self) -> bool:
        """Whether the output is to replace what the store has, at once or later."""
        return self.out is None or self.sent_to is not None

    @property
    def is_whole_store(self) -> bool:
        """Whether the output is a store, which gets its place in one step, and not parts of one."""
        return False

    @property
    def work_base(self) -> Path:
        """Where the work directory lies."""
        return Path(self.work or Path(self.target) / WORK)

    @property
    def target(self) -> str:
        """The directory that gets the output."""
        return self.out or self.store

    def identity(self) -> JobIdentity:
        """The options that determine the output: a job that was killed goes on only where they are the same."""
        fields: JobIdentity = msgspec.to_builtins(self)
        for name in _ASIDE:
            fields.pop(name, None)
        return fields
