"""A file that is read through a map, piece by piece, and may be cut meanwhile.

What was cut away reads as zeros where its map was looked at, in every thread and every kernel, and `is_cut` is true
afterwards. No signal ends the process.
"""

from typing import final

from typing_extensions import Buffer

def end_at_cut(words: bytes, code: int) -> None:
    """Have this process end with `words` on stderr, at most 1,024 bytes, and an exit code where it meets a cut file.

    That is where it looks at bytes of a map, other than a `FileMap`, that are not there any more; without this it is
    ended by SIGBUS. Raises OSError where that cannot be arranged.
    """

@final
class FileMap(Buffer):
    """The bytes of a file, as long as anybody holds them; a buffer that is read only."""

    def __new__(cls, descriptor: int, size: int) -> FileMap:
        """Map `size` bytes of an open file, which may be closed then.

        Raises OSError where that cannot be done, where too many files are mapped so, and where the kernel cannot
        populate maps (before Linux 5.14).
        """
    def __len__(self) -> int: ...
    @property
    def size(self) -> int:
        """How many bytes."""
    @property
    def is_cut(self) -> bool:
        """Whether somebody looked at bytes that were not there any more, or could not be read, and saw zeros."""
    def populate(self, position: int, stop: int) -> None:
        """Read bytes [position, stop) into memory, where they are not, and enter them into the map; waits for the disk.

        Raises OSError where they cannot be read: behind the end of a file that was cut, or from a disk that fails.
        """
    def drop(self, position: int, stop: int) -> None:
        """Let the pages that lie wholly in [position, stop) go from the map; in the page cache they stay."""
