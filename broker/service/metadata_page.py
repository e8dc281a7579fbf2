"""Pages of metadata tables, as clients since 5.4 ask for them.

They name the first entry, how many they take, and the version of the table that they saw; they go on until they have
seen the total that the answer's header names. A changed version starts them over. Older clients send nothing and take
the whole table at once (remoting-protocol §2.2).
"""

import msgspec

from storage.layout.store_config import DataVersion

PAGE_LIMIT = 2000
"""Entries of one page (splitMetadataSize); a client that asks for more is content with less."""

_decode_version = msgspec.json.Decoder(DataVersion).decode


def page_of(names: list[str], first: int, maximum: int | None, seen: str | None, version: DataVersion) -> list[str]:
    """The entries that a request asks for: from `first` on if it has `seen` this version, else from the beginning.

    `maximum` None means all of them, from a client that knows no pages.
    """
    if maximum is None:
        return names
    start = max(first, 0) if _is(seen, version) else 0
    return names[start : start + min(max(maximum, 0), PAGE_LIMIT)]


def _is(seen: str | None, version: DataVersion) -> bool:
    try:
        return bool(seen) and _decode_version(seen or "") == version
    except msgspec.DecodeError:
        return False
