"""The options of a conversion, checked before anything is started."""

from pathlib import Path

from protocol.errors import ConfigError
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.places.file_systems import has_scheme


class ConvertRequest(RebuildRequest, frozen=True, kw_only=True):
    """Options of a conversion: those of a rebuild of the index and all queues, which follows it.

    `out` is a directory that is not there yet, or empty. Raises ConfigError without one, and for a URL.
    """

    index: bool = True
    queues: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.out is None:
            raise ConfigError("--out is missing: a conversion never changes the store")
        if has_scheme(self.out):
            raise ConfigError(f"--out {self.out} is a URL: a store is converted into a directory, which a broker opens")

    @property
    def is_whole_store(self) -> bool:
        """It makes a store, not parts of one."""
        return True

    @property
    def work_base(self) -> Path:
        """Where the work directory lies: beside the new store, which is there only once it is complete."""
        target = Path(self.target)
        return Path(self.work) if self.work else target.with_name(target.name + super().work_base.name)
