/* Dot products of four rows of 8-bit numbers with one query at once, exact: each processor's own way. */
#pragma once
#include <stdint.h>

#if defined(__wasm_simd128__)
#include <wasm_simd128.h>
#elif defined(__SSE2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#define INLINE __attribute__((always_inline)) static inline

/* The query as the rows are multiplied with it: `wide` has its numbers with 16 bits, `sum` is 128 times their sum. */
struct query {
  const int8_t *narrow;
  const int16_t *wide;
  int32_t sum;
};

INLINE struct query prepare(const int8_t *query, int16_t *wide, uint32_t dimension) {
  int32_t sum = 0;
  for (uint32_t j = 0; j < dimension; j++) {
    wide[j] = query[j];
    sum += query[j];
  }
  return (struct query){query, wide, 128 * sum};
}

#if defined(__AVX512VNNI__)
#define STEP 64
#define LANES __m512i
#define ZERO _mm512_setzero_si512()
#define LOAD_QUERY(q, j) __m512i query = _mm512_loadu_si512((q).narrow + (j))
/* The instruction takes the first factor without a sign: 128 is added to it, and taken off the sum again. */
#define MULTIPLY(sums, row) \
  sums = _mm512_dpbusd_epi32(sums, _mm512_xor_si512(_mm512_loadu_si512(row), _mm512_set1_epi8(-128)), query)
#define TOTAL(sums, q) _mm512_reduce_add_epi32(sums)
#define HAS_OFFSET 1
#elif defined(__AVX2__)
#define STEP 16
#define LANES __m256i
#define ZERO _mm256_setzero_si256()
#define LOAD_QUERY(q, j) __m256i query = _mm256_loadu_si256((const __m256i *)((q).wide + (j)))
#define MULTIPLY(sums, row) \
  sums = _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(row))), query))
INLINE int32_t total(__m256i sums) {
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}
#define TOTAL(sums, q) total(sums)
#elif defined(__SSE2__)
#define STEP 16
#define LANES __m128i
#define ZERO _mm_setzero_si128()
#define LOAD_QUERY(q, j) \
  __m128i low = _mm_loadu_si128((const __m128i *)((q).wide + (j))), \
          high = _mm_loadu_si128((const __m128i *)((q).wide + (j) + 8))
INLINE __m128i multiplied(__m128i sums, __m128i row, __m128i low, __m128i high) {
  __m128i first = _mm_srai_epi16(_mm_unpacklo_epi8(row, row), 8), last = _mm_srai_epi16(_mm_unpackhi_epi8(row, row), 8);
  return _mm_add_epi32(sums, _mm_add_epi32(_mm_madd_epi16(first, low), _mm_madd_epi16(last, high)));
}
#define MULTIPLY(sums, row) sums = multiplied(sums, _mm_loadu_si128((const __m128i *)(row)), low, high)
INLINE int32_t total(__m128i four) {
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}
#define TOTAL(sums, q) total(sums)
#elif defined(__wasm_simd128__)
#define STEP 16
#define LANES v128_t
#define ZERO wasm_i32x4_const_splat(0)
#define LOAD_QUERY(q, j) v128_t low = wasm_v128_load((q).wide + (j)), high = wasm_v128_load((q).wide + (j) + 8)
INLINE v128_t multiplied(v128_t sums, v128_t row, v128_t low, v128_t high) {
  sums = wasm_i32x4_add(sums, wasm_i32x4_dot_i16x8(wasm_i16x8_extend_low_i8x16(row), low));
  return wasm_i32x4_add(sums, wasm_i32x4_dot_i16x8(wasm_i16x8_extend_high_i8x16(row), high));
}
#define MULTIPLY(sums, row) sums = multiplied(sums, wasm_v128_load(row), low, high)
INLINE int32_t total(v128_t four) {
  return wasm_i32x4_extract_lane(four, 0) + wasm_i32x4_extract_lane(four, 1) + wasm_i32x4_extract_lane(four, 2) +
         wasm_i32x4_extract_lane(four, 3);
}
#define TOTAL(sums, q) total(sums)
#elif defined(__ARM_NEON)
#define STEP 16
#define LANES int32x4_t
#define ZERO vdupq_n_s32(0)
#define LOAD_QUERY(q, j) int8x8_t low = vld1_s8((q).narrow + (j)), high = vld1_s8((q).narrow + (j) + 8)
/* Two products of 8-bit numbers fit into 16 bits: the query has no -128. */
#define MULTIPLY(sums, row) \
  sums = vpadalq_s16(sums, vmlal_s8(vmull_s8(vld1_s8(row), low), vld1_s8((row) + 8), high))
INLINE int32_t total(int32x4_t four) {
  int32x2_t two = vadd_s32(vget_low_s32(four), vget_high_s32(four));
  return vget_lane_s32(vpadd_s32(two, two), 0);
}
#define TOTAL(sums, q) total(sums)
#else
#error "no vectors for this processor"
#endif

/* Write the dot products of four rows. */
INLINE void dot_four(const int8_t *const rows[4], struct query q, uint32_t dimension, int32_t dots[4]) {
  const int8_t *a = rows[0], *b = rows[1], *c = rows[2], *d = rows[3];
  LANES first = ZERO, second = ZERO, third = ZERO, fourth = ZERO;
  uint32_t j = 0;
  for (; j + STEP <= dimension; j += STEP) {
    LOAD_QUERY(q, j);
    MULTIPLY(first, a + j);
    MULTIPLY(second, b + j);
    MULTIPLY(third, c + j);
    MULTIPLY(fourth, d + j);
  }
  dots[0] = TOTAL(first, q);
  dots[1] = TOTAL(second, q);
  dots[2] = TOTAL(third, q);
  dots[3] = TOTAL(fourth, q);
  for (int i = 0; i < 4; i++) {
#if defined(HAS_OFFSET)
    /* What is left is added as its row is: by 128 too much. */
    for (uint32_t rest = j; rest < dimension; rest++) dots[i] += (rows[i][rest] + 128) * q.narrow[rest];
    dots[i] -= q.sum;
#else
    for (uint32_t rest = j; rest < dimension; rest++) dots[i] += rows[i][rest] * q.narrow[rest];
#endif
  }
}
