/* Asking the system whether pages of a file are in memory, without waiting for them. */

#include <stdint.h>
#include <sys/uio.h>
#include <unistd.h>

#define PROBE_BYTES 65536

#ifndef RWF_NOWAIT
#define RWF_NOWAIT 8
#endif

/* Older C libraries have no such function: then its address is NULL, and nothing can be asked. */
extern ssize_t preadv2(int, const struct iovec *, int, off_t, int) __attribute__((weak));

static inline int has_probe(void) { return preadv2 != NULL; }

/* How many of up to PROBE_BYTES bytes can be read at once; into memory that nobody looks at. */
static inline int64_t count_readable(int descriptor, int64_t position, int64_t length) {
    static char nobody_reads[PROBE_BYTES];
    struct iovec target = {nobody_reads, (size_t)length};
    return preadv2(descriptor, &target, 1, (off_t)position, RWF_NOWAIT);
}
