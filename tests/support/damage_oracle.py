"""What a damaged store still has to answer: by loops over bytes, from the reference documents alone."""

from dataclasses import dataclass

from oracles import is_closing_blank, property_crc_holds, read_record

TOLERATED_MS = 1000


@dataclass(frozen=True)
class Disk:
    segments: dict[int, bytes]

    @classmethod
    def of(cls, directories):
        """Read all segments; of two of one name the longer."""
        found: dict[int, bytes] = {}
        for directory in directories:
            for path in sorted(directory.iterdir()):
                if len(path.name) == 20 and path.name.isdecimal():
                    content = path.read_bytes()
                    if len(content) > len(found.get(int(path.name), b"")):
                        found[int(path.name)] = content
        return cls(found)

    def bytes_at(self, physical_offset: int, size: int) -> bytes:
        base = max((base for base in self.segments if base <= physical_offset), default=-1)
        return b"" if base < 0 else self.segments[base][physical_offset - base : physical_offset - base + size]

    def has(self, written):
        return self.bytes_at(written.physical_offset, len(written.record)) == written.record


def intact(data, position, base=0):
    """The record at a position whose place, lengths and checksums all hold."""
    record = read_record(data, position, base + position)
    if record is None or not property_crc_holds(data[position : position + record.total_size]):
        return None
    return record


def valid_end(data, base=0, left_over=(), length=0):
    """Where the valid data of a last segment end, and the damage before: positions, and [start, stop) in the log.

    `length` is that of the whole segment, where its file was cut.
    """
    length = length or len(data)
    position, newest, damage = 0, 0, []
    while True:
        record = intact(data, position, base)
        if record is not None:
            position, newest = position + record.total_size, record.store_timestamp
            continue
        if is_closing_blank(data, position, length):
            return position, damage
        following = _continuation(data, position, base, newest, set(left_over), length)
        if following is None:
            return position, damage
        damage.append((base + position, base + following))
        position = following


def _continuation(data: bytes, position: int, base: int, newest: int, left_over: set[int], length: int) -> int | None:
    shape = read_record(data, position, base + position, check_crc=False)
    if shape is not None and is_closing_blank(data, position + shape.total_size, length):
        return position + shape.total_size
    starts = [position + shape.total_size] if shape is not None else []
    starts += [at for at in range(position + 1, len(data) - 90) if intact(data, at, base)]
    for at in starts:
        record = intact(data, at, base)
        if record and record.store_timestamp >= newest - TOLERATED_MS and base + at not in left_over:
            return at
    return None
