"""Bring finished files of a store down from a URL, each held against its size and checksum, to be published.

They are staged in the work directory. What a run that was killed had brought there is not brought again.
"""

import hashlib
import os
from pathlib import Path
from typing import Final

from protocol.errors import ConfigError, StoreError
from spark_jobs.build.build_request import BuildRequest
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.places.place_names import MANIFEST
from spark_jobs.places.placed_run import Committed, decode_manifest
from spark_jobs.publish._publish_checks import Staged
from spark_jobs.publish.sent_manifest import COMPACT, REBUILD, SentFile, SentManifest, mark_index, mark_log
from spark_jobs.run.progress import JobProgress
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.segment_window import SegmentWindow
from spark_jobs.scan.source import StoreSource
from storage.files.attempt_names import written_beside
from storage.files.direct_writer import fsync_directory

PHASE: Final = "fetch"
_BLOCK: Final = 1024 * 1024


class FetchRequest(BuildRequest, frozen=True, kw_only=True):
    """Fetch what a rebuild or a compaction has left at `url` into the store.

    `storage` are options of its file system, as JSON.
    """

    url: str


def read_sent(request: FetchRequest, source: StoreSource) -> tuple[OutputPlace, SentManifest]:
    """The manifest at the URL.

    Raises ConfigError where there is no finished rebuild or compaction, StoreError where it is not one of this log and,
    if it was made of an index, of this index as they are now.
    """
    place = OutputPlace(request.url, request.storage)
    data = place.read(MANIFEST)
    if data is None:
        raise ConfigError(f"{request.url}: no finished rebuild or compaction is there, it has no {MANIFEST}")
    committed = decode_manifest(place, data, Committed, "RocketLens")
    if committed.command not in (REBUILD, COMPACT):
        raise ConfigError(f"{request.url}: it contains a finished {committed.command}, no {REBUILD} or {COMPACT}")
    manifest = decode_manifest(place, data, SentManifest, f"a {committed.command}")
    manifest.check(place.path(MANIFEST))
    if mark_log(source.segments, manifest.log.end) != manifest.log or (
        not manifest.index and _goes_on(source, manifest.log.end)
    ):
        raise StoreError(
            request.store,
            what=f"has another log than the one that {request.url} was made from, or has been written to since: "
            f"{manifest.command} again",
        )
    if manifest.index and mark_index(source) != manifest.index:
        raise StoreError(
            request.store,
            what=f"has another index than the one that {request.url} was made from: {manifest.command} again",
        )
    return place, manifest


def _goes_on(source: StoreSource, end: int) -> bool:
    """Whether the log has a record where the job saw its end: one that was written before the job took its mark."""
    segment = next((each for each in reversed(source.segments) if each.base_offset <= end), source.segments[0])
    with SegmentWindow(segment.path, segment.base_offset, segment.remote) as window:
        return window.intact_size(window.record_start(end - segment.base_offset)) > 0


def fetch(place: OutputPlace, manifest: SentManifest, work: WorkDirectory, progress: JobProgress) -> list[Staged]:
    """Bring all files to the work directory; raises StoreError where one is not what the manifest says."""
    work.enter(PHASE)
    total = sum(part.bytes for part in manifest.parts)
    progress.begin(PHASE, total, "bytes")
    try:
        for directory in manifest.directories:
            (work.staged / directory).mkdir(parents=True, exist_ok=True)
        done = 0
        for part in manifest.parts:
            if not _is_there(work.staged / part.path, part):
                _bring(place, part, work)
            done += part.bytes
            progress.update(done, 0)
    finally:
        progress.end()
    for directory in sorted({str(Path(part.path).parent) for part in manifest.parts} | set(manifest.directories)):
        fsync_directory(work.staged / directory)
    return [Staged(name, work.staged / name, synced=True) for name in manifest.names]


def _is_there(path: Path, part: SentFile) -> bool:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size != part.bytes:
                return False
            return hashlib.file_digest(file, "sha256").hexdigest() == part.sha256
    except FileNotFoundError:
        return False


def _bring(place: OutputPlace, part: SentFile, work: WorkDirectory) -> None:
    target = work.staged / part.path
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with written_beside(target, work.partial) as beside, beside.open("wb") as file, place.reading(part.name) as source:
        while size <= part.bytes and (block := source.read(_BLOCK)):
            digest.update(block)
            size += len(block)
            if block.count(0) != len(block):
                file.write(block)
            else:  # holes stay holes
                file.seek(size)
        file.truncate(size)
        file.flush()
        os.fsync(file.fileno())
        if (size, digest.hexdigest()) != (part.bytes, part.sha256):
            raise StoreError(place.path(part.name), what="is not what the manifest says, nothing was changed: SHA-256",
                             expected=f"{part.bytes} bytes, {part.sha256}",
                             found=f"{size} bytes, {digest.hexdigest()}")  # fmt: skip
