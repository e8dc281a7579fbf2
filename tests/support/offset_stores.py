"""What consumer offsets know of a store: the offsets that its configuration has."""

from dataclasses import dataclass, field


@dataclass
class OffsetConfig:
    """The part of a store's configuration that matters to offsets."""

    consumer_offsets: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)
    pull_offsets: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)

    def refuse_unknown_offsets(self, *_: str | None) -> None:
        """All of them are known."""


@dataclass
class OffsetStore:
    """A store that is nothing but its configuration."""

    config: OffsetConfig
