"""Check that everything is written outside of stores, never in them. Stores and places are paths."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from protocol.errors import ConfigError

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)
"""A path that was a URL has lost some of its slashes."""


def is_inside(place: Path, directory: Path) -> bool:
    """Whether a place is a directory or lies in it, wherever links lead."""
    return place.resolve().is_relative_to(directory.resolve())


def check_outside(stores: Iterable[Path], places: Mapping[str, Path | None]) -> None:
    """Raise `ConfigError` for a place to write to, by its option, that is a store or lies inside one.

    `stores` are their directories, and those of their logs if these are elsewhere. None of them may be a URL.
    """
    directories = tuple(stores)
    for directory in directories:
        refuse_url("STORE", directory)
    for option, place in places.items():
        refuse_url(option, place)
        found = None if place is None else next((each for each in directories if is_inside(place, each)), None)
        if found is not None:
            inside = found if len(directories) > 1 else "the store"
            raise ConfigError(f"{option} {place} lies inside {inside}: choose a place beside it")


def refuse_url(name: str, place: str | Path | None) -> None:
    """Raise `ConfigError` for a URL where a path belongs, by the argument's name: it would be a strange directory."""
    found = None if place is None else _URL.fullmatch(str(place))
    if found is None:
        return
    scheme, rest = found.groups()
    if scheme.lower() == "file":
        raise ConfigError(f"{name} file:///{rest} is a URL: write the path alone, /{rest}")
    raise ConfigError(f"{name} {scheme}://{rest} is a URL: only a path is possible, as of a file system mounted here")
