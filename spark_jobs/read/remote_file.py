"""A segment behind a URL, read by ranges through fsspec."""

import json
from typing import Any

from protocol.errors import ConfigError, StoreError


def file_system(url: str, storage: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it; raises ConfigError where there is none for its scheme.

    `storage` are its options, as JSON.
    """
    try:
        from fsspec.core import url_to_fs  # comes with the extra, and only URLs need it
    except ImportError as error:
        raise ConfigError("a URL needs fsspec: pip install 'rocketlens[spark]'") from error
    try:
        system, inner = url_to_fs(url, **json.loads(storage or "{}"))
    except (ImportError, ValueError, TypeError) as error:
        raise ConfigError(f"{url}: {error}") from error
    return system, str(inner)


def check_storage(text: str) -> str:
    """Options of a file system as JSON, or nothing for none; raises ConfigError for a text that is no JSON object."""
    try:
        options = json.loads(text or "{}")
    except ValueError as error:
        raise ConfigError(f"storage_options: {error}") from error
    if not isinstance(options, dict):
        raise ConfigError("storage_options: expected a JSON object")
    return text


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


def said(error: Exception) -> str:
    """Return the text of an error, its name if it has none."""
    return str(error) or type(error).__name__
