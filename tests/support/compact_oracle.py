"""What a compacted index must be, and what a broker answers from any index, by loops and dictionaries: none of ours."""

import zlib
from dataclasses import dataclass

from oracles import END_OF_TIME, IndexImage, index_hash, index_keys, packed, signed, split_keys


@dataclass(frozen=True, order=True)
class Kept:
    store_timestamp: int
    physical_offset: int
    key_hash: int


def read_entries(data: bytes, slot_count: int) -> list[tuple[int, int]]:
    first, count = 40 + 4 * slot_count, max(signed(data, 36, 4), 1)
    places = range(first + 20, first + 20 * count, 20)
    return [(signed(data, place, 4), signed(data, place + 4, 8)) for place in places]


def keep_entries(entries, records, topics=(), drop_tags=False):
    """What compaction keeps of some entries: each once, if its record is there and nothing of it was asked to go."""
    known = {record.physical_offset: record for record in records}
    kept = set()
    for key_hash, physical_offset in entries:
        record = known.get(physical_offset)
        if record is None or record.topic in topics or (drop_tags and key_hash in tag_hashes(record)):
            continue
        kept.add(Kept(record.store_timestamp, physical_offset, key_hash))
    return sorted(kept)


def tag_hashes(record):
    """The hash of a record's tag entry, unless one of its keys has it as well."""
    properties, topic = record.properties, record.topic
    keys = [properties[name] for name in ("UNIQ_KEY",) if name in properties] + split_keys(properties.get("KEYS", ""))
    tag = {index_hash(f"{topic}#T#{properties['TAGS']}")} if properties.get("TAGS") else set()
    return tag - {index_hash(f"{topic}#{key}") for key in keys}


def log_entries(records, profile="5.5"):
    return [(index_hash(text), record.physical_offset) for record in records for text in index_keys(record, profile)]


def build_compacted(kept, slot_count, entry_count, end_physical_offset, end_timestamp=0):
    """The files of a compacted index; one without entries where nothing is kept, seeded with the given end."""
    room = entry_count - 1
    files = [kept[start : start + room] for start in range(0, len(kept), room)] or [[]]
    images = [_build_file(entries, slot_count, entry_count) for entries in files]
    files = [image.to_bytes() for image in images]
    last = images[-1]
    ends = (last.begin_timestamp, last.end_timestamp, last.begin_physical_offset, end_physical_offset)
    if not kept:
        ends = (end_timestamp, end_timestamp, max(end_physical_offset, 0), max(end_physical_offset, 0))
    return [*files[:-1], b"".join(packed(number, 8) for number in ends) + files[-1][32:]]


def _build_file(entries, slot_count, entry_count):
    image = IndexImage(slot_count, entry_count)
    stamps = [entry.store_timestamp for entry in entries]
    begin = min((stamp for stamp in stamps if stamp > 0), default=max(stamps, default=0))
    offsets = [entry.physical_offset for entry in entries]
    for entry in sorted(entries, key=lambda entry: entry.key_hash % slot_count):  # stable
        slot = entry.key_hash % slot_count
        previous = image.slots.get(slot, 0)
        image.slots[slot] = image.index_count
        seconds = min(max(entry.store_timestamp - begin, 0) // 1000, 2**31 - 1) if begin > 0 else 0
        image.entries.append((entry.key_hash, entry.physical_offset, seconds, previous))
    image.hash_slot_count = len(image.slots)
    if entries:
        image.begin_timestamp, image.end_timestamp = begin, max(stamps)
        image.begin_physical_offset, image.end_physical_offset = min(offsets), max(offsets)
    return image


@dataclass(frozen=True)
class Mark:
    """The content of entry 0: how many entries lie slot by slot, whether none is missing, and none of tags is."""

    entries: int
    complete: bool
    tags: bool


def take_mark(data: bytes, slot_count: int) -> tuple[bytes, Mark | None]:
    """The bytes of a file as if it had no mark, and the mark, whose checksum must be right; None for zeros."""
    first = 40 + 4 * slot_count
    mark, rest = data[first : first + 20], data[:first] + bytes(20) + data[first + 20 :]
    if not any(mark):
        return data, None
    entries, flags, checksum = signed(mark, 4, 4), signed(mark, 8, 4), int.from_bytes(mark[16:])
    assert (mark[:4], mark[12:16], flags | 3) == (b"\xd2LC1", bytes(4), 3)
    assert checksum == zlib.crc32(mark[:16] + data[first + 20 : first + 20 + 20 * entries])
    return rest, Mark(entries, bool(flags & 1), bool(flags & 2))


def lacks_keys(data, slot_count, records, profile):
    """Offsets of records inside the span of a file that have a key without an entry in it."""
    entries = set(read_entries(data, slot_count))
    offsets = [offset for _, offset in entries]
    inside = [record for record in records if min(offsets) < record.physical_offset < max(offsets)]
    return [record.physical_offset for record in inside if not set(log_entries([record], profile)).issubset(entries)]


def put_behind(data, slot_count, records, profile="5.5"):
    """The file after a broker has put the entries of further records into it, for which it has room."""
    first = 40 + 4 * slot_count
    image = IndexImage(slot_count, (len(data) - first) // 20, *(signed(data, place, 8) for place in range(0, 32, 8)))
    image.hash_slot_count = signed(data, 32, 4)
    image.slots = {slot: signed(data, 40 + 4 * slot, 4) for slot in range(slot_count)}
    image.entries = [
        (signed(data, at, 4), signed(data, at + 4, 8), signed(data, at + 12, 4), signed(data, at + 16, 4))
        for at in range(first + 20, first + 20 * signed(data, 36, 4), 20)
    ]
    for record in records:
        for text in index_keys(record, profile):
            image.put(text, record.physical_offset, record.store_timestamp)
    after = image.to_bytes()
    return after[:first] + data[first : first + 20] + after[first + 20 :]


# --- what a broker answers (store-format §4.1, §4.2) ----------------------------------------------------------------


def broker_offsets(index_files, slot_count, key_hash, *, maximum=2**31, begin=0, end=END_OF_TIME):
    """`queryOffset`: physical offsets of the entries that a broker takes for answers, in the order it finds them."""
    found: list[int] = []
    for data in reversed(index_files):
        first, last = signed(data, 0, 8), signed(data, 8, 8)
        if (begin < first and end > last) or first <= begin <= last or first <= end <= last:
            _walk(data, slot_count, key_hash, maximum, begin, end, found)
        if first < begin or len(found) >= maximum:
            break
    return found


def _walk(data: bytes, slot_count: int, key_hash: int, maximum: int, begin: int, end: int, found: list[int]) -> None:
    first, count = signed(data, 0, 8), signed(data, 36, 4)
    number = signed(data, 40 + 4 * (key_hash % slot_count), 4)
    if number <= 0 or number > count or count <= 1:
        return
    while len(found) < maximum:
        entry = 40 + 4 * slot_count + 20 * number
        seconds, previous = signed(data, entry + 12, 4), signed(data, entry + 16, 4)
        if seconds < 0:
            return
        stamp = first + 1000 * seconds
        if signed(data, entry, 4) == key_hash and begin <= stamp <= end:
            found.append(signed(data, entry + 4, 8))
        if previous <= 0 or previous > count or previous == number or stamp < begin:
            return
        number = previous
