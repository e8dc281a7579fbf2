"""Index files caught while a broker fills them, and an oracle for what may be made of them."""

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


def put_in_steps(image, text, physical_offset, timestamp):
    content = bytearray(image.to_bytes())
    image.put(text, physical_offset, timestamp)
    for position, stored in stores_of_entry(image, len(image.entries)):
        content[position : position + len(stored)] = stored
        yield bytes(content)


def stores_of_entry(image: oracles.IndexImage, number: int) -> list[tuple[int, bytes]]:
    """The stores by which a broker puts an entry that an image has, in their order: a position, and the bytes."""
    hash_value, physical_offset, seconds, previous = image.entries[number - 1]
    entry = 40 + 4 * image.slot_count + 20 * number
    slot = 40 + 4 * (hash_value % image.slot_count)
    used_slots = sum(not before for _, _, _, before in image.entries[:number])
    fields = [
        *((entry, hash_value, 4), (entry + 4, physical_offset, 8), (entry + 12, seconds, 4), (entry + 16, previous, 4)),
        (slot, number, 4),
        *((16, image.begin_physical_offset, 8), (0, image.begin_timestamp, 8)),
        *((32, used_slots, 4), (36, number + 1, 4), (24, physical_offset, 8), (8, image.end_timestamp, 8)),
    ]
    return [(position, oracles.packed(value, length)) for position, value, length in fields]
