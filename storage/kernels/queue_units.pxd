"""Queues of a dispatch scan and their units: what a name alone says, and how a unit is written.

A unit as it is in a queue's file (store-format §5.1, §5.8):

PLAIN  physical offset i64, size i32, tags code i64
BATCH  the same, then store timestamp i64, base offset i64, batch size i16, −1 as i32, 0 as i32
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from protocol.kernels.memory cimport load_native_u64, store_i16, store_i32, store_i64
from storage.kernels.dispatching cimport BATCH_BYTES, PLAIN_BYTES, Queue, Unit
from storage.kernels.plain_units cimport write_plain_unit
from storage.kernels.records cimport Text, is_text
from storage.kernels.texts cimport mix_in


cdef enum:
    NOT_COMPACTED = -1


cdef inline uint64_t hash_name(const Text *name, int32_t queue_id, uint64_t multiplier) noexcept nogil:
    """A hash for the table alone; who does not know the multiplier, an odd number, cannot find names that share one.

    Eight bytes before the end of the name must be readable, as in a record.
    """
    cdef uint64_t mixed = mix_in(name.length, <uint32_t>queue_id, multiplier)
    cdef int64_t position = 0
    while position + 8 <= name.length:
        mixed = mix_in(mixed, load_native_u64(name.start + position), multiplier)
        position += 8
    if position < name.length:
        mixed = mix_in(
            mixed, load_native_u64(name.start + name.length - 8) >> ((position + 8 - name.length) << 3), multiplier
        )
    return mixed


cdef inline void note_traits(Queue *queue, const Text *topic) noexcept nogil:
    """Find out what holds for all messages of a topic that is not one of batches.

    Delayed messages are in SCHEDULE_TOPIC_XXXX; messages of a retry or system topic are in no light queue.
    """
    queue.is_schedule = is_text(topic, b"SCHEDULE_TOPIC_XXXX", 19)
    queue.may_have_light = not (
        queue.is_schedule
        or (topic.length >= 7 and memcmp(topic.start, b"%RETRY%", 7) == 0)
        or (topic.length >= 8 and memcmp(topic.start, b"rmq_sys_", 8) == 0)
    )


cdef inline int64_t write_unit(uint8_t *target, const Unit *unit, bint is_batch) noexcept nogil:
    """Write a unit as it is in its queue's file; its bytes."""
    write_plain_unit(target, unit.physical_offset, unit.size, unit.tags_code)
    if not is_batch:
        return PLAIN_BYTES
    store_i64(target + 20, unit.timestamp)
    store_i64(target + 28, unit.queue_offset)
    store_i16(target + 36, unit.batch_size)
    store_i32(target + 38, NOT_COMPACTED)
    store_i32(target + 42, 0)
    return BATCH_BYTES
