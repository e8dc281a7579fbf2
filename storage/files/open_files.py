"""Keep a bounded number of queue files open, those read last.

A store can hold hundreds of thousands of queue files, each of which costs a descriptor and a map, so they are opened
when first read and forgotten when very many others were read since. Forgetting drops a reference and closes nothing: a
reader that still holds a slice of a map keeps it until it is done.
"""

import resource
from pathlib import Path
from typing import Final

from protocol.errors import StoreError
from storage.files.mapped_file import MappedFile, lacks_means
from storage.files.recently_used import RecentlyUsed

MOST_QUEUE_FILES: Final = 16384
"""With 1,024 a pull among 10,000 topics took 393 µs of CPU, and now 24 (`benchmarks.pull --topics 10000`)."""

LOOKED_AT: Final = 1024
"""About as many files are asked at a time whether they were cut or removed; a thousand take some 4 ms."""


def most_queue_files() -> int:
    """How many queue files may be open: half of the descriptors that the process may have, up to 16,384."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_QUEUE_FILES if descriptors == resource.RLIM_INFINITY else min(descriptors // 2, MOST_QUEUE_FILES)


class OpenFiles:
    """Queue files by path and inode, mapped when first asked for; shared by the threads and snapshots of one store."""

    __slots__ = ("_files", "_looks")

    def __init__(self, limit: int | None = None) -> None:
        self._files: RecentlyUsed[MappedFile] = RecentlyUsed(most_queue_files() if limit is None else limit)
        self._looks = 0

    def __len__(self) -> int:
        return len(self._files)

    def get(self, path: str, inode: int) -> MappedFile:
        """The map of a file, opened now if it is not open; raises StoreError where that is not possible.

        The inode distinguishes a file from a later one of the same name, which an older snapshot does not know.
        """
        return self._files.get((path, inode), lambda: self._open(Path(path)))

    def reopened(self, path: str, inode: int) -> MappedFile:
        """The map of a file that has grown since it was mapped, or was cut."""
        self._files.forget((path, inode))
        return self.get(path, inode)

    def forget_changed(self) -> None:
        """Let go of the files whose paths lead nowhere or elsewhere now, or whose size is another one."""
        for key, file in self._files.remembered():
            if not file.is_at(file.path):
                self._files.forget(key)

    def has_lost(self) -> bool:
        """Whether a file has become shorter since it was mapped, or was removed; of thousands a part each time."""
        files = self._files.remembered()
        parts = -(-len(files) // LOOKED_AT)
        self._looks += 1
        return any(file.is_lost() for _, file in files if file.identity.inode % parts == self._looks % parts)

    def _open(self, path: Path) -> MappedFile:
        try:
            return MappedFile.open(path)
        except StoreError as error:
            if not lacks_means(error):
                raise
        # Better some files open than an error: the process may be allowed fewer descriptors than the limit asks for.
        self._files.forget_to(len(self._files) // 2)
        return MappedFile.open(path)
