"""The options of a rescue, checked before anything is started."""

from protocol.errors import ConfigError
from spark_jobs.convert.convert_request import ConvertRequest
from spark_jobs.places.file_systems import is_url


class RescueRequest(ConvertRequest, frozen=True, kw_only=True):
    """Options of a rescue: those of a conversion, which a rescue of a store of DLedger's is.

    With `link` sound segments get a second name and are not copied; `segment_size` are a segment's bytes where the
    files do not show them. `fill_from` are stores from which holes of the log may be filled. Raises ConfigError for a
    store behind a URL.
    """

    link: bool = False
    segment_size: int | None = None
    fill_from: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if is_url(self.store):
            raise ConfigError(f"STORE {self.store} is a URL: copy the store to this machine first")
        for copy in self.fill_from:
            if is_url(copy):
                raise ConfigError(f"--fill-from {copy} is a URL: copy the store to this machine first")
