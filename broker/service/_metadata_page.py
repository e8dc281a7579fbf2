"""Pages of metadata tables, as clients since 5.4 ask for them.

A request names the first entry, the number of entries, and the version of the table that the client saw. Clients go on
until they have as many entries as the answer's header says. When the version has changed they start again. Older
clients send none of these and get the whole table at once (remoting-protocol §2.2).
"""

import msgspec

from storage.layout.store_config import DataVersion

PAGE_LIMIT = 2000
"""Most entries of one page (splitMetadataSize); a client that asks for more accepts fewer."""

_decode_version = msgspec.json.Decoder(DataVersion).decode


def page_of(names: list[str], first: int, maximum: int | None, seen: str | None, version: DataVersion) -> list[str]:
    """Return the entries that a request asks for: from `first` on if it has `seen` this version, else from the start.

    `maximum` None means all of them, for a client that does not ask for pages.
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
