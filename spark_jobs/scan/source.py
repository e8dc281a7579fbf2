"""The store a job reads, by names, sizes and times of its files: the driver opens no segment.

A store behind a URL is listed once. What of it is looked at in the driver is a hollow copy
(:mod:`spark_jobs.places.remote_tree`), in which the small files are real.
"""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from protocol.errors import NotAStore, RocketLensError, StoreError
from spark_jobs.places.file_systems import is_url, local_path
from spark_jobs.places.place_names import COPIES
from spark_jobs.places.remote_file import RemoteFile, RemoteObject
from spark_jobs.places.remote_tree import RemoteTree, list_tree, refuse_elsewhere
from spark_jobs.run.work_directory import JobIdentity
from spark_jobs.scan.probe_store import SegmentPlace
from storage.files.own_directories import HeldDirectory, temporary_directory
from storage.index.index_header import is_index_name
from storage.layout.checkpoint import Checkpoint
from storage.layout.dledger import CHECKPOINT as LEDGER_CHECKPOINT
from storage.layout.dledger import DATA, DLEDGER_HEAD, INDEX_UNIT, LARGEST_CHECKPOINT, is_ledger, uncommitted_unit
from storage.layout.store_layout import (
    ABORT,
    BATCH_CONSUME_QUEUE,
    CHECKPOINT,
    CONFIG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    EXPECTED,
    INDEX,
    StoreLayout,
    recognise_store,
)
from storage.log.segment_list import list_segments, refuse_beyond
from storage.store.store_state import read_store_state

POINTERS: Final = (INDEX, CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT)
"""What leads to the records of a log."""

LARGEST_SMALL_FILE: Final = 256 * 1024 * 1024
"""Bytes of a file of config/ that is fetched with the listing."""


class StoreSource(msgspec.Struct, frozen=True):
    """Segments in order, index files in order of their names, and what the store says of its own state.

    Of a store behind a URL `tree` is the listing, `layout` the places in a hollow copy, and paths of segments are URLs.
    `is_copied`: index files and queues are real there.
    """

    layout: StoreLayout
    segments: tuple[SegmentPlace, ...]
    index_files: tuple[str, ...]
    checkpoint: Checkpoint | None
    has_crashed: bool
    is_live: bool
    problems: tuple[str, ...]
    tree: RemoteTree | None = None
    is_copied: bool = False

    @property
    def named(self) -> Callable[[str], str]:
        """A function that replaces paths of the local copy in a text by the names of the store's own files."""
        return str if self.tree is None else self.tree.named(self.layout.root)

    def index_file(self, name: str) -> tuple[str, RemoteObject | None]:
        """Return the path of an index file, or its URL with its entry in the listing."""
        if self.tree is None or self.is_copied:
            return str(self.layout.index / name), None
        found = self.tree.object(f"{self.layout.index.name}/{name}")
        return found.url, found

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
        if self.tree is not None:
            return {"files": [[each.path, each.size, each.state] for each in self.tree.files]}
        paths = [place.path for place in self.segments] + [str(layout.index / name) for name in self.index_files]
        small = (layout.checkpoint, layout.config / "topics.json", layout.root / "abort")
        return {"files": [[path, *_state(path)] for path in (*paths, *map(str, small))]}


@contextlib.contextmanager
def opened_source(
    store: str,
    commit_log_directories: tuple[str, ...],
    storage: str = "",
    copies: Path | None = None,
    *,
    shared: bool = False,
) -> Iterator[StoreSource]:
    """Look at a store, a directory or a URL; raises NotAStore, another StoreError or ConfigError.

    `storage` are options of the file system, as JSON. The hollow copy of a store behind a URL is gone afterwards; with
    a directory for `copies` it lies there, and its index files and queues are real; `shared`: for other machines too.
    """
    if not is_url(store):
        yield find_source(Path(local_path(store)), tuple(map(Path, commit_log_directories)))
        return
    refuse_elsewhere(commit_log_directories)
    tree = list_tree(store, storage)
    with temporary_directory(f".{COPIES}", copies or Path(tempfile.gettempdir()), shared=shared) as directory:
        source = _remote_source(tree, directory)
        if copies is not None:
            tree.below(*POINTERS).fetch(directory)
            source = msgspec.structs.replace(source, is_copied=True)
        with _named_errors(source):
            yield source
    if copies is not None:
        with contextlib.suppress(OSError), HeldDirectory.open(copies) as held:  # something else is there
            held.remove_empty()


@contextlib.contextmanager
def _named_errors(source: StoreSource) -> Iterator[None]:
    """Let errors about copies of a store's files name the files themselves."""
    try:
        yield
    except RocketLensError as error:
        text = str(error)
        if source.named(text) == text:
            raise
        raise RocketLensError(source.named(text)) from error


def _remote_source(tree: RemoteTree, root: Path) -> StoreSource:
    """Look at a store behind a URL through a hollow copy, which is made at `root`."""
    if not tree.files:
        raise NotAStore(tree.url, expected=EXPECTED, found="nothing there")
    tree.hollow(root)
    small = tree.below(CONFIG, CHECKPOINT, ABORT)
    small.without_larger(LARGEST_SMALL_FILE).fetch(root)
    named = tree.named(root)
    _copy_ledger_heads(tree, root)
    _copy_ledger_state(tree, root)
    try:
        source = find_source(root, ())
    except NotAStore as error:
        raise NotAStore(tree.url, expected=error.expected, found=named(str(error.found))) from error
    except StoreError as error:
        raise StoreError(
            named(str(error.path)), error.physical_offset, error.expected, error.found, error.what
        ) from error
    objects = tree.objects()
    remote = [objects[Path(place.path).relative_to(root).as_posix()] for place in source.segments]
    segments = (
        SegmentPlace(place.base_offset, place.size, found.url, found)
        for place, found in zip(source.segments, remote, strict=True)
    )
    problems = tuple(map(named, source.problems))
    return msgspec.structs.replace(source, segments=tuple(segments), problems=problems, tree=tree)


def _copy_ledger_heads(tree: RemoteTree, root: Path) -> None:
    """Copy the first bytes of files in directories of DLedger's, up to one in each that something was written to."""
    written = set()
    for each in tree.files:
        directory, _, _ = each.path.rpartition("/")
        name, _, inner = directory.partition("/")
        if is_ledger(name) and inner == DATA and directory not in written and _copy_head(tree, each.path, root):
            written.add(directory)


def _copy_head(tree: RemoteTree, path: str, root: Path) -> bool:
    """Copy the first bytes of a file; whether any of them is not zero."""
    return any(_copy_piece(tree, path, root, 0, DLEDGER_HEAD.size))


def _copy_ledger_state(tree: RemoteTree, root: Path) -> None:
    """Copy what directories of DLedger's say of how far their group has agreed: a checkpoint, and one unit."""
    for each in tree.files:
        name, _, inner = each.path.partition("/")
        if not is_ledger(name) or inner != LEDGER_CHECKPOINT:
            continue
        _copy_piece(tree, each.path, root, 0, LARGEST_CHECKPOINT)
        unit = uncommitted_unit(root / name)
        if unit is not None:
            path, position, _ = unit
            _copy_piece(tree, path.relative_to(root).as_posix(), root, position, INDEX_UNIT.size)


def _copy_piece(tree: RemoteTree, path: str, root: Path, position: int, size: int) -> bytearray:
    """Copy some bytes of a file, as many as it has there; what was copied."""
    found, piece = tree.object(path), bytearray(size)
    with RemoteFile(found.url, tree.storage, found) as file, (root / path).open("r+b") as copy:
        count = file.read_into(memoryview(piece), position) if position < found.size else 0
        copy.seek(position)
        copy.write(piece[:count])
    return piece[:count]


def find_source(root: Path, commit_log_directories: tuple[Path, ...]) -> StoreSource:
    """Look at a store; raises NotAStore or another StoreError."""
    layout = recognise_store(root, commit_log_directories)
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
