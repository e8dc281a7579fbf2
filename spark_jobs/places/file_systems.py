"""File systems by URL, through fsspec: the one place that knows of schemes, options, and what errors say."""

import json
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from protocol.errors import ConfigError, StoreError
from protocol.redaction import keep_secrets
from storage.extras import install_line

TIMES: Final = (
    "LastModified",
    "mtime",
    "last_modified",
    "updated",
    "modificationTime",
    "modification_time",
    "created",
)
"""What file systems call the time of a file's last change."""

_STATES: Final = ("ETag", "etag", "generation", *TIMES)
"""What they say of a file that changes with its content; the first one that there is counts."""


_FIRST_MILLISECONDS: Final = 100_000_000_000
"""A time from this number on is in ms since 1970, as Hadoop's are: in s it would not be before the year 5138."""

EXTRAS: Final = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "hdfs": "hdfs"}
"""What is to be installed for a scheme, by the name of the extra."""


def has_scheme(path: str) -> bool:
    """Whether a path is a URL of any scheme, `file` too."""
    return "://" in path


def is_url(path: str) -> bool:
    """Whether a path has a scheme that is not that of this machine's files."""
    return has_scheme(path) and not path.startswith("file://")


def refuse_page(url: str) -> None:
    """Raise ConfigError for a URL of HTTP, which lists no files of a store: it may be the page's of a server.

    And for one that is not valid.
    """
    if not is_url(url):
        return
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"{url}: {error}") from error
    if parts.scheme in ("http", "https"):
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        raise ConfigError(
            f"{url}: no store is read by HTTP; if this is the page of a RocketLens server, name its remoting port: "
            f"{host}:PORT, 10911 unless --listen says another"
        )


def state_of(info: dict[str, Any]) -> str:
    """What changes with the content of a file, of what its file system says of it; "" where it says nothing of it."""
    found = next((info[name] for name in _STATES if info.get(name) is not None), "")
    if isinstance(found, datetime):  # some file systems have one time as this in a listing, and as seconds elsewhere
        found = found.timestamp()
    return f"{found:.6f}" if isinstance(found, float) else str(found)


def time_of(info: dict[str, Any]) -> float | None:
    """When a file was written last in seconds since 1970, of what its file system says of it; None if it does not."""
    found = next((info[name] for name in TIMES if info.get(name) is not None), None)
    try:
        if isinstance(found, str):
            found = datetime.fromisoformat(found)
        if isinstance(found, datetime):
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
        return None if found is None else float(found) / (1000 if found >= _FIRST_MILLISECONDS else 1)
    except (ValueError, TypeError, OverflowError):
        return None


def local_path(path: str) -> str:
    """The path of a file of this machine that is given as a path or as a URL with the scheme `file`."""
    return unquote(urlsplit(path).path) if path.startswith("file:") else path


def file_system(url: str, storage: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it.

    `storage` are its options, as JSON. Raises ConfigError where there is none for its scheme, StoreError where its
    server cannot be reached.
    """
    refuse_page(url)
    try:
        from fsspec.core import url_to_fs  # comes with the extra, and only URLs need it
    except ImportError as error:
        raise ConfigError(f"a URL needs fsspec: {_to_install(url)}") from error
    options = json.loads(storage or "{}")
    keep_secrets(options)
    try:
        system, inner = url_to_fs(url, **options)
    except ImportError as error:
        raise ConfigError(f"{url}: {error}: {_to_install(url)}") from error
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{url}: {error}") from error
    except OSError as error:  # some connect at once
        raise StoreError(url, what=f"cannot be reached: {said(error)}") from error
    return system, str(inner)


def _to_install(url: str) -> str:
    return install_line(EXTRAS.get(urlsplit(url).scheme, "spark"))


def check_storage(text: str) -> str:
    """Options of a file system as JSON, or nothing for none; raises ConfigError for a text that is no JSON object."""
    try:
        options = json.loads(text or "{}")
    except ValueError as error:
        raise ConfigError(f"storage_options: {error}") from error
    if not isinstance(options, dict):
        raise ConfigError("storage_options: expected a JSON object")
    keep_secrets(options)
    return text


def said(error: Exception) -> str:
    """Return the text of an error, its name if it has none; without the stack of a name node, which sends it along."""
    return str(error).partition("\n\tat ")[0] or type(error).__name__
