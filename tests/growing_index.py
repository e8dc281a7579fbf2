"""Index files caught while a broker fills them, and an oracle for what may be made of them.

A broker puts an entry in steps: the entry's fields, its slot, then the header's fields one by one (store-format §3.4).
"""

from collections.abc import Iterator

import oracles


def first_bad_entry(index_file: bytes, slot_count: int, entry_count: int) -> int:
    """As `oracles.first_bad_entry`, of the first entries of a file that may hold more."""
    content = bytearray(index_file)
    for slot in range(slot_count):
        newest = newest_of_first(index_file, slot_count, entry_count, slot)
        content[40 + 4 * slot : 44 + 4 * slot] = oracles.packed(newest, 4)
    return oracles.first_bad_entry(bytes(content), slot_count, entry_count)


def newest_of_first(index_file: bytes, slot_count: int, entry_count: int, slot: int) -> int:
    """The newest of the first entries in a slot, by way of those put later; −1 where that way is none."""
    first = 40 + 4 * slot_count
    last_offset = oracles.signed(index_file, first + 20 * entry_count + 4, 8)
    number = oracles.signed(index_file, 40 + 4 * slot, 4)
    while number > entry_count:
        entry = index_file[first + 20 * number :][:20]
        if len(entry) < 20 or oracles.signed(entry, 4, 8) < last_offset:
            return -1
        hash_value, previous = oracles.signed(entry, 0, 4), oracles.signed(entry, 16, 4)
        if hash_value < 0 or hash_value % slot_count != slot or previous >= number:
            return -1
        number = previous
    return max(number, -1)


def put_in_steps(image: oracles.IndexImage, text: str, physical_offset: int, timestamp: int) -> Iterator[bytes]:
    """Put an entry, and yield the file's bytes after each store of the broker's."""
    content = bytearray(image.to_bytes())
    image.put(text, physical_offset, timestamp)
    target = image.to_bytes()
    entry = 40 + 4 * image.slot_count + 20 * len(image.entries)
    slot = 40 + 4 * (image.entries[-1][0] % image.slot_count)
    steps = [(entry, 4), (entry + 4, 8), (entry + 12, 4), (entry + 16, 4), (slot, 4)]
    steps += [(16, 8), (0, 8), (32, 4), (36, 4), (24, 8), (8, 8)]
    for position, length in steps:
        content[position : position + length] = target[position : position + length]
        yield bytes(content)
