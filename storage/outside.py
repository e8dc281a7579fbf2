"""What is written lies beside stores, never in them: one check for all that write."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from protocol.errors import ConfigError


def is_inside(place: Path, directory: Path) -> bool:
    """Whether a place is a directory or lies in it, wherever links lead."""
    return place.resolve().is_relative_to(directory.resolve())


def check_outside(stores: Iterable[Path], places: Mapping[str, Path | None]) -> None:
    """Raise `ConfigError` for a place to write to, by its option, that is a store or lies inside one.

    `stores` are their directories, those of their logs too where they lie elsewhere.
    """
    directories = tuple(stores)
    for option, place in places.items():
        found = None if place is None else next((each for each in directories if is_inside(place, each)), None)
        if found is not None:
            inside = found if len(directories) > 1 else "the store"
            raise ConfigError(f"{option} {place} lies inside {inside}: choose a place beside it")
