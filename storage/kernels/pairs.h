/* Where two bytes stand side by side among 64 places. */
#ifndef ROCKETLENS_PAIRS_H
#define ROCKETLENS_PAIRS_H

#include <stdint.h>
#include <string.h>

#define PAIRS_WIDE 64

#if defined(__SSE2__)

#include <emmintrin.h>

/* Bit n says whether first[n] is one byte and second[n] is the other. */
static inline uint64_t find_pairs(const uint8_t *first, const uint8_t *second, uint8_t one, uint8_t other)
{
    const __m128i ones = _mm_set1_epi8((char)one), others = _mm_set1_epi8((char)other);
    __m128i pairs[4];
    uint64_t found = 0;
    for (int n = 0; n < 4; n++) {
        __m128i left = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(first + 16 * n)), ones);
        __m128i right = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(second + 16 * n)), others);
        pairs[n] = _mm_and_si128(left, right);
    }
    if (!_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(pairs[0], pairs[1]), _mm_or_si128(pairs[2], pairs[3]))))
        return 0;
    for (int n = 0; n < 4; n++)
        found |= (uint64_t)(uint32_t)_mm_movemask_epi8(pairs[n]) << 16 * n;
    return found;
}

#else

static inline uint64_t find_pairs(const uint8_t *first, const uint8_t *second, uint8_t one, uint8_t other)
{
    uint8_t pairs[PAIRS_WIDE], any = 0;
    uint64_t found = 0;
    for (int n = 0; n < PAIRS_WIDE; n++) {  /* which compilers turn into vector instructions */
        pairs[n] = (uint8_t)((first[n] == one) & (second[n] == other));
        any |= pairs[n];
    }
    for (int n = 0; any && n < PAIRS_WIDE; n++)
        found |= (uint64_t)pairs[n] << n;
    return found;
}

#endif

#endif
