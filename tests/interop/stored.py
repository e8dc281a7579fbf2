"""What official clients must find in the recorded stores: the producer's own list beside a plain walk over the log."""

import base64
import ipaddress
import json
import zlib
from dataclasses import dataclass
from pathlib import Path

import lz4.frame
import zstandard

from golden.record.records import Record, host_text, walk
from golden_store import G1, GOLDEN, unpack

IS_COMPRESSED = 1
COMPRESSION = 0x700
LZ4, ZSTD = 0x100, 0x200


@dataclass(frozen=True)
class Produced:
    label: str
    unique_key: str
    offset_message_id: str | None
    topic: str
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Stored:
    """A recorded store, unpacked, with its records by physical offset and what the broker answered the producer."""

    name: str
    root: Path
    commit_logs: tuple[str, ...]
    records: dict[int, Record]
    produced: tuple[Produced, ...]

    @property
    def hosts(self) -> list[str]:
        return sorted({host_text(record.store_host) for record in self.records.values()}, key=lambda host: ":" in host)

    @property
    def options(self) -> list[str]:
        if self.commit_logs == ("commitlog",):
            return []
        return ["--commit-log", ",".join(str(self.root / name) for name in self.commit_logs)]

    @property
    def with_offset_ids(self) -> list[tuple[str, Produced]]:
        found = [(one.offset_message_id, one) for one in self.produced if one.offset_message_id is not None]
        assert found
        return found

    def at(self, offset_message_id: str) -> Record:
        record = self.records[int(offset_message_id[-16:], 16)]
        assert record.offset_message_id == offset_message_id
        return record

    def with_unique_key(self, topic: str, unique_key: str) -> list[Record]:
        found = self.records.values()
        return [one for one in found if one.topic == topic and one.properties.get("UNIQ_KEY") == unique_key]

    def with_key(self, topic: str, key: str) -> list[Record]:
        found = self.records.values()
        return [one for one in found if one.topic == topic and key in one.properties.get("KEYS", "").split(" ")]


def stored(name: str, directory: Path) -> Stored:
    """Unpacks a recorded store, ``g1`` or one of g2, into ``directory`` and reads what belongs to it."""
    folder = G1 if name == "g1" else GOLDEN / "g2" / name
    root = unpack("store", directory, archives=folder)
    description = folder / "store.json"
    commit_logs = tuple(json.loads(description.read_text())["commit_logs"]) if description.exists() else ("commitlog",)
    records = {record.physical_offset: record for record in walk(root / name for name in commit_logs)}
    lines = (folder / "produced.tsv").read_text().splitlines()
    produced = [one for line in lines if line for one in _produced(line.split("\t"), records)]
    return Stored(name, root, commit_logs, records, tuple(produced))


def as_java_shows(record, *, is_old_client, by_unique_key_query=False):
    """What the harness must print for a record; ``by_unique_key_query``: found by its offset id in the fallback."""
    properties = {name: text for name, text in record.properties.items() if name != "__CRC32#"}
    if by_unique_key_query:
        properties.pop("UNIQ_KEY", None)
    # Clients from 5.x on clear the flag of what they have unpacked.
    sys_flag = record.sys_flag if is_old_client else record.sys_flag & ~IS_COMPRESSED
    return {
        "messageId": properties.get("UNIQ_KEY", record.offset_message_id),
        "offsetMessageId": record.offset_message_id,
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "storeTimestamp": record.store_timestamp,
        "bornTimestamp": record.born_timestamp,
        "storeHost": (host_text(record.store_host), record.store_host[1]),
        "bornHost": (host_text(record.born_host), record.born_host[1]),
        "keys": properties.get("KEYS"),
        "tags": properties.get("TAGS"),
        "flag": record.flag,
        "sysFlag": sys_flag,
        "reconsumeTimes": record.reconsume_times,
        "properties": properties,
        "body": unpacked_body(record),
    }


def comparable(message):
    hosts = {}
    for name in ("storeHost", "bornHost"):
        address, port = message[name].split(" ")
        hosts[name] = (str(ipaddress.ip_address(address)), int(port))
    properties = {name: text for name, text in message["properties"].items() if name != "__CRC32#"}
    return message | hosts | {"body": base64.b64decode(message["body"]), "properties": properties}


def unpacked_body(record: Record) -> bytes:
    if not record.sys_flag & IS_COMPRESSED:
        return record.body
    kind = record.sys_flag & COMPRESSION
    if kind == LZ4:
        return bytes(lz4.frame.decompress(record.body))
    if kind == ZSTD:
        return bytes(zstandard.ZstdDecompressor().decompressobj().decompress(record.body))
    return zlib.decompress(record.body)


def _produced(columns: list[str], records: dict[int, Record]) -> list[Produced]:
    """A batch has its ids comma-joined; g1 lists no status, topic or keys for it, and the log tells the keys of all."""
    label = columns[0]
    keys, ids = (columns[1], columns[2]) if len(columns) == 3 else (columns[2], columns[3])
    found = []
    for unique_key, offset_message_id in zip(keys.split(","), ids.split(","), strict=True):
        known = None if offset_message_id == "null" else records[int(offset_message_id[-16:], 16)]
        topic = columns[4] if len(columns) > 4 else known.topic if known else ""
        told = columns[7] if len(columns) > 7 else "null"
        if told == "null":
            told = known.properties.get("KEYS", "") if known else ""
        names = tuple(filter(None, told.split(" ")))
        found.append(Produced(label, unique_key, offset_message_id if known else None, topic, names))
    return found
