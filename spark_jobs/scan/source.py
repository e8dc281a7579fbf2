"""The store a job reads, by names, sizes and times of its files: the driver opens no segment."""

import os
from pathlib import Path

import msgspec

from protocol.errors import NotAStore, StoreError
from spark_jobs.run.work_directory import JobIdentity
from spark_jobs.scan.probe_store import SegmentPlace
from storage.index.index_header import is_index_name
from storage.layout.checkpoint import Checkpoint
from storage.layout.store_layout import EXPECTED, StoreLayout, recognise_store
from storage.log.segment_list import list_segments, refuse_beyond
from storage.store.store_state import read_store_state


class StoreSource(msgspec.Struct, frozen=True):
    """Segments in order, index files in order of their names, and what the store says of its own state."""

    layout: StoreLayout
    segments: tuple[SegmentPlace, ...]
    index_files: tuple[str, ...]
    checkpoint: Checkpoint | None
    has_crashed: bool
    is_live: bool
    problems: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(place.size for place in self.segments)

    @property
    def end(self) -> int:
        """Physical offset behind the last segment's file."""
        return self.segments[-1].base_offset + self.segments[-1].size

    def identity(self) -> JobIdentity:
        """Return what changes with the store: a job goes on only while it stays the same."""
        layout = self.layout
        paths = [place.path for place in self.segments] + [str(layout.index / name) for name in self.index_files]
        small = (layout.checkpoint, layout.config / "topics.json", layout.root / "abort")
        return {"files": [[path, *_state(path)] for path in (*paths, *map(str, small))]}


def find_source(root: Path, commit_log_directories: tuple[Path, ...]) -> StoreSource:
    """Look at a store; raises NotAStore or another StoreError."""
    layout = recognise_store(root, commit_log_directories, open_segments=False)
    problems: list[str] = []
    segments = []
    for base_offset, path in list_segments(layout.commit_log_directories, problems):
        size = _state(str(path))[0]
        refuse_beyond(base_offset, size, path)
        if size > 0:
            segments.append(SegmentPlace(base_offset, size, str(path)))
        else:
            problems.append(f"{path} is empty")
    if not segments:
        raise NotAStore(root, expected=EXPECTED, found="segments without a byte")
    state = read_store_state(root)
    return StoreSource(
        layout,
        tuple(segments),
        tuple(_index_files(layout.index, problems)),
        _checkpoint(layout.checkpoint, problems),
        state.abort,
        state.is_live,
        tuple(problems),
    )


def _index_files(directory: Path, problems: list[str]) -> list[str]:
    """Names of index files, as a broker loads them: by name."""
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(directory, what=f"cannot be listed: {error.strerror}") from error
    proper = list(filter(is_index_name, names))
    problems += [f"{directory / name} is not an index file and is left out" for name in names if name not in proper]
    return proper


def _checkpoint(path: Path, problems: list[str]) -> Checkpoint | None:
    try:
        return Checkpoint.read(path)
    except StoreError as error:
        problems.append(f"{error}; treated as missing")
        return None


def _state(path: str) -> tuple[int, int, int]:
    """Size, modification time in ns and inode of a file; −1 each where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return -1, -1, -1
    return status.st_size, status.st_mtime_ns, status.st_ino
