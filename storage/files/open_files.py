"""Keep a bounded number of queue files open, those read last.

A store can hold hundreds of thousands of queue files, each of which costs descriptors and a map, so they are opened
when first read and forgotten when 1,024 others were read since. Forgetting drops a reference and closes nothing: a
reader that still holds a slice of a map keeps it until it is done.
"""

from pathlib import Path
from typing import Final

from protocol.errors import StoreError
from storage.files.mapped_file import MappedFile, lacks_means
from storage.files.recently_used import RecentlyUsed

QUEUE_FILE_LIMIT: Final = 1024


class OpenFiles:
    """Queue files by path and inode, mapped when first asked for; shared by the threads and snapshots of one store."""

    __slots__ = ("_files",)

    def __init__(self, limit: int = QUEUE_FILE_LIMIT) -> None:
        self._files: RecentlyUsed[MappedFile] = RecentlyUsed(limit)

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
        """Whether one of the files has become shorter since it was mapped, or was removed."""
        return any(file.is_lost() for _, file in self._files.remembered())

    def _open(self, path: Path) -> MappedFile:
        try:
            return MappedFile.open(path)
        except StoreError as error:
            if not lacks_means(error):
                raise
        # Better some files open than an error: the process may be allowed fewer descriptors than the limit asks for.
        self._files.forget_to(len(self._files) // 2)
        return MappedFile.open(path)
