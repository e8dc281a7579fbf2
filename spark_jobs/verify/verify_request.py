"""What a verification is asked to do."""

import msgspec

from storage.life.delay_levels import DEFAULT_DELAY_LEVELS


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
