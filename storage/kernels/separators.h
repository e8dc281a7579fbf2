/* Where the separators of properties stand among 64 bytes. */
#ifndef ROCKETLENS_SEPARATORS_H
#define ROCKETLENS_SEPARATORS_H

#include <stdint.h>
#include <string.h>

#define SEPARATORS_WIDE 64

/* Bit n says whether byte n is 0x01, or 0x02. */
typedef struct {
    uint64_t names;
    uint64_t properties;
} Separators;

#if defined(__SSE2__)

#include <emmintrin.h>

static inline Separators find_separators(const uint8_t *at)
{
    const __m128i one = _mm_set1_epi8(1), two = _mm_set1_epi8(2);
    Separators found = {0, 0};
    for (int n = 0; n < SEPARATORS_WIDE; n += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(at + n));
        found.names |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, one)) << n;
        found.properties |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, two)) << n;
    }
    return found;
}

#else

#define SEPARATORS_ONES UINT64_C(0x0101010101010101)
#define SEPARATORS_SEVENS UINT64_C(0x7F7F7F7F7F7F7F7F)

/* Bit n says whether byte n of a word is zero. Nothing is carried from one byte to another; the product gathers the
 * marks, which are seven bits apart then, in the highest byte. */
static inline uint64_t separators_zeros(uint64_t word)
{
    uint64_t marks = ~(((word & SEPARATORS_SEVENS) + SEPARATORS_SEVENS) | word | SEPARATORS_SEVENS) >> 7;
    return marks * UINT64_C(0x0102040810204080) >> 56;
}

static inline Separators find_separators(const uint8_t *at)
{
    Separators found = {0, 0};
    for (int n = 0; n < SEPARATORS_WIDE; n += 8) {
        uint64_t word;
        memcpy(&word, at + n, sizeof word);
        found.names |= separators_zeros(word ^ SEPARATORS_ONES) << n;
        found.properties |= separators_zeros(word ^ 2 * SEPARATORS_ONES) << n;
    }
    return found;
}

#endif

#endif
