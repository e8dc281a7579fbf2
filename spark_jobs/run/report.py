"""What a bulk job answers: amounts, times, what it found damaged, and details of its own kind."""

from typing import Generic, TypeAlias, TypeVar

import msgspec


class Damage(msgspec.Struct, frozen=True, rename="camel"):
    """Bytes [physical_offset, physical_offset + length) that hold no record that counts; `path` holds the first."""

    path: str
    physical_offset: int
    length: int
    expected: str
    found: str

    def sentence(self) -> str:
        """For a person."""
        return (
            f"{self.path} at physical offset {self.physical_offset}: expected {self.expected}, found "
            f"{self.found} ({self.length} bytes skipped)"
        )


class Details(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel"):
    """What one kind of job has to say beyond what all have. A field that is None is not printed."""

    @property
    def exit_code(self) -> int:
        """The exit code of a run that met no damage."""
        return 0


DetailsT_co = TypeVar("DetailsT_co", bound=Details, covariant=True)


class Report(msgspec.Struct, Generic[DetailsT_co], kw_only=True, rename="camel"):
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
    details: DetailsT_co
    damages: list[Damage] = []
    more_damages: int = 0
    notes: list[str] = []

    @property
    def exit_code(self) -> int:
        """4 where there is damage, else what the details say."""
        return 4 if self.damages or self.more_damages else self.details.exit_code


AnyReport: TypeAlias = Report[Details]
