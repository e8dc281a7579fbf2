"""What a compaction of the index is asked to do, checked before anything is started."""

from typing import Any

import msgspec

from spark_jobs.build.rebuild_request import check_profile, output_options


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
        check_profile(self.profile)

    @property
    def target(self) -> str:
        """The directory that gets the output."""
        return self.out or self.store

    def identity(self) -> dict[str, Any]:
        """The options that the output depends on."""
        return output_options(self)
