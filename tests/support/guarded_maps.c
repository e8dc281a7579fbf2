/* Loaded before Python in a run for sanitizers: every map ends where its bytes do.
 *
 * A file that is mapped has room behind its end, up to the end of its last page, and then whatever is mapped there. So
 * each map gets a page behind it that nobody may touch, and AddressSanitizer is told that what lies behind the last
 * byte is no memory; the same where a program takes the rights of pages itself.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void __asan_poison_memory_region(void const volatile *start, size_t size) __attribute__((weak));
void __asan_unpoison_memory_region(void const volatile *start, size_t size) __attribute__((weak));

#define MAPS 4096
#define SMALL (1 << 20)
static uintptr_t stops[MAPS]; /* Where the guarded maps stop, at a page. */
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static size_t page;

static size_t whole_pages(size_t length)
{
    page = (size_t)sysconf(_SC_PAGESIZE);
    return (length + page - 1) / page * page;
}

/* Put one stop in the place of another; 0 is that of nobody. */
static int exchange(uintptr_t found, uintptr_t put)
{
    int number = 0;
    pthread_mutex_lock(&changing);
    while (number < MAPS && stops[number] != found)
        number++;
    if (number < MAPS)
        stops[number] = put;
    pthread_mutex_unlock(&changing);
    return number < MAPS;
}

void *mmap(void *address, size_t length, int rights, int flags, int descriptor, off_t offset)
{
    size_t room = whole_pages(length);
    char *start;
    if (address != NULL || flags & MAP_FIXED || !(rights & PROT_READ) || rights & PROT_EXEC || length == 0)
        return (void *)syscall(SYS_mmap, address, length, rights, flags, descriptor, offset);
    start = (char *)syscall(SYS_mmap, NULL, room + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED)
        return start;
    if ((void *)syscall(SYS_mmap, start, length, rights, flags | MAP_FIXED, descriptor, offset) == MAP_FAILED) {
        int why = errno;
        syscall(SYS_munmap, start, room + page);
        errno = why;
        return MAP_FAILED;
    }
    if (!exchange(0, (uintptr_t)start + room)) {
        syscall(SYS_munmap, start + room, page);
        return start;
    }
    if (__asan_poison_memory_region)
        __asan_poison_memory_region(start + length, room + page - length);
    return start;
}

void *mmap64(void *address, size_t length, int rights, int flags, int descriptor, off_t offset)
{
    return mmap(address, length, rights, flags, descriptor, offset);
}

int munmap(void *address, size_t length)
{
    size_t room = whole_pages(length), known;
    if (exchange((uintptr_t)address + room, 0))
        room += page;
    /* What was said of its end, or of a small one anywhere: to take back what is said of gigabytes takes long. */
    known = room > SMALL ? 2 * page : room;
    if (__asan_unpoison_memory_region)
        __asan_unpoison_memory_region((char *)address + room - known, known);
    return (int)syscall(SYS_munmap, address, room);
}

int mprotect(void *address, size_t length, int rights)
{
    int failed = (int)syscall(SYS_mprotect, address, length, rights);
    if (!failed && rights == PROT_NONE && __asan_poison_memory_region)
        __asan_poison_memory_region(address, length);
    return failed;
}
