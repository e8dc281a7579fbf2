/* The floor under a pull: what a server costs that gathers the same records from the same files, and nothing else.
 *
 *     floor PORT STORE TOPIC CHECKED
 *
 * One thread around epoll answers each PULL_MESSAGE with the records of 32 units from its queue offset on, all answers of
 * a read in one write, as RocketLens does. It believes its requests, the units and the records; with CHECKED 1 it looks
 * at what RocketLens looks at of each record before it is sent: sizes, offsets, queue, topic and the body's checksum.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checksum.h"

#define MESSAGES 32
#define UNIT 20
#define PREFIX 8
#define CONNECTIONS 16384
#define READ_BYTES (256 << 10)
#define ANSWER_BYTES (512 << 10)

typedef struct {
    const uint8_t *data;
    size_t size;
} file;

typedef struct {
    size_t kept;
    uint8_t bytes[READ_BYTES];
} reading;

static file *segments, *queues;
static const char *topic;
static size_t topic_length;
static int is_checked;
static uint8_t *answers;
static size_t room;

static _Noreturn void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int32_t i32_at(const uint8_t *at)
{
    int32_t value;
    memcpy(&value, at, sizeof value);
    return (int32_t)be32toh((uint32_t)value);
}

static int64_t i64_at(const uint8_t *at)
{
    int64_t value;
    memcpy(&value, at, sizeof value);
    return (int64_t)be64toh((uint64_t)value);
}

static void put_i32(uint8_t *at, uint32_t value)
{
    value = htobe32(value);
    memcpy(at, &value, sizeof value);
}

/* The files of a directory, in the order of their names, mapped. */
static file *map_files(const char *directory)
{
    struct dirent **names;
    int count = scandir(directory, &names, NULL, alphasort), used = 0;
    if (count < 0)
        fail(directory);
    file *files = calloc((size_t)count, sizeof *files);
    for (int n = 0; n < count; n++) {
        char path[4096];
        struct stat status;
        snprintf(path, sizeof path, "%s/%s", directory, names[n]->d_name);
        int descriptor = open(path, O_RDONLY);
        if (descriptor < 0 || fstat(descriptor, &status) || !S_ISREG(status.st_mode))
            continue;
        files[used].size = (size_t)status.st_size;
        files[used].data = mmap(NULL, files[used].size, PROT_READ, MAP_SHARED, descriptor, 0);
        if (files[used++].data == MAP_FAILED)
            fail(path);
    }
    return files;
}

/* The number behind a text in a header. */
static long number_behind(const char *header, const char *end, const char *text)
{
    const char *found = memmem(header, (size_t)(end - header), text, strlen(text));
    return found ? strtol(found + strlen(text), NULL, 10) : 0;
}

static int is_sound(const uint8_t *record, int64_t size, int64_t physical_offset, long queue, long queue_offset)
{
    const int64_t body = 84 + 4;
    if (i32_at(record) != size || i32_at(record + 4) != (int32_t)0xDAA320A7 || i64_at(record + 28) != physical_offset)
        return 0;
    if (i32_at(record + 12) != queue || i64_at(record + 20) != queue_offset || i32_at(record + 36) != 0)
        return 0;
    int64_t length = i32_at(record + body - 4), at = body + length;
    if (length < 0 || at >= size || at + 1 + record[at] + 2 > size)
        return 0;
    if (record[at] != topic_length || memcmp(record + at + 1, topic, topic_length))
        return 0;
    at += 1 + record[at];
    if (at + 2 + (record[at] << 8 | record[at + 1]) != size || !memcmp(record + size - 20, "__CRC32#", 8))
        return 0;
    return (int32_t)(crc32_of(record + body, (size_t)length) & 0x7FFFFFFF) == i32_at(record + 8);
}

/* Write the answer to a request; where it ends. */
static uint8_t *answer(const char *header, const char *end, uint8_t *at)
{
    long queue = number_behind(header, end, "\"queueId\":\""), offset = number_behind(header, end, "\"queueOffset\":\"");
    long opaque = number_behind(header, end, "\"opaque\":");
    const uint8_t *unit = queues[queue].data + UNIT * offset, *records[MESSAGES];
    int32_t sizes[MESSAGES];
    for (int n = 0; n < MESSAGES; n++) {
        int64_t physical_offset = i64_at(unit + UNIT * n);
        size_t segment = (size_t)physical_offset / segments[0].size;
        records[n] = segments[segment].data + (size_t)physical_offset % segments[0].size;
        sizes[n] = i32_at(unit + UNIT * n + 8);
        __builtin_prefetch(records[n]);
    }
    int head = sprintf((char *)at + PREFIX,
        "{\"code\":0,\"extFields\":{\"maxOffset\":\"125000\",\"minOffset\":\"0\",\"nextBeginOffset\":\"%ld\","
        "\"suggestWhichBrokerId\":\"0\"},\"flag\":1,\"language\":\"PYTHON\",\"opaque\":%ld,\"remark\":\"FOUND\","
        "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":477}", offset + MESSAGES, opaque);
    uint8_t *body = at + PREFIX + head, *written = body;
    for (int n = 0; n < MESSAGES; n++) {
        for (int line = 64; n + 2 < MESSAGES && line < sizes[n + 2]; line += 64)
            __builtin_prefetch(records[n + 2] + line);
        if (is_checked && !is_sound(records[n], sizes[n], i64_at(unit + UNIT * n), queue, offset + n)) {
            fprintf(stderr, "queue %ld, queue offset %ld: no message of this topic\n", queue, offset + n);
            exit(1);
        }
        memcpy(written, records[n], (size_t)sizes[n]);
        written += sizes[n];
    }
    put_i32(at, (uint32_t)(written - at - 4));
    put_i32(at + 4, (uint32_t)head);
    return written;
}

/* Answer the whole frames that were read, in one write; False at the end of the stream. */
static int serve(int connection, reading *read)
{
    ssize_t received = recv(connection, read->bytes + read->kept, READ_BYTES - read->kept, 0);
    if (received <= 0)
        return 0;
    uint8_t *at = read->bytes, *end = at + read->kept + received;
    size_t written = 0;
    while (end - at >= PREFIX && end - at >= 4 + i32_at(at)) {
        if (room - written < ANSWER_BYTES && !(answers = realloc(answers, room = 2 * room + ANSWER_BYTES)))
            fail("answers");
        const char *header = (const char *)at + PREFIX;
        written = (size_t)(answer(header, header + (i32_at(at + 4) & 0xFFFFFF), answers + written) - answers);
        at += 4 + i32_at(at);
    }
    read->kept = (size_t)(end - at);
    memmove(read->bytes, at, read->kept);
    for (size_t sent = 0; sent < written;) {
        ssize_t taken = send(connection, answers + sent, written - sent, MSG_NOSIGNAL);
        if (taken < 0)
            return 0;
        sent += (size_t)taken;
    }
    return 1;
}

int main(int count, char **arguments)
{
    static reading *connections[CONNECTIONS];
    char path[4096];
    if (count != 5)
        return fprintf(stderr, "floor PORT STORE TOPIC CHECKED\n"), 2;
    topic = arguments[3];
    topic_length = strlen(topic);
    is_checked = atoi(arguments[4]);
    snprintf(path, sizeof path, "%s/commitlog", arguments[2]);
    segments = map_files(path);
    queues = calloc(64, sizeof *queues);
    for (int queue = 0; queue < 64; queue++) {
        snprintf(path, sizeof path, "%s/consumequeue/%s/%d", arguments[2], topic, queue);
        if (access(path, F_OK) == 0)
            queues[queue] = map_files(path)[0];
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(arguments[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM, 0), poll = epoll_create1(0), yes = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1024))
        fail("listen");
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, ready[256];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int found = epoll_wait(poll, ready, 256, -1);
        for (int n = 0; n < found; n++) {
            int connection = ready[n].data.fd;
            if (connection == listener) {
                connection = accept(listener, NULL, NULL);
                if (connection < 0 || connection >= CONNECTIONS || !(connections[connection] = calloc(1, sizeof(reading))))
                    fail("accept");
                setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
                event.data.fd = connection;
                epoll_ctl(poll, EPOLL_CTL_ADD, connection, &event);
            } else if (!serve(connection, connections[connection])) {
                close(connection);
                free(connections[connection]);
            }
        }
    }
}
