"""The options of a rescue, checked before anything is started."""

from protocol.errors import ConfigError
from spark_jobs.convert.convert_request import ConvertRequest
from spark_jobs.places.file_systems import is_url


class RescueRequest(ConvertRequest, frozen=True, kw_only=True):
    """Options of a rescue: those of a conversion, which a rescue of a store of DLedger's is.

    With `link` sound segments get a second name and are not copied; `segment_size` are a segment's bytes where the
    files do not show them. Raises ConfigError for a store behind a URL.
    """

    link: bool = False
    segment_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if is_url(self.store):
            raise ConfigError(f"STORE {self.store} is a URL: copy the store to this machine first")
