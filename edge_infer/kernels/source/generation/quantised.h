/* Rows of activations in blocks of 32 int8 with one scale each, and their dots with int8 and int4 weights.
 *
 * A block's scale is its largest size / 127, its values are rounded to the nearest, ties to even. The dot of two blocks
 * is an exact integer, so each processor computes it in its own way. It is made a float32, and multiplied by the product
 * of both scales. Block i is added to lane i mod 4, the lanes are folded as (0 + 2) + (1 + 3).
 */
#pragma once
#include "lanes.h"

typedef int8_t i8x16 __attribute__((vector_size(16), aligned(1)));
typedef int16_t i16x8 __attribute__((vector_size(16), aligned(2)));
typedef uint16_t u16x8 __attribute__((vector_size(16), aligned(2)));

/* A row: the values as the processor wants them, the scales, and eight times the sum of each block's values. Behind
   the last block stand zeros up to the next multiple of 8 blocks. Where values are pairs, those of `step` rows may stand
   in turn, a pair of each. */
struct quantised {
  int8_t *values;
  float *scales;
  int32_t *sums;
  int32_t step;
};

#if defined(LANES_PAIRS)
#define VALUE_BYTES 2
#else
#define VALUE_BYTES 1
#endif

INLINE int32_t padded_blocks(int32_t blocks) { return round_up(blocks, 8); }

INLINE int32_t fold_int(i32x16 v) {
  typedef int32_t i32x8 __attribute__((vector_size(32)));
  i32x8 half = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
               __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  i32x4 four = __builtin_shufflevector(half, half, 0, 1, 2, 3) + __builtin_shufflevector(half, half, 4, 5, 6, 7);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

INLINE int32_t fold_most(i32x16 v) {
  i32x4 a = __builtin_shufflevector(v, v, 0, 1, 2, 3), b = __builtin_shufflevector(v, v, 4, 5, 6, 7);
  i32x4 c = __builtin_shufflevector(v, v, 8, 9, 10, 11), d = __builtin_shufflevector(v, v, 12, 13, 14, 15), more;
  more = a < b, a = (more & b) | (~more & a);
  more = c < d, c = (more & d) | (~more & c);
  more = a < c, a = (more & c) | (~more & a);
  return most(most(a[0], a[1]), most(a[2], a[3]));
}

/* Where the processor wants values 0..15 and 16..31 of a block. */
INLINE void put_values(int8_t *values, int32_t step, int32_t block, i32x16 first, i32x16 second) {
  (void)step;
#if defined(LANES_PAIRS)
  /* int16: the even ones and the odd ones of the first sixteen, then of the second */
  i16x8 to[4];
#define HALF(v, start)                                                                                               \
  __builtin_convertvector(__builtin_shufflevector(v, v, start, start + 2, start + 4, start + 6, start + 8, start + 10, \
                                                  start + 12, start + 14), i16x8)
  to[0] = HALF(first, 0), to[1] = HALF(first, 1), to[2] = HALF(second, 0), to[3] = HALF(second, 1);
#undef HALF
  int32_t *place = (int32_t *)(values + block * 64 * step);
  for (int i = 0; i < 16; i++, place += step) *place = ((i32x4)to[i / 4])[i & 3];
#elif defined(LANES_AVX2)
  /* two blocks are neighbours: the first sixteen of both, then the second sixteen of both */
  int8_t *to = values + block / 2 * 64 + (block & 1) * 16;
  *(i8x16 *)to = __builtin_convertvector(first, i8x16);
  *(i8x16 *)(to + 32) = __builtin_convertvector(second, i8x16);
#else
  *(i8x16 *)(values + block * 32) = __builtin_convertvector(first, i8x16);
  *(i8x16 *)(values + block * 32 + 16) = __builtin_convertvector(second, i8x16);
#endif
}

/* Quantise some of a row's whole blocks, and with the last of them what stands behind. A block with a NaN or an infinity gets the scale NaN; one of nothing above 1e-20 is 0. */
INLINE void quantise(struct quantised row, const float *x, int32_t blocks, int32_t start, int32_t end) {
  for (int32_t b = start; b < end; b++) {
    f32x16 first = load(x + b * BLOCK), second = load(x + b * BLOCK + 16);
    i32x16 sizes = (i32x16)first & 0x7fffffff, others = (i32x16)second & 0x7fffffff, more = sizes < others;
    int32_t bits = fold_most((more & others) | (~more & sizes));
    int32_t is_usual = bits < 0x7f800000 && bits >= 0x1e3ce508;
    float largest = from_bits(bits), inverse = is_usual ? 127.0f / largest : 0.0f;
    row.scales[b] = is_usual ? largest / 127.0f : bits < 0x7f800000 ? 0.0f : from_bits(0x7fc00000);
    /* 1.5 * 2^23 rounds; an infinity times 0 is no number, and is left out. */
    i32x16 mask = (i32x16){0} - is_usual;
    i32x16 low = ((i32x16)(first * inverse + 12582912.0f) - 0x4B400000) & mask;
    i32x16 high = ((i32x16)(second * inverse + 12582912.0f) - 0x4B400000) & mask;
    row.sums[b] = fold_int(low + high) * 8;
    put_values(row.values, row.step, b, low, high);
  }
  i32x16 none = {0};
  for (int32_t b = end == blocks ? end : padded_blocks(blocks); b < padded_blocks(blocks); b++) {
    row.scales[b] = 0;
    row.sums[b] = 0;
    put_values(row.values, row.step, b, none, none);
  }
}

/* Four sums of four lanes each. */
INLINE i32x4 fold_four(i32x4 a, i32x4 b, i32x4 c, i32x4 d) {
  i32x4 ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
  i32x4 cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
  return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

#if defined(LANES_AVX2)
#include "quantised_avx2.h"
#elif defined(LANES_PAIRS)
#include "quantised_pairs.h"
#elif defined(LANES_NEON)
#include "quantised_neon.h"
#else
#include "quantised_plain.h"
#endif
