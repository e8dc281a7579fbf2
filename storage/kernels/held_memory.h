/* Where kernels read and write what they were handed: right there.
 *
 * A build for sanitizers (build_backend/judges.py) defines ROCKETLENS_SANITIZED. There memory whose last byte is not
 * followed by a poisoned one is copied into a block of exactly its size, so that AddressSanitizer sees one byte too
 * many: it knows nothing of the room that a bytes object, an array or a map has left behind its end.
 */
#ifndef ROCKETLENS_HELD_MEMORY_H
#define ROCKETLENS_HELD_MEMORY_H

#include <stdint.h>

#ifndef ROCKETLENS_SANITIZED

static inline void *hold_memory(void *memory, int64_t size)
{
    (void)size;
    return memory;
}

static inline void release_memory(void *held, void *memory, int64_t size)
{
    (void)held, (void)memory, (void)size;
}

static inline void release_written(void *held, void *memory, int64_t size)
{
    (void)held, (void)memory, (void)size;
}

static inline const uint8_t *hold_bytes(const uint8_t *start, int64_t length)
{
    (void)length;
    return start;
}

#else

#include <sanitizer/asan_interface.h>
#include <stdlib.h>
#include <string.h>

static void *hold_memory(void *memory, int64_t size)
{
    char *copy;
    if (memory != NULL && __asan_address_is_poisoned((char *)memory + size))
        return memory;
    copy = malloc(size > 0 ? size : 1);
    if (copy == NULL)
        abort();
    if (size > 0)
        memcpy(copy, memory, size);
    else
        __asan_poison_memory_region(copy, 1);
    return copy;
}

static void release_memory(void *held, void *memory, int64_t size)
{
    (void)size;
    if (held != memory)
        free(held);
}

/* What a kernel wrote into a copy goes where it belongs. */
static void release_written(void *held, void *memory, int64_t size)
{
    if (held != NULL && held != memory && size > 0)
        memcpy(memory, held, size);
    release_memory(held, memory, size);
}

/* A bytes object ends with a zero that is none of its bytes; a block of memory ends there too. */
static const uint8_t *hold_bytes(const uint8_t *start, int64_t length)
{
    if (start != NULL)
        __asan_poison_memory_region(start + length, 1);
    return start;
}

#endif

#endif
