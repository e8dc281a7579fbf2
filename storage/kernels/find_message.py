"""Find a message of one queue in the log, where the queue's own unit does not lead to it."""

from numba import njit

from storage.kernels.memory import load_i32, load_i64
from storage.kernels.pull import is_of_queue
from storage.kernels.record import (
    MAGIC,
    MAGIC_BLANK,
    SYS_FLAG,
    TRANSACTION_MASK,
    check_checksums,
    check_shape,
)
from storage.kernels.scan import find_record

QUEUE_OFFSET = 20
COMMIT = 0x8
ANY_OFFSET = -1
NOT_FOUND = -1


@njit("int64(int64, int64, int64, int64, int64, int64, int64, int64, int64)", cache=True, nogil=True)
def find_message(
    address: int,
    position: int,
    stop: int,
    readable: int,
    base: int,
    topic: int,
    topic_bytes: int,
    queue_id: int,
    queue_offset: int,
) -> int:
    """Position in [position, stop) of the first intact record that says a queue and a queue offset, NOT_FOUND for none.

    ``address`` maps the segment's first byte, ``readable`` bounds reading, ``base`` is its physical offset; ``topic``
    is where the queue's topic lies. With ANY_OFFSET the first record of the queue is found.
    """
    while position < stop and position + 8 <= readable:
        record = address + position
        if load_i32(record + MAGIC) == MAGIC_BLANK:
            return NOT_FOUND
        size = check_shape(record, readable - position, base + position)
        if size < 0:
            position = find_record(address, position + 1, readable, base)
            continue
        is_wanted = queue_offset == ANY_OFFSET or load_i64(record + QUEUE_OFFSET) == queue_offset
        is_wanted &= load_i32(record + SYS_FLAG) & TRANSACTION_MASK in (0, COMMIT)
        is_wanted = is_wanted and is_of_queue(record, queue_id, topic, topic_bytes)
        if is_wanted and check_checksums(record, size) > 0:
            return position
        position += size
    return NOT_FOUND
