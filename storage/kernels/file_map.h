/* Maps of files that somebody may cut, or a disk may lose, while they are looked at.
 *
 * The processor's answer to a look at a page that is not there any more is SIGBUS, which ends the process. A handler
 * for the whole process knows the guarded maps: in one of those it puts zeros where the file was, from that page to the
 * end of the map, and marks the map as cut; who reads goes on over zeros and asks for the mark when it is done. No lock
 * and no jump, so that any thread may be in any code. A signal that is none of ours goes to whom it went before. In a
 * process that has last words, a fault in any other map of a file is the end, with these and an exit code.
 */
#ifndef ROCKETLENS_FILE_MAP_H
#define ROCKETLENS_FILE_MAP_H

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14; older ones say EINVAL. */
#endif

#define GUARDED_MAPS 32768

typedef struct {
    uintptr_t start;
    uintptr_t stop; /* 0: free. */
    int is_counted;
    int is_cut;
} GuardedMap;

static GuardedMap guarded_maps[GUARDED_MAPS];
static int guarded_behind; /* All that were ever guarded have lower numbers. */
static int guarded_free;   /* No lower number is free. */
static int64_t cut_count;  /* How often zeros were put in the place of a file, in maps that are counted. */
static struct sigaction sigbus_before;
static int sigbus_was_passed_on;
static char last_words[1024];
static size_t last_words_length; /* 0: a fault is the system's, as ever. */
static int last_code;

/* The map of an address, and where it stops. Another thread may put one map in the place of another meanwhile: the
 * start of this and the stop of that are no map, so the stop must be the same behind the start as before it. */
static GuardedMap *guarded_map_at(uintptr_t address, uintptr_t *stop)
{
    for (int n = 0; n < __atomic_load_n(&guarded_behind, __ATOMIC_ACQUIRE); n++) {
        GuardedMap *map = &guarded_maps[n];
        *stop = __atomic_load_n(&map->stop, __ATOMIC_ACQUIRE);
        if (address < *stop && address >= __atomic_load_n(&map->start, __ATOMIC_ACQUIRE)
            && *stop == __atomic_load_n(&map->stop, __ATOMIC_RELAXED))
            return map;
    }
    return NULL;
}

static int show_zeros(GuardedMap *map, uintptr_t address, uintptr_t stop)
{
    uintptr_t page = address & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    int flags = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    __atomic_store_n(&map->is_cut, 1, __ATOMIC_RELEASE);
    if (map->is_counted)
        __atomic_add_fetch(&cut_count, 1, __ATOMIC_RELEASE);
    return mmap((void *)page, stop - page, PROT_READ, flags, -1, 0) != MAP_FAILED;
}

static void leave_to_system(int number)
{
    struct sigaction plain;
    memset(&plain, 0, sizeof plain);
    plain.sa_handler = SIG_DFL;
    sigaction(number, &plain, NULL);
}

/* The handler that was set before ours gets the fault, and if it passes the fault back to us, the system: a fault
 * happens again as soon as we return. */
static void pass_fault_on(int number)
{
    if (last_words_length != 0) {
        ssize_t written = write(STDERR_FILENO, last_words, last_words_length);
        (void)written;
        _exit(last_code);
    }
    if (sigbus_was_passed_on)
        leave_to_system(number);
    else
        sigaction(number, &sigbus_before, NULL);
    sigbus_was_passed_on = 1;
}

static void on_sigbus(int number, siginfo_t *info, void *context);

/* A signal that a process sent does not happen again when we return: the handler that was set before ours is called,
 * and our own stays in place, so that maps stay guarded. If that handler sends the signal again while ours is set, it
 * passes the signal back to us, and the system gets it. */
static void pass_sent_on(int number, siginfo_t *info, void *context)
{
    struct sigaction now;
    sigset_t pending;
    if (!(sigbus_before.sa_flags & SA_SIGINFO) && sigbus_before.sa_handler == SIG_IGN)
        return;
    if (!(sigbus_before.sa_flags & SA_SIGINFO) && sigbus_before.sa_handler == SIG_DFL) {
        leave_to_system(number);
        raise(number);
        return;
    }
    if (sigbus_before.sa_flags & SA_SIGINFO)
        sigbus_before.sa_sigaction(number, info, context);
    else
        sigbus_before.sa_handler(number);
    if (sigpending(&pending) == 0 && sigismember(&pending, number) && sigaction(number, NULL, &now) == 0
        && now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_sigbus)
        leave_to_system(number);
}

static void on_sigbus(int number, siginfo_t *info, void *context)
{
    int errno_before = errno;
    uintptr_t address = (uintptr_t)info->si_addr, stop = 0;
    GuardedMap *map = info->si_code == BUS_ADRERR ? guarded_map_at(address, &stop) : NULL;
    if (info->si_code <= 0)
        pass_sent_on(number, info, context);
    else if (map == NULL || !show_zeros(map, address, stop))
        pass_fault_on(number);
    errno = errno_before;
}

/* Others may have set a handler since the last map was made. */
static int handle_sigbus(void)
{
    struct sigaction now, ours;
    if (sigaction(SIGBUS, NULL, &now) != 0)
        return errno;
    if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_sigbus)
        return 0;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = on_sigbus;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigemptyset(&ours.sa_mask);
    sigbus_before = now;
    sigbus_was_passed_on = 0;
    return sigaction(SIGBUS, &ours, NULL) == 0 ? 0 : errno;
}

/* From now on a fault in a map that is not guarded ends the process with words on stderr and a code; 0 or an errno. */
static int end_with_words(const char *words, size_t length, int code)
{
    if (length == 0 || length > sizeof last_words)
        return EINVAL;
    memcpy(last_words, words, length);
    last_code = code;
    last_words_length = length;
    return handle_sigbus();
}

/* Guard a map from here on; its place among the guarded ones, or −1 and errno. One thread at a time. Of a map that is
 * not counted who reads it asks for its own mark. */
static int guard_map(const void *start, size_t length, int is_counted)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if ((errno = handle_sigbus()) != 0)
        return -1;
    for (int n = guarded_free; n < GUARDED_MAPS; n++) {
        GuardedMap *map = &guarded_maps[n];
        if (map->stop == 0) {
            map->is_counted = is_counted;
            map->is_cut = 0;
            __atomic_store_n(&map->start, (uintptr_t)start, __ATOMIC_RELEASE);
            __atomic_store_n(&map->stop, (uintptr_t)start + (length + page - 1) / page * page, __ATOMIC_RELEASE);
            guarded_free = n + 1;
            if (n >= guarded_behind)
                __atomic_store_n(&guarded_behind, n + 1, __ATOMIC_RELEASE);
            return n;
        }
    }
    errno = EMFILE;
    return -1;
}

static void release_map(int number)
{
    __atomic_store_n(&guarded_maps[number].stop, 0, __ATOMIC_RELEASE);
    if (number < guarded_free)
        guarded_free = number;
}

static int64_t count_cut_maps(void) { return __atomic_load_n(&cut_count, __ATOMIC_ACQUIRE); }

static int map_is_cut(int number) { return __atomic_load_n(&guarded_maps[number].is_cut, __ATOMIC_ACQUIRE); }

/* Read the pages from the disk where they are in no memory, and enter them into the map; 0 or why that failed. */
static int populate_pages(const uint8_t *start, size_t length)
{
    while (madvise((void *)start, length, MADV_POPULATE_READ) != 0)
        if (errno != EINTR)
            return errno;
    return 0;
}

static void drop_pages(const uint8_t *start, size_t length) { madvise((void *)start, length, MADV_DONTNEED); }

#endif
