"""The options of a rebuild, checked before anything is started."""

from protocol.errors import ConfigError
from spark_jobs.build.build_request import BuildRequest
from storage.layout.delay_levels import DEFAULT_DELAY_LEVELS


class RebuildRequest(BuildRequest, frozen=True, kw_only=True):
    """Options of a rebuild of the index, the queues, or both; `topics` restricts the queues to some.

    `from_offset` is the physical offset from which on entries are built anew; `queue_file_size` and its like are bytes,
    None for what the store shows. Beside queues of a store that has them in RocksDB a directory for `out` gets topics,
    groups and offsets as files, unless the rebuild is `without_config`. `out` may be a URL, and `out_storage` are the
    options of its file system as JSON.
    Raises ConfigError where neither the index nor the queues are asked for.
    """

    index: bool = False
    queues: bool = False
    from_offset: int | None = None
    delay_levels: str = DEFAULT_DELAY_LEVELS
    lmq: bool = False
    ext: bool = False
    drop_unknown_topics: bool = False
    without_config: bool = False
    queue_file_size: int | None = None
    batch_queue_file_size: int | None = None
    ext_file_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.index or self.queues):
            raise ConfigError("nothing to rebuild: neither the index nor the queues are requested")
