"""A segment behind a URL, read by ranges through fsspec."""

from protocol.errors import StoreError
from spark_jobs.places.file_systems import file_system, said


class RemoteFile:
    """An object of an object store, or whatever else is behind a URL."""

    def __init__(self, url: str, storage: str) -> None:
        """Ask for its size; raises StoreError."""
        self.path = url
        self._system, self._inner = file_system(url, storage)
        try:
            self.size: int = self._system.size(self._inner)
        except Exception as error:  # each file system has errors of its own
            raise StoreError(url, what=f"cannot be opened: {said(error)}") from error

    def read_into(self, view: memoryview, position: int) -> int:
        """Read up to as many bytes as the view has; how many. Raises OSError."""
        try:
            data = self._system.cat_file(self._inner, start=position, end=position + len(view))
        except OSError:
            raise
        except Exception as error:  # each file system has errors of its own
            raise OSError(said(error)) from error
        view[: len(data)] = data
        return len(data)

    def first_data(self, position: int) -> int:
        """Holes are not known."""
        return position

    def close(self) -> None:
        """Nothing is kept open."""
