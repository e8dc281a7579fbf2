"""What a conversion of a store of DLedger's must make of its log and its queues, in plain Python."""

import zlib
from typing import NamedTuple

from oracles import packed, scan_segment, signed
from store_files import BLANK_MAGIC

CRC_PROPERTY = 20


class PlainLog(NamedTuple):
    """Segments by name; for each record its new physical offset by the old one; and where the log ends."""

    segments: dict[str, bytes]
    moves: dict[int, int]
    end: int


def plain_log(folders, segment_size):
    """The log of these folders as a plain one: what of it is intact up to the first damage of each segment.

    A segment behind the last one with a record is not made, and all in front of the last one are closed.
    """
    files = sorted((int(path.name), path.read_bytes()) for folder in folders for path in folder.iterdir())
    while files and not any(files[-1][1]):
        files.pop()
    moves: dict[int, int] = {}
    bodies: dict[int, list[bytes]] = {}
    for base, data in files:
        out, end = bodies.setdefault(base, []), base
        for record in scan_segment(data, base):
            place = record.physical_offset
            moves[place] = end
            out.append(data[place - base : place - base + record.total_size])
            end += record.total_size
    minimum, last = files[0][0], files[-1][0]
    segments = {}
    for base, records in bodies.items():
        out, end = bytearray(), base
        for record in records:
            out += moved_record(record, base + len(out), moves, minimum)
        end = base + len(out)
        if base != last:
            out += packed(segment_size - len(out), 4) + BLANK_MAGIC.to_bytes(4, "big")
        segments[f"{base:020d}"] = bytes(out).ljust(segment_size, b"\0")
    return PlainLog(segments, moves, end)


def moved_record(record, place, moves, minimum):
    """A record with the fields changed that name places of the log, and the checksum of all with them."""
    flags = signed(record, 36, 4)
    half_at = 48 + (20 if flags & 0x10 else 8) + 8 + (20 if flags & 0x20 else 8) + 4
    half = signed(record, half_at, 8)
    if half >= minimum and half > 0:
        half = moves.get(half, -1)
    changed = record[:28] + packed(place, 8) + record[36:half_at] + packed(half, 8) + record[half_at + 8 :]
    if record[-CRC_PROPERTY:].startswith(b"__CRC32#\x01"):
        whole = changed[:-CRC_PROPERTY]
        digits = str(zlib.crc32(whole) & 0x7FFFFFFF).zfill(10)[::-1]
        changed = whole + b"__CRC32#\x01" + digits.encode() + b"\x02"
    return changed


def moved_units(data, moves):
    out = bytearray(data)
    for position in range(0, len(data), 20):
        offset, size = signed(data, position, 8), signed(data, position + 8, 4)
        if size and size != 0x7FFFFFFF:
            out[position : position + 8] = packed(moves[offset], 8)
    return bytes(out)
