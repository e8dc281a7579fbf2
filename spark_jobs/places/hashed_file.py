"""A file that is hashed while it is written."""

import contextlib
import hashlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self


class HashedFile(io.RawIOBase):
    """A new file, or object, whose checksum is known when it is written; only written, from start to end."""

    def __init__(self, file: Any, name: str) -> None:
        """Write to a file that is open, which is closed with this; errors name it."""
        super().__init__()
        self._file, self._name = file, name
        self._sha256 = hashlib.sha256()
        self.size = 0

    @classmethod
    def at(cls, path: Path) -> Self:
        """Make a file of this machine."""
        return cls(path.open("wb"), str(path))

    def writable(self) -> bool:
        """Say that the file can be written to."""
        return True

    def write(self, data: Any) -> int:
        """Write all of it."""
        with self._named():
            self._file.write(data)
        self._sha256.update(data)
        size = memoryview(data).nbytes
        self.size += size
        return size

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self.size

    @property
    def sha256(self) -> str:
        """The checksum of all that was written, in hexadecimal digits."""
        return self._sha256.hexdigest()

    def finish(self, sync: Callable[[int], None]) -> None:
        """Bring all of it to the disk."""
        with self._named():
            self._file.flush()
            sync(self._file.fileno())
            self._file.close()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Have an error, such as that the disk is full, name the file, which the system does not."""
        try:
            yield
        except OSError as error:
            error.filename = error.filename or self._name
            raise

    def close(self) -> None:
        """Close the file, whether or not all of it was written."""
        with contextlib.suppress(OSError):  # the file is not finished, and its error was reported already
            self._file.close()
        super().close()
