/* CRC-32 (IEEE, the one of zlib).
 *
 * Several ways, the first possible of which is chosen when the module is loaded, by what the processor and the system say
 * of themselves (never by __builtin_cpu_supports, which answers 0 in what zig compiles):
 *
 * folding-512   x86-64 with VPCLMULQDQ and AVX-512F. As folding, four lanes in each register, 2048 bits at a time.
 * folding-256   x86-64 with VPCLMULQDQ and AVX2. Two lanes in each register, 1024 bits at a time.
 * folding       x86-64 with PCLMULQDQ and SSE4.1. Bytes are a polynomial over two elements, and so is a CRC: its
 *               remainder by POLYNOMIAL. What stands n bits before the end counts as times x^n, so 128 bits may be
 *               moved n bits towards the end by multiplying their halves by what remains of x^(n+32) and x^(n-32): the
 *               product has 128 bits again. Four such lanes go 512 bits at a time, then one goes on with what is left,
 *               and in the end over fewer bytes than it has. The method is V. Gopal's (Fast CRC Computation for Generic
 *               Polynomials Using PCLMULQDQ, Intel, 2009).
 * instructions  arm64 with the CRC32 extension.
 * tables        slicing by 16, anywhere.
 */
#ifndef ROCKETLENS_CHECKSUM_H
#define ROCKETLENS_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#define CRC32_INITIAL 0xFFFFFFFFu
#define CRC32_REFLECTED 0xEDB88320u
#define CRC32_SLICES 16

typedef uint32_t (*crc32_function)(const uint8_t *data, size_t length);

/* Row k advances a byte that has k more bytes behind it. */
static uint32_t crc32_tables[CRC32_SLICES][256];

/* A CRC, not yet inverted, after 16 bytes more, given as two native words. */
static inline uint32_t crc32_advance(uint32_t crc, uint64_t low, uint64_t high)
{
    uint32_t result = 0;
    low ^= crc;
    for (int n = 0; n < 8; n++)
        result ^= crc32_tables[15 - n][(low >> (8 * n)) & 0xFF] ^ crc32_tables[7 - n][(high >> (8 * n)) & 0xFF];
    return result;
}

static inline uint32_t crc32_rest(uint32_t crc, const uint8_t *data, size_t length)
{
    while (length--)
        crc = (crc >> 8) ^ crc32_tables[0][(crc ^ *data++) & 0xFF];
    return crc;
}

static uint32_t crc32_by_tables(const uint8_t *data, size_t length)
{
    uint32_t crc = CRC32_INITIAL;
    uint64_t words[2];
    for (; length >= sizeof words; data += sizeof words, length -= sizeof words) {
        memcpy(words, data, sizeof words);
        crc = crc32_advance(crc, words[0], words[1]);
    }
    return ~crc32_rest(crc, data, length);
}

#if defined(__x86_64__)

#define CRC32_LANE 16
#define CRC32_LANES 4
#define CRC32_WIDE (CRC32_LANE * CRC32_LANES)
#define CRC32_TARGET __attribute__((target("pclmul,sse4.1,ssse3")))

/* x^n for n = 8 d + 32 and n = 8 d - 32 of a distance of d bytes, reduced, reflected, and shifted by one bit. */
#define CRC32_FACTORS_16 0x0CCAA009E, 0x1751997D0
#define CRC32_FACTORS_32 0x15A546366, 0x0F1DA05AA
#define CRC32_FACTORS_48 0x174359406, 0x03DB1ECDC
#define CRC32_FACTORS_64 0x1C6E41596, 0x154442BD4
#define CRC32_FACTORS_96 0x18CB44E58, 0x0DF068DC2
#define CRC32_FACTORS_128 0x14A7FE880, 0x1E88EF372
#define CRC32_FACTORS_192 0x12E958AC4, 0x1821D8BC0
#define CRC32_FACTORS_256 0x1322D1430, 0x11542778A

/* Factors in a register, once for each of its lanes. */
#define CRC32_IN_128(factors) _mm_set_epi64x(factors)
#define CRC32_IN_256(factors) _mm256_broadcastsi128_si256(_mm_set_epi64x(factors))
#define CRC32_IN_512(factors) _mm512_broadcast_i32x4(_mm_set_epi64x(factors))

CRC32_TARGET static inline __m128i crc32_load(const uint8_t *at)
{
    return _mm_loadu_si128((const __m128i *)at);
}

/* Move a lane over so many bytes, as the factors say, onto the 16 bytes there. */
CRC32_TARGET static inline __m128i crc32_fold(__m128i lane, __m128i factors, __m128i onto)
{
    __m128i low = _mm_clmulepi64_si128(lane, factors, 0x00), high = _mm_clmulepi64_si128(lane, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), onto);
}

/* As a shuffle, 16 bytes from position n on move the first n bytes of a lane to its end, those from 16 + n on move the
 * others to its front; zeros come where nothing does. */
static const uint8_t crc32_shuffle[48] = {
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
    0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
};

/* Move a lane over 1 to 15 bytes more, which are the last of the 16 bytes `last`: its first bytes are folded, the others
 * stand before the new ones. */
CRC32_TARGET static inline __m128i crc32_fold_rest(__m128i lane, size_t count, __m128i last)
{
    __m128i to_end = crc32_load(crc32_shuffle + count), to_front = crc32_load(crc32_shuffle + CRC32_LANE + count);
    __m128i fresh = _mm_and_si128(_mm_shuffle_epi8(_mm_set1_epi8(-1), to_end), last);
    __m128i onto = _mm_or_si128(_mm_shuffle_epi8(lane, to_front), fresh);
    return crc32_fold(_mm_shuffle_epi8(lane, to_end), CRC32_IN_128(CRC32_FACTORS_16), onto);
}

/* The checksum of bytes that one lane stands for, and those behind them. */
CRC32_TARGET static inline uint32_t crc32_fold_to_end(__m128i lane, const uint8_t *data, size_t length)
{
    for (; length >= CRC32_LANE; data += CRC32_LANE, length -= CRC32_LANE)
        lane = crc32_fold(lane, CRC32_IN_128(CRC32_FACTORS_16), crc32_load(data));
    if (length)
        lane = crc32_fold_rest(lane, length, crc32_load(data + length - CRC32_LANE));
    return ~crc32_advance(0, (uint64_t)_mm_cvtsi128_si64(lane), (uint64_t)_mm_extract_epi64(lane, 1));
}

CRC32_TARGET static uint32_t crc32_by_folding(const uint8_t *data, size_t length)
{
    const __m128i initial = _mm_cvtsi32_si128((int)CRC32_INITIAL);
    if (length < CRC32_LANE)
        return ~crc32_rest(CRC32_INITIAL, data, length);
    __m128i first = _mm_xor_si128(crc32_load(data), initial);
    if (length < CRC32_WIDE)
        return crc32_fold_to_end(first, data + CRC32_LANE, length - CRC32_LANE);
    __m128i second = crc32_load(data + 16), third = crc32_load(data + 32), fourth = crc32_load(data + 48);
    for (data += CRC32_WIDE, length -= CRC32_WIDE; length >= CRC32_WIDE; data += CRC32_WIDE, length -= CRC32_WIDE) {
        first = crc32_fold(first, CRC32_IN_128(CRC32_FACTORS_64), crc32_load(data));
        second = crc32_fold(second, CRC32_IN_128(CRC32_FACTORS_64), crc32_load(data + 16));
        third = crc32_fold(third, CRC32_IN_128(CRC32_FACTORS_64), crc32_load(data + 32));
        fourth = crc32_fold(fourth, CRC32_IN_128(CRC32_FACTORS_64), crc32_load(data + 48));
    }
    fourth = crc32_fold(first, CRC32_IN_128(CRC32_FACTORS_48), fourth);
    fourth = crc32_fold(second, CRC32_IN_128(CRC32_FACTORS_32), fourth);
    return crc32_fold_to_end(crc32_fold(third, CRC32_IN_128(CRC32_FACTORS_16), fourth), data, length);
}

#define CRC32_PAIR 32
#define CRC32_TARGET_256 __attribute__((target("vpclmulqdq,pclmul,avx2")))

CRC32_TARGET_256 static inline __m256i crc32_load_256(const uint8_t *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

CRC32_TARGET_256 static inline __m256i crc32_fold_256(__m256i lanes, __m256i factors, __m256i onto)
{
    __m256i low = _mm256_clmulepi64_epi128(lanes, factors, 0x00), high = _mm256_clmulepi64_epi128(lanes, factors, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(low, high), onto);
}

CRC32_TARGET_256 static uint32_t crc32_by_folding_256(const uint8_t *data, size_t length)
{
    const size_t wide = 4 * CRC32_PAIR;
    if (length < wide)
        return crc32_by_folding(data, length);
    const __m256i over_128 = CRC32_IN_256(CRC32_FACTORS_128), over_32 = CRC32_IN_256(CRC32_FACTORS_32);
    __m256i first = crc32_load_256(data), second = crc32_load_256(data + 32);
    __m256i third = crc32_load_256(data + 64), fourth = crc32_load_256(data + 96);
    first = _mm256_xor_si256(first, _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)CRC32_INITIAL)));
    for (data += wide, length -= wide; length >= wide; data += wide, length -= wide) {
        first = crc32_fold_256(first, over_128, crc32_load_256(data));
        second = crc32_fold_256(second, over_128, crc32_load_256(data + 32));
        third = crc32_fold_256(third, over_128, crc32_load_256(data + 64));
        fourth = crc32_fold_256(fourth, over_128, crc32_load_256(data + 96));
    }
    fourth = crc32_fold_256(first, CRC32_IN_256(CRC32_FACTORS_96), fourth);
    fourth = crc32_fold_256(second, CRC32_IN_256(CRC32_FACTORS_64), fourth);
    fourth = crc32_fold_256(third, over_32, fourth);
    for (; length >= CRC32_PAIR; data += CRC32_PAIR, length -= CRC32_PAIR)
        fourth = crc32_fold_256(fourth, over_32, crc32_load_256(data));
    __m128i lane = _mm256_castsi256_si128(fourth), last = _mm256_extracti128_si256(fourth, 1);
    return crc32_fold_to_end(crc32_fold(lane, CRC32_IN_128(CRC32_FACTORS_16), last), data, length);
}

#define CRC32_QUAD 64
#define CRC32_TARGET_512 __attribute__((target("vpclmulqdq,pclmul,avx512f")))

CRC32_TARGET_512 static inline __m512i crc32_load_512(const uint8_t *at) { return _mm512_loadu_si512(at); }

CRC32_TARGET_512 static inline __m512i crc32_fold_512(__m512i lanes, __m512i factors, __m512i onto)
{
    __m512i low = _mm512_clmulepi64_epi128(lanes, factors, 0x00), high = _mm512_clmulepi64_epi128(lanes, factors, 0x11);
    return _mm512_ternarylogic_epi64(low, high, onto, 0x96); /* the exclusive or of all three */
}

CRC32_TARGET_512 static uint32_t crc32_by_folding_512(const uint8_t *data, size_t length)
{
    const size_t wide = 4 * CRC32_QUAD;
    if (length < 2 * CRC32_QUAD)
        return crc32_by_folding(data, length);
    const __m512i over_256 = CRC32_IN_512(CRC32_FACTORS_256), over_64 = CRC32_IN_512(CRC32_FACTORS_64);
    __m512i first = crc32_load_512(data);
    first = _mm512_xor_si512(first, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)CRC32_INITIAL)));
    data += CRC32_QUAD;
    length -= CRC32_QUAD;
    if (length >= wide - CRC32_QUAD) {
        __m512i second = crc32_load_512(data), third = crc32_load_512(data + 64), fourth = crc32_load_512(data + 128);
        data += wide - CRC32_QUAD;
        length -= wide - CRC32_QUAD;
        for (; length >= wide; data += wide, length -= wide) {
            first = crc32_fold_512(first, over_256, crc32_load_512(data));
            second = crc32_fold_512(second, over_256, crc32_load_512(data + 64));
            third = crc32_fold_512(third, over_256, crc32_load_512(data + 128));
            fourth = crc32_fold_512(fourth, over_256, crc32_load_512(data + 192));
        }
        fourth = crc32_fold_512(first, CRC32_IN_512(CRC32_FACTORS_192), fourth);
        fourth = crc32_fold_512(second, CRC32_IN_512(CRC32_FACTORS_128), fourth);
        first = crc32_fold_512(third, over_64, fourth);
    }
    for (; length >= CRC32_QUAD; data += CRC32_QUAD, length -= CRC32_QUAD)
        first = crc32_fold_512(first, over_64, crc32_load_512(data));
    __m128i lane = _mm512_extracti32x4_epi32(first, 3);
    lane = crc32_fold(_mm512_extracti32x4_epi32(first, 0), CRC32_IN_128(CRC32_FACTORS_48), lane);
    lane = crc32_fold(_mm512_extracti32x4_epi32(first, 1), CRC32_IN_128(CRC32_FACTORS_32), lane);
    lane = crc32_fold(_mm512_extracti32x4_epi32(first, 2), CRC32_IN_128(CRC32_FACTORS_16), lane);
    return crc32_fold_to_end(lane, data, length);
}

/* The registers that the system keeps for a process, as XGETBV returns them; 0 where XGETBV is not available. */
static uint64_t crc32_kept_registers(unsigned ecx)
{
    uint32_t low = 0, high = 0;
    if (ecx & 1u << 27)
        __asm__ volatile(".byte 0x0F, 0x01, 0xD0" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static int crc32_can_fold(void)
{
    unsigned eax, ebx, ecx, edx;
    const unsigned wanted = 1u << 1 | 1u << 9 | 1u << 19; /* PCLMULQDQ, SSSE3, SSE4.1: need nothing of the system */
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & wanted) == wanted;
}

static int crc32_can_fold_wide(unsigned feature, uint64_t registers)
{
    unsigned eax, ebx, ecx, edx;
    if (!crc32_can_fold() || !__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (crc32_kept_registers(ecx) & registers) != registers)
        return 0;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && ebx & feature && ecx & 1u << 10; /* VPCLMULQDQ */
}

static int crc32_can_fold_256(void) { return crc32_can_fold_wide(1u << 5, 0x06); /* AVX2 */ }
static int crc32_can_fold_512(void) { return crc32_can_fold_wide(1u << 16, 0xE6); /* AVX-512F */ }

#elif defined(__aarch64__) && defined(__linux__)

#define CRC32_HWCAP (1ul << 7)

static uint32_t crc32_by_instructions(const uint8_t *data, size_t length)
{
    uint32_t crc = CRC32_INITIAL;
    uint64_t word;
    for (; length >= sizeof word; data += sizeof word, length -= sizeof word) {
        memcpy(&word, data, sizeof word);
        __asm__(".arch_extension crc\n\tcrc32x %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    }
    while (length--)
        __asm__(".arch_extension crc\n\tcrc32b %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)*data++));
    return ~crc;
}

static int crc32_has_instructions(void) { return (getauxval(AT_HWCAP) & CRC32_HWCAP) != 0; }

#endif

static int crc32_always(void) { return 1; }

typedef struct {
    const char *name;
    crc32_function function;
    int (*is_possible)(void);
} crc32_way;

static const crc32_way crc32_ways[] = {
#if defined(__x86_64__)
    {"folding-512", crc32_by_folding_512, crc32_can_fold_512},
    {"folding-256", crc32_by_folding_256, crc32_can_fold_256},
    {"folding", crc32_by_folding, crc32_can_fold},
#elif defined(__aarch64__) && defined(__linux__)
    {"instructions", crc32_by_instructions, crc32_has_instructions},
#endif
    {"tables", crc32_by_tables, crc32_always},
};

#define CRC32_WAYS (sizeof crc32_ways / sizeof *crc32_ways)

static crc32_function crc32_chosen = crc32_by_tables;

static inline uint32_t crc32_of(const uint8_t *data, size_t length) { return crc32_chosen(data, length); }

/* Row k of the powers: x to the 8·2^k, by which a CRC is multiplied when 2^k bytes more stand behind. */
static uint32_t crc32_powers[32];

/* The product of two polynomials, reduced; the highest power is in the lowest bit. */
static inline uint32_t crc32_product(uint32_t left, uint32_t right)
{
    uint32_t product = 0;
    for (uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
        if (left & bit)
            product ^= right;
        right = (right >> 1) ^ (right & 1 ? CRC32_REFLECTED : 0);
    }
    return product;
}

/* What the CRC of some bytes adds to that of the same bytes with `length` more behind them. With the CRC of the bytes
 * behind, by an exclusive or, that is the CRC of all of them; and of these three any two give the third. */
static inline uint32_t crc32_moved(uint32_t crc, uint64_t length)
{
    for (int k = 0; length != 0; length >>= 1, k++)
        if (length & 1)
            crc = crc32_product(crc32_powers[k & 31], crc);
    return crc;
}

/* Runs when the module is loaded, before anything in it can be called. */
__attribute__((constructor)) static void crc32_prepare(void)
{
    for (int byte = 0; byte < 256; byte++) {
        uint32_t value = (uint32_t)byte;
        for (int bit = 0; bit < 8; bit++)
            value = (value >> 1) ^ (value & 1 ? CRC32_REFLECTED : 0);
        crc32_tables[0][byte] = value;
    }
    for (int k = 1; k < CRC32_SLICES; k++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = crc32_tables[k - 1][byte];
            crc32_tables[k][byte] = (before >> 8) ^ crc32_tables[0][before & 0xFF];
        }
    crc32_powers[0] = 1u << 23; /* x to the 8 */
    for (int k = 1; k < 32; k++)
        crc32_powers[k] = crc32_product(crc32_powers[k - 1], crc32_powers[k - 1]);
    for (size_t n = CRC32_WAYS; n-- > 0;)
        if (crc32_ways[n].is_possible())
            crc32_chosen = crc32_ways[n].function;
}

#endif
