"""Kinds of damage to the commit log."""

from damaged_stores import Damaged, Unfit, kind
from oracles import BLANK_MAGIC, packed
from trial_stores import Message, put, write_sparse

HEADER = {
    "body_crc": (8, 4), "queue_id": (12, 4), "flag": (16, 4), "queue_offset": (20, 8), "physical_offset": (28, 8),
    "sys_flag": (36, 4), "born_timestamp": (40, 8),
}  # fmt: skip
"""Fields at fixed places of a record: position and size."""


def body_place(record: bytes) -> int:
    """Where the length of a record's body stands."""
    flags = record[39]
    return 76 + (16 if flags & 0x10 else 4) + (16 if flags & 0x20 else 4)


def flip(damaged: Damaged, message: Message, position: int, size: int, what: str) -> None:
    """Turn one bit of some bytes of a record."""
    bit = damaged.rng.randrange(8 * size)
    position += bit // 8
    damaged.overwrite(message.physical_offset + position, bytes([message.record[position] ^ 1 << bit % 8]))
    damaged.note(f"bit {bit % 8} of byte {position} ({what}) of the record at {message.physical_offset} is flipped")


@kind()
def log_page_zeroed(damaged: Damaged) -> None:
    """A page of zeros between records."""
    size = min(4096, damaged.good.segment_size // 8)
    start = damaged.message().physical_offset // size * size
    damaged.overwrite(start, bytes(size))
    damaged.note(f"{size} bytes from physical offset {start} on are zeros")


@kind()
def log_bytes_zeroed(damaged: Damaged) -> None:
    """Zeros from the beginning of a record, or from within its magic, to the middle of one."""
    start = damaged.message().physical_offset + damaged.rng.randrange(8)
    base = start // damaged.good.segment_size * damaged.good.segment_size
    size = min(damaged.rng.choice((8, 40, 300, 1500)), base + damaged.good.segment_size - start)
    damaged.overwrite(start, bytes(size))
    damaged.note(f"{size} bytes from physical offset {start} on are zeros")


@kind()
def log_hole(damaged: Damaged) -> None:
    """A lost extent: a real hole in a segment."""
    message = damaged.message()
    base = message.physical_offset // damaged.good.segment_size * damaged.good.segment_size
    path = damaged.root / "commitlog" / f"{base:020d}"
    content, size = path.read_bytes(), 4096
    start = (message.physical_offset - base) // size * size
    write_sparse(path, content[:start] + bytes(size) + content[start + size :])
    damaged.note(f"a hole of {size} bytes at physical offset {base + start}")


@kind()
def bit_flipped_in_body(damaged: Damaged) -> None:
    """One bit of a body."""
    message = next((each for each in (damaged.message() for _ in range(9)) if each.body), None)
    if message is None:
        raise Unfit
    flip(damaged, message, body_place(message.record) + 4, len(message.body), "body")


@kind()
def bit_flipped_in_properties(damaged: Damaged) -> None:
    """One bit of topic, properties or their lengths."""
    message = damaged.message()
    start = body_place(message.record) + 4 + len(message.body)
    flip(damaged, message, start, len(message.record) - start, "topic, properties")


@kind()
def bit_flipped_in_header(damaged: Damaged) -> None:
    """One bit of a field before the body."""
    name = damaged.rng.choice(list(HEADER))
    flip(damaged, damaged.message(), *HEADER[name], name)


@kind("small", "expired")
def bit_flipped_in_store_time(damaged: Damaged) -> None:
    """One bit of a store time: no check finds it, but reading from a time on may start at another place."""
    damaged.allowed.has_true_times = False
    message = damaged.message()
    start = 52 + (16 if message.record[39] & 0x10 else 4)
    flip(damaged, message, start, 8, "store time")


@kind()
def bit_flipped_in_magic(damaged: Damaged) -> None:
    """One bit of the magic."""
    flip(damaged, damaged.message(), 4, 4, "magic")


@kind()
def bit_flipped_in_size(damaged: Damaged) -> None:
    """One bit of the size, which leads to the next record."""
    flip(damaged, damaged.message(), 0, 4, "size")


@kind()
def absurd_size(damaged: Damaged) -> None:
    """A size that cannot be."""
    message, size = damaged.message(), damaged.rng.choice((0, 1, 90, -1, 2**31 - 1, damaged.good.segment_size))
    damaged.overwrite(message.physical_offset, packed(size, 4))
    damaged.note(f"the record at {message.physical_offset} says that it has {size} bytes")


@kind()
def false_blank(damaged: Damaged) -> None:
    """The magic that closes a segment in the place of a record's, with any size but the one that reaches its end."""
    message, segment = damaged.message(), damaged.good.segment_size
    rest = segment - message.physical_offset % segment
    size = damaged.rng.choice((0, 8, len(message.record), rest - 1, rest + 1, segment, 2**31 - 1, -1))
    data = BLANK_MAGIC.to_bytes(4, "big")
    keeps = damaged.rng.random() < 0.4
    damaged.overwrite(message.physical_offset + 4 * keeps, data if keeps else packed(size, 4) + data)
    damaged.note(f"a BLANK of {len(message.record) if keeps else size} bytes at {message.physical_offset}")


@kind()
def record_of_another_place(damaged: Damaged) -> None:
    """A record's bytes in the place of another one."""
    other = damaged.message()
    shorter = [each for each in damaged.good.messages if each is not other and len(each.record) <= len(other.record)]
    if not shorter:
        raise Unfit
    one = damaged.rng.choice(shorter)
    damaged.overwrite(other.physical_offset, one.record)
    damaged.note(f"at {other.physical_offset} stands the record of {one.physical_offset}")


@kind()
def segment_lost_in_the_middle(damaged: Damaged) -> None:
    """A segment that is gone."""
    if not damaged.middle_segments:
        raise Unfit
    path = damaged.rng.choice(damaged.middle_segments)
    path.unlink()
    damaged.note(f"segment {path.name} is gone")


@kind()
def segments_lost_in_front(damaged: Damaged) -> None:
    """The first segments are gone, as when they expire; queues and index are as before."""
    if len(damaged.segments) < 3:
        raise Unfit
    count = damaged.rng.choice((1, len(damaged.segments) // 2))
    for path in damaged.segments[:count]:
        path.unlink()
    damaged.note(f"the first {count} segments are gone")


@kind()
def segment_cut_in_the_middle(damaged: Damaged) -> None:
    """A segment of which the rest is gone."""
    if not damaged.middle_segments:
        raise Unfit
    path = damaged.rng.choice(damaged.middle_segments)
    size = damaged.rng.choice((0, damaged.rng.randrange(damaged.good.segment_size)))
    with path.open("r+b") as file:
        file.truncate(size)
    damaged.note(f"segment {path.name} has {size} bytes")


@kind()
def segment_zeroed_to_its_end(damaged: Damaged) -> None:
    """A segment of which the rest was never written."""
    if not damaged.middle_segments:
        raise Unfit
    path = damaged.rng.choice(damaged.middle_segments)
    start = damaged.rng.randrange(damaged.good.segment_size)
    put(path, start, bytes(damaged.good.segment_size - start))
    damaged.note(f"segment {path.name} holds zeros from byte {start} on")


@kind()
def segment_of_garbage(damaged: Damaged) -> None:
    """A segment of any bytes."""
    if not damaged.middle_segments:
        raise Unfit
    path = damaged.rng.choice(damaged.middle_segments)
    path.write_bytes(damaged.rng.randbytes(damaged.good.segment_size))
    damaged.note(f"segment {path.name} holds any bytes")


@kind()
def closing_blank_zeroed(damaged: Damaged) -> None:
    """Zeros where a segment is closed."""
    for path in damaged.segments[:-1]:
        messages = damaged.messages_in(path)
        if messages and messages[-1].end % damaged.good.segment_size:
            damaged.overwrite(messages[-1].end, bytes(8))
            damaged.note(f"no BLANK at {messages[-1].end}")
            return
    raise Unfit


@kind()
def last_segment_cut(damaged: Damaged) -> None:
    """The last segment ends in the middle of its records."""
    room = damaged.room_behind_the_end()
    path = damaged.segments[-1]
    size = damaged.rng.randrange(100, damaged.good.segment_size - room)
    with path.open("r+b") as file:
        file.truncate(size)
    damaged.note(f"the last segment, {path.name}, has {size} bytes")


@kind()
def torn_tail(damaged: Damaged) -> None:
    """The last record of which the second half was not written."""
    damaged.room_behind_the_end()
    last = damaged.messages_in(damaged.segments[-1])[-1]
    kept = damaged.rng.choice((4, 8, 30, len(last.record) // 2, len(last.record) - 1))
    damaged.overwrite(last.physical_offset + kept, bytes(len(last.record) - kept))
    damaged.note(f"of the last record {kept} bytes are there")


@kind()
def half_written_record(damaged: Damaged) -> None:
    """The first bytes of one record more than there are."""
    room, last = damaged.room_behind_the_end(), damaged.messages_in(damaged.segments[-1])[-1]
    data = bytearray(last.record)
    data[28:36] = packed(damaged.good.end, 8)
    kept = damaged.rng.choice((4, 8, 30, len(data) // 2))
    if kept > room:
        raise Unfit
    damaged.overwrite(damaged.good.end, bytes(data[:kept]))
    damaged.note(f"{kept} bytes of a record at the end, {damaged.good.end}")


@kind()
def half_written_blank(damaged: Damaged) -> None:
    """Eight bytes at the end that say BLANK, of a size that reaches nothing."""
    if damaged.room_behind_the_end() < 300:
        raise Unfit
    damaged.overwrite(damaged.good.end, packed(damaged.rng.choice((0, 8, 200)), 4) + BLANK_MAGIC.to_bytes(4, "big"))
    damaged.note(f"a BLANK of a wrong size at the end, {damaged.good.end}")


@kind()
def garbage_behind_the_end(damaged: Damaged) -> None:
    """Any bytes behind the last record."""
    size = min(damaged.room_behind_the_end(), 1000)
    damaged.overwrite(damaged.good.end, damaged.rng.randbytes(size))
    damaged.note(f"{size} bytes of garbage at the end, {damaged.good.end}")


@kind()
def segment_made_in_advance(damaged: Damaged) -> None:
    """The empty segment of a broker that died."""
    base = damaged.good.end // damaged.good.segment_size * damaged.good.segment_size + damaged.good.segment_size
    write_sparse(damaged.root / "commitlog" / f"{base:020d}", bytes(damaged.good.segment_size))
    (damaged.root / "abort").write_text("1")
    damaged.note(f"an empty segment {base} and abort")
