"""Options of a file system, as fsspec has them, for the libraries of Iceberg and Delta, which have names of their own.

S3 alone is translated; what other object stores need is in their environment, or in the properties of the catalog.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

_ICEBERG: Final = {
    "key": "s3.access-key-id",
    "secret": "s3.secret-access-key",
    "token": "s3.session-token",
    "endpoint_url": "s3.endpoint",
    "region_name": "s3.region",
    "anon": "s3.anonymous",
}
_DELTA: Final = {
    "key": "AWS_ACCESS_KEY_ID",
    "secret": "AWS_SECRET_ACCESS_KEY",
    "token": "AWS_SESSION_TOKEN",
    "endpoint_url": "AWS_ENDPOINT_URL",
    "region_name": "AWS_REGION",
    "anon": "AWS_SKIP_SIGNATURE",
}
_REGION: Final = "us-east-1"
"""Where none is named: a server that is no Amazon's has none, and the libraries want one."""


def iceberg_options(url: str, storage: str) -> dict[str, str]:
    """Properties of a catalog for the file system of a URL."""
    return _translated(url, storage, _ICEBERG)


def delta_options(url: str, storage: str) -> dict[str, str]:
    """Storage options for the object store of a URL."""
    options = _translated(url, storage, _DELTA)
    if options.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    return options


def _translated(url: str, storage: str, names: Mapping[str, str]) -> dict[str, str]:
    if url.partition("://")[0] not in ("s3", "s3a"):
        return {}
    known = msgspec.json.decode(storage or "{}", type=dict[str, object])
    inner = msgspec.convert(known.get("client_kwargs") or {}, dict[str, object])
    found = {**inner, **known}
    options = {other: _text(found[name]) for name, other in names.items() if found.get(name) is not None}
    if "endpoint_url" in found:
        options.setdefault(names["region_name"], _REGION)
    return options


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
