/* Prints each way to make a CRC-32 that is possible here, and its checksums of the beginnings of what it reads. */
#include "checksum.h"

#include <stdio.h>

int main(void)
{
    static uint8_t data[1 << 16];
    size_t length = fread(data, 1, sizeof data, stdin);
    for (size_t way = 0; way < CRC32_WAYS; way++) {
        if (!crc32_ways[way].is_possible())
            continue;
        printf("%s", crc32_ways[way].name);
        for (size_t n = 0; n <= length; n++)
            printf(" %08x", crc32_ways[way].function(data, n));
        printf("\n");
    }
    return 0;
}
