"""Where an export goes: a directory that holds nothing else; looked at before anything is started or loaded."""

import contextlib
import os
from pathlib import Path
from typing import Final

from protocol.errors import ConfigError, PlantedFile
from spark_jobs.places.place_names import MANIFEST, PART, WORK
from storage.files.own_directories import HeldDirectory

COMPRESSIONS: Final = ("zstd", "lz4", "snappy", "none")
"""Codecs of Parquet files; the first one unless another is asked for."""


def check_place(out: Path, *, fresh: bool) -> None:
    """Raise ConfigError where somebody else's files are, a finished export unless it may be replaced, or no access."""
    try:
        names = sorted(os.listdir(out))
    except FileNotFoundError:
        return
    except OSError as error:
        raise _no_place(out, error) from error
    if not os.access(out, os.W_OK | os.X_OK):
        raise ConfigError(f"--out {out}: cannot be written to")
    foreign = [name for name in names if name not in (MANIFEST, WORK) and not PART.fullmatch(name)]
    if foreign:
        raise ConfigError(f"--out {out}: it contains {foreign[0]}: choose an empty directory")
    for name in names:
        if name != WORK and (out / name).is_dir() and not (out / name).is_symlink():
            raise ConfigError(f"--out {out}: {name} is a directory there, not a file: choose an empty directory")
    if MANIFEST in names and not fresh:
        raise ConfigError(f"--out {out}: it contains a finished export: choose another directory, or --fresh")


def take_place(out: Path, *, fresh: bool) -> tuple[HeldDirectory, Path | None]:
    """Hold the directory, or make it; with it, the topmost directory that was made, if one was. Raises ConfigError."""
    check_place(out, fresh=fresh)
    made = next((each for each in reversed((out, *out.parents)) if not each.exists()), None)
    try:
        return HeldDirectory.open(out, make=True), made
    except OSError as error:
        raise _no_place(out, error) from error


def leave_place(out: Path, made: Path | None) -> None:
    """Remove the directories that were made, if they are empty."""
    for each in (out, *out.parents) if made is not None else ():
        with contextlib.suppress(OSError, PlantedFile), HeldDirectory.open(each) as held:
            held.remove_empty()
        if each == made:
            return


def _no_place(out: Path, error: OSError) -> ConfigError:
    return ConfigError(f"--out {out}: no directory to write to: {error.strerror or error}")
