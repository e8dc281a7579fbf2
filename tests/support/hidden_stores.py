"""Two stores that differ in what a mask hides, and in nothing else: nobody must see which one it is."""

import gzip
import zlib
from pathlib import Path

from store_writer import StoreWriter

SECRETS = ("13812345678", "15987654321")
"""Of the first store and of the second one: as many characters each."""

RULES = {
    "a pattern": ("/1[3-9][0-9]{9}/",),
    "fields": ("body", "keys", "tags", "unique_key", "properties.to"),
    "all properties": ("body", "properties"),
    "paths and a property": ("$..phone", "keys", "tags", "unique_key", "properties.to"),
}
"""Rules of which each hides the secret wherever it stands."""


def hidden_stores(root: Path) -> list[StoreWriter]:
    """The two stores: messages whose body, keys, tag, unique key and properties have the secret, of any make."""
    return [_store(root / secret[:3], secret) for secret in SECRETS]


def _store(root: Path, secret: str) -> StoreWriter:
    writer = StoreWriter(root)
    writer.append("T", b'{"n":0}', tags="A", keys="order-0", unique_key="U0", properties={"region": "hz"})
    text = f'{{"phone":"{secret}","n":1}}'
    for body, flags in (
        (text.encode(), 0),
        (gzip.compress(text.encode(), mtime=0)[:-9], 0),
        (zlib.compress(text.encode(), 0), 1),
        # Not what the flag says, but read all the same: stored as it is, twice, without the flag.
        (text.encode(), 0x301),
        (zlib.compress(zlib.compress(text.encode(), 0), 0), 1),
        (zlib.compress(text.encode(), 0), 0),
        (f"\xff {secret}".encode("latin-1"), 0),
    ):
        writer.append(
            "T",
            body,
            sys_flag=flags,
            tags=f"T{secret}",
            keys=f"order-1 {secret}",
            unique_key=f"U-{secret}",
            properties={"to": secret, "region": "hz", "DLQ_ORIGIN_MESSAGE_ID": f"U-{secret}"},
        )
    batch = [(text.encode(), {"KEYS": secret, "TAGS": secret, "UNIQ_KEY": f"U-{secret}", "to": secret})]
    writer.append_inner_batch("B", batch)
    writer.close()
    return writer
