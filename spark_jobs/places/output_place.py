"""Objects below one URL that a job writes: each is seen whole or not at all, and one of them is created only once.

An object store has no renames, so everything gets its final name at once. What can be created only where nothing is
yet makes one of several drivers the first: an object store does so itself (`If-None-Match: *` of S3,
`ifGenerationMatch=0` of Google), in directories a link or a rename does.

A directory of this machine needs no library, and is held by its descriptor: all below it is reached from there, since
who may write to it could lead us elsewhere by a link, or by a name like `../x` (:mod:`storage.files.own_directories`).
"""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, NamedTuple

from protocol.errors import ConfigError, RocketLensError, StoreError
from spark_jobs.places.file_systems import file_system, has_scheme, said, time_of
from storage.files.direct_writer import fsync_directory
from storage.files.own_directories import HeldDirectory, is_below, open_regular

_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_MOVES: Final = 3
"""How often a file is tried to be moved into a directory that others remove when it is empty."""

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class _Creation(Enum):
    """How a file system creates what must not be there yet."""

    OBJECTS = ("s3", "s3a", "gs", "gcs")
    FILES = ("file", "local")
    RENAMES = ("hdfs", "webhdfs", "arrow_hdfs")


class ListedObject(NamedTuple):
    """What a listing says of an object: its size, and when it was written, in s since 1970, None if it does not say."""

    size: int
    written: float | None


class OutputPlace:
    """What lies below a URL, by names relative to it; raises StoreError for whatever the file system refuses."""

    def __init__(self, url: str, storage: str = "") -> None:
        """Name the place; raises ConfigError where nothing can be created exactly once."""
        self.url, self.storage = url.rstrip("/"), storage
        self._held: HeldDirectory | None = None
        self._system: Any = None
        scheme, path = self.url.split("://", 1) if has_scheme(self.url) else ("file", self.url)
        if scheme in _Creation.FILES.value:
            self._kind, self._root = _Creation.FILES, str(Path(path).absolute())
            return
        self._system, root = file_system(self.url, storage)
        self._root = root.rstrip("/")
        protocol = self._system.protocol
        names = {protocol} if isinstance(protocol, str) else set(protocol)
        kind = next((kind for kind in (_Creation.OBJECTS, _Creation.RENAMES) if names & set(kind.value)), None)
        if kind is None:
            known = ", ".join(f"{scheme}://" for scheme in ("s3", "gs", "hdfs", "file"))
            raise ConfigError(f"{url}: nothing can be written there, only to {known}")
        self._kind = kind

    def path(self, name: str) -> str:
        """The URL of an object, as an error names it."""
        return f"{self.url}/{name}" if name else self.url

    def names(self, below: str = "") -> list[str]:
        """What lies directly below the URL, or a directory there: objects, and directories or what looks like one."""
        with self._named(below):
            try:
                if self._kind is _Creation.FILES:
                    found = [f"{below}/{name}" if below else name for name in os.listdir(self._inner(below))]
                    return sorted(found)
                self._system.invalidate_cache()
                found = self._system.ls(self._inner(below), detail=False)
            except FileNotFoundError:
                return []
            return sorted(name for each in found if (name := self._relative(each)) != below)

    def objects(self, below: str) -> dict[str, ListedObject]:
        """All objects whose names begin with that of a directory, by name."""
        with self._named(below):
            if self._kind is _Creation.FILES:
                return dict(sorted(self._files(below)))
            self._system.invalidate_cache()
            try:
                found = self._system.find(self._inner(below), detail=True)
            except FileNotFoundError:
                return {}
            return {
                self._relative(path): ListedObject(info["size"] or 0, time_of(info)) for path, info in found.items()
            }

    def size(self, name: str) -> int | None:
        """The size of an object, or None."""
        with self._named(name):
            try:
                if self._kind is _Creation.FILES:
                    with self._open_file(name) as file:
                        return os.fstat(file.fileno()).st_size
                self._system.invalidate_cache()
                return int(self._system.info(self._inner(name))["size"])
            except FileNotFoundError:
                return None

    def read(self, name: str) -> bytes | None:
        """The bytes of a small object, or None."""
        with self._named(name):
            try:
                if self._kind is _Creation.FILES:
                    with self._open_file(name) as file:
                        return file.read()
                return bytes(self._system.cat_file(self._inner(name)))
            except FileNotFoundError:
                return None

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[Any]:
        """An object as a file, to read it from its start to its end."""
        is_here = self._kind is _Creation.FILES
        with self._named(name):
            opened = self._open_file(name) if is_here else self._system.open(self._inner(name), "rb")
            with opened as file:
                yield file

    def create(self, name: str, data: bytes) -> None:
        """Create a small object unless it exists.

        Raises StoreError where there is one, but also where it is not known whether it was created: read it then.
        """
        with self._named(name):
            self._make_directory(name)
            if self._kind is _Creation.OBJECTS:
                self._system.pipe_file(self._inner(name), data, mode="create")
                return
            beside = f"{name}.{secrets.token_hex(8)}"
            try:
                with self._open_new(beside) as file:
                    file.write(data)
                    self._sync(file)
                self._take_name(beside, name, data)
            finally:
                with contextlib.suppress(Exception):
                    self._remove_file(beside)

    def new_object(self, name: str) -> "NewObject":
        """An object to be written from its start to its end, which is seen once it is committed."""
        with self._named(name):
            self._make_directory(name)
            return NewObject(self, name, self._open_new(name))

    def move(self, name: str, to: str, size: int) -> None:
        """Give an object of some bytes another name; nothing is done where it bears that already.

        In directories the object is seen under one of the names at any time. An object store copies it, without its
        bytes coming here. Raises StoreError where it is under neither of the names.
        """
        with self._named(to):
            for _ in range(_MOVES):
                self._make_directory(to)
                try:
                    if self._kind is _Creation.OBJECTS:
                        self._system.cp_file(self._inner(name), self._inner(to))
                        self._system.rm_file(self._inner(name))
                    else:
                        self._take_place(name, to)
                except FileNotFoundError:
                    if self.size(to) == size:
                        break
                    if self.size(name) != size:
                        raise
                else:
                    break  # else another process removed the directory when it was empty
            else:
                raise FileNotFoundError("its directory is removed again and again")
        if self._kind is _Creation.FILES:
            self._remove_empty(os.path.dirname(name))

    def sync(self, names: Iterable[str]) -> None:
        """Bring the names of objects to the disk, with those of their directories; elsewhere they are kept at once."""
        if self._kind is not _Creation.FILES:
            return
        directories = {str(parent) for name in names for parent in PurePosixPath(name).parents}
        for each in sorted(directories):
            with self._named(each):
                fsync_directory(Path(self._root, each))

    def _take_place(self, name: str, to: str) -> None:
        if self._kind is _Creation.FILES:
            held = self._hold()
            with held.place_of(name) as (source, last), held.place_of(to) as (target, new):
                os.rename(last, new, src_dir_fd=source, dst_dir_fd=target)
        else:
            self._system.mv(self._inner(name), self._inner(to))

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; some of them may be gone."""
        every = sorted(names)
        with self._named(every[0] if every else ""):
            if self._kind is _Creation.OBJECTS and every:
                # Some stores refuse requests that delete many at once, for one unless they bear an MD5.
                with contextlib.suppress(Exception):
                    self._system.rm([self._inner(name) for name in every])
                    return
            for name in every:
                with contextlib.suppress(FileNotFoundError):
                    self._remove_file(name)
        if self._kind is _Creation.FILES:
            for name in every:
                self._remove_empty(os.path.dirname(name))

    def uploads(self, below: str) -> dict[tuple[str, str], ListedObject]:
        """Uploads below a name that were begun and never finished, by name and id: they take room and are not seen.

        S3 alone keeps them until they are aborted.
        """
        found: dict[tuple[str, str], ListedObject] = {}
        bucket, _, prefix = self._inner(below).partition("/")
        more: dict[str, str] = {}
        while self._kind is _Creation.OBJECTS and hasattr(self._system, "call_s3"):
            with self._named(below):
                answer = self._system.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix, **more)
            for each in answer.get("Uploads", ()):
                name = self._relative(f"{bucket}/{each['Key']}")
                found[name, each["UploadId"]] = ListedObject(0, time_of({"LastModified": each["Initiated"]}))
            if not answer.get("IsTruncated"):
                break
            more = {"KeyMarker": answer["NextKeyMarker"], "UploadIdMarker": answer["NextUploadIdMarker"]}
        return found

    def abort(self, uploads: Iterable[tuple[str, str]]) -> None:
        """Abort uploads by name and id; some of them may have ended."""
        for name, upload in uploads:
            bucket, _, key = self._inner(name).partition("/")
            with self._named(name), contextlib.suppress(FileNotFoundError):
                self._system.call_s3("abort_multipart_upload", Bucket=bucket, Key=key, UploadId=upload)

    def _files(self, below: str) -> Iterator[tuple[str, ListedObject]]:
        """All files of a directory of this machine, whatever is removed meanwhile."""
        directories = [below]
        while directories:
            directory = directories.pop()
            try:
                with os.scandir(self._inner(directory)) as entries:
                    listed = list(entries)
            except FileNotFoundError:
                continue
            for entry in listed:
                name = f"{directory}/{entry.name}" if directory else entry.name
                if entry.is_dir(follow_symlinks=False):
                    directories.append(name)
                    continue
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    yield name, ListedObject(status.st_size, status.st_mtime)

    def _remove_empty(self, name: str) -> None:
        """Remove a directory and those above it, if they are empty."""
        while name:
            try:
                with self._hold().place_of(name) as (directory, last):
                    os.rmdir(last, dir_fd=directory)
            except OSError:
                return
            name = os.path.dirname(name)

    def _make_directory(self, name: str) -> None:
        if self._kind is _Creation.FILES:
            with self._hold(make=True).place_of(name, make=True):
                return
        if self._kind is not _Creation.OBJECTS:
            self._system.makedirs(os.path.dirname(self._inner(name)), exist_ok=True)

    def _hold(self, *, make: bool = False) -> HeldDirectory:
        """The directory of this machine that the URL names; FileNotFoundError where there is none."""
        if self._held is None:
            self._held = HeldDirectory.open(Path(self._root), make=make)
            self._root = str(self._held.path)
        return self._held

    def require_own(self) -> None:
        """Raise PlantedFile for a directory of this machine in which somebody else could lead us elsewhere.

        For a library that reaches files by their names; one that is not there yet is to be looked at again.
        """
        if self._kind is _Creation.FILES:
            with self._named(""), contextlib.suppress(FileNotFoundError):
                self._hold().require_own()

    def _open_file(self, name: str) -> IO[bytes]:
        """Open a file of this machine for reading."""
        with self._hold().place_of(name) as (directory, last):
            return os.fdopen(open_regular(last, os.O_RDONLY, directory=directory), "rb")

    def _open_new(self, name: str) -> Any:
        if self._kind is _Creation.FILES:
            return self._hold(make=True).new_file(name)
        return self._system.open(self._inner(name), "wb")

    def _remove_file(self, name: str) -> None:
        if self._kind is _Creation.FILES:
            with self._hold().place_of(name) as (directory, last):
                os.unlink(last, dir_fd=directory)
        else:
            self._system.rm_file(self._inner(name))

    def _sync(self, file: Any) -> None:
        """Bring a file of a disk to the disk."""
        if self._kind is _Creation.FILES:
            file.flush()
            os.fsync(file.fileno())

    def _take_name(self, beside: str, name: str, data: bytes) -> None:
        """Give a file its final name, unless that is taken."""
        if self._kind is _Creation.RENAMES:
            self._system.mv(self._inner(beside), self._inner(name))  # fails, or does nothing, where the name is taken
            return
        held = self._hold()
        try:
            with held.place_of(beside) as (source, last), held.place_of(name) as (target, new):
                os.link(last, new, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            with held.new_file(name) as file:
                try:
                    file.write(data)
                    self._sync(file)
                except OSError:
                    self._remove_file(name)
                    raise

    def _inner(self, name: str) -> str:
        if name and not is_below(name):
            raise StoreError(self.url, what=f"has {name!r} named in it, which leads elsewhere")
        return f"{self._root}/{name}" if name else self._root

    def _relative(self, path: str) -> str:
        return path.removeprefix(self._root).strip("/")

    @contextlib.contextmanager
    def _named(self, name: str) -> Iterator[None]:
        """Have an error name what it is about; each file system has errors of its own."""
        try:
            if self._kind is _Creation.FILES:
                with contextlib.suppress(FileNotFoundError):
                    self._hold()
            yield
        except RocketLensError:
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _NO_ROOM:
                raise
            what = said(error) if self._held is None else self._held.named(said(error))
            raise StoreError(self.path(name), what=f"cannot be used: {what}") from error


class NewObject:
    """An object that is being written; closed before it is committed, it never was."""

    def __init__(self, place: OutputPlace, name: str, file: Any) -> None:
        """Take what the file system opened."""
        self._place, self.name, self._file = place, name, file

    def write(self, data: Any) -> int:
        """Write all of it."""
        with self._place._named(self.name):
            self._file.write(data)
        return memoryview(data).nbytes

    def commit(self) -> None:
        """Make it seen."""
        with self._place._named(self.name):
            self._place._sync(self._file)
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Leave nothing of it, unless it was committed."""
        file, self._file = self._file, None
        if file is None:
            return
        # A file of fsspec that is closed is committed, even by its destructor.
        with contextlib.suppress(Exception):
            file.discard()
        with contextlib.suppress(Exception):
            if self._place._kind is _Creation.OBJECTS:
                file.closed = True
            else:
                file.close()
                self._place.remove([self.name])
