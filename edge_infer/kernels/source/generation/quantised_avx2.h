/* Dots of quantised blocks with AVX2, and panels of rows with AVX2 or AVX512-VNNI. Read by quantised.h. */
#pragma once

typedef int32_t i32x8 __attribute__((vector_size(32), aligned(4)));

static const int32_t first_lanes[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};

/* Two blocks of int4: eight int16 of each block in each half, at most 4 * 15 * 127. */
INLINE __m256i pair_int4(const uint8_t *w, const int8_t *q) {
  __m256i both = _mm256_loadu_si256((const __m256i *)w), nibble = _mm256_set1_epi8(15);
  __m256i low = _mm256_and_si256(both, nibble), high = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
  return _mm256_add_epi16(_mm256_maddubs_epi16(low, _mm256_loadu_si256((const __m256i *)q)),
                          _mm256_maddubs_epi16(high, _mm256_loadu_si256((const __m256i *)(q + 32))));
}

/* The product of int8 by int8, four to an int32. */
INLINE __m256i four_int8(__m256i w, __m256i q) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w)), _mm256_set1_epi16(1));
}

/* Two blocks of int8: four int32 of each block in each half. */
INLINE __m256i pair_int8(const uint8_t *w, const int8_t *q) {
  __m256i a = _mm256_loadu_si256((const __m256i *)w), b = _mm256_loadu_si256((const __m256i *)(w + 32));
  return _mm256_add_epi32(
      four_int8(_mm256_permute2x128_si256(a, b, 0x20), _mm256_loadu_si256((const __m256i *)q)),
      four_int8(_mm256_permute2x128_si256(a, b, 0x31), _mm256_loadu_si256((const __m256i *)(q + 32))));
}

/* Up to eight blocks of a row of weights: their dots in order. */
INLINE i32x8 eight_dots(const uint8_t *w, const int8_t *q, const int32_t *sums, int32_t pairs, int is_int4) {
  __m256i none = _mm256_setzero_si256(), order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  if (is_int4) {
    __m256i a = pair_int4(w, q), b = pairs > 1 ? pair_int4(w + 32, q + 64) : none;
    __m256i c = pairs > 2 ? pair_int4(w + 64, q + 128) : none, d = pairs > 3 ? pair_int4(w + 96, q + 192) : none;
    __m256i sixteen = _mm256_hadd_epi16(_mm256_hadd_epi16(a, b), _mm256_hadd_epi16(c, d));
    __m256i dots = _mm256_madd_epi16(sixteen, _mm256_set1_epi16(1));
    return (i32x8)_mm256_permutevar8x32_epi32(dots, order) - *(const i32x8 *)sums;
  }
  __m256i a = pair_int8(w, q), b = pairs > 1 ? pair_int8(w + 64, q + 64) : none;
  __m256i c = pairs > 2 ? pair_int8(w + 128, q + 128) : none, d = pairs > 3 ? pair_int8(w + 192, q + 192) : none;
  __m256i dots = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
  return (i32x8)_mm256_permutevar8x32_epi32(dots, order);
}

/* The product of rows of weights with one quantised row. */
INLINE void rows_by_one(const uint8_t *w, const uint16_t *scales, struct quantised x, int32_t blocks, float *y,
                        int32_t rows, int is_int4) {
  int32_t block_bytes = is_int4 ? 16 : 32;
  for (int32_t r = 0; r < rows; r++) {
    __m128 sum = _mm_setzero_ps();
    for (int32_t b = 0; b < blocks; b += 8) {
      int32_t left = blocks - b, pairs = left >= 8 ? 4 : (left + 1) / 2;
      i32x8 dots = eight_dots(w + b * block_bytes, x.values + b * BLOCK, x.sums + b, pairs, is_int4);
      __m256 scale = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(scales + b)));
      if (left < 8) scale = _mm256_and_ps(scale, _mm256_loadu_ps((const float *)(first_lanes + 8 - left)));
      scale = _mm256_mul_ps(scale, _mm256_loadu_ps(x.scales + b));
      __m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps((__m256i)dots), scale);
      sum = _mm_add_ps(sum, _mm256_castps256_ps128(product));
      if (left > 4) sum = _mm_add_ps(sum, _mm256_extractf128_ps(product, 1));
    }
    y[r] = fold4((f32x4)sum);
    w += blocks * block_bytes;
    scales += blocks;
  }
}

#if defined(__AVX512VNNI__)
#define PANEL_ROWS 16
#else
#define PANEL_ROWS 8
#endif
#define PANEL_BLOCK_BYTES (PANEL_ROWS * BLOCK)
typedef int32_t panel_ints __attribute__((vector_size(4 * PANEL_ROWS), aligned(4)));
typedef float panel_floats __attribute__((vector_size(4 * PANEL_ROWS), aligned(4)));

INLINE void transpose(__m256i v[8]) {
  __m256i t[8], u[8];
  for (int i = 0; i < 4; i++) {
    t[2 * i] = _mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
  }
  for (int i = 0; i < 2; i++) {
    u[4 * i] = _mm256_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    u[4 * i + 1] = _mm256_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    u[4 * i + 2] = _mm256_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    u[4 * i + 3] = _mm256_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  for (int i = 0; i < 4; i++) {
    v[i] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
    v[i + 4] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
  }
}

/* One block of all rows of a panel: 8 groups of columns, in each 4 bytes of every row. */
INLINE void pack_block(uint8_t *panel, const uint8_t *const rows[], int32_t b, int is_int4) {
  for (int start = 0; start < PANEL_ROWS; start += 8) {
    __m256i v[8];
    for (int r = 0; r < 8; r++) {
      if (is_int4) {
        __m128i half = _mm_loadu_si128((const __m128i *)(rows[start + r] + b * 16));
        v[r] = _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(half, 4), half), _mm256_set1_epi8(15));
      } else {
        v[r] = _mm256_loadu_si256((const __m256i *)(rows[start + r] + b * 32));
#if defined(__AVX512VNNI__)
        v[r] = _mm256_xor_si256(v[r], _mm256_set1_epi8(-128));
#endif
      }
    }
    transpose(v);
    for (int k = 0; k < 8; k++) _mm256_storeu_si256((__m256i *)(panel + 4 * (k * PANEL_ROWS + start)), v[k]);
  }
}

INLINE int32_t four_values(const int8_t *q, int32_t b, int32_t k) {
  return *(const int32_t *)(q + b / 2 * 64 + (b & 1) * 16 + (k & 3) * 4 + (k >> 2) * 32);
}

/* The dots of a block of all rows of a panel with the same block of `count` quantised rows. */
INLINE void panel_dots(panel_ints dots[], const uint8_t *panel, const struct quantised x[], int32_t b, int count,
                       int is_int4) {
#if defined(__AVX512VNNI__)
  for (int t = 0; t < count; t++) dots[t] = (panel_ints){0} - (is_int4 ? x[t].sums[b] : x[t].sums[b] * 16);
#pragma clang loop unroll(full)
  for (int k = 0; k < 8; k++) {
    __m512i w = _mm512_loadu_si512(panel + k * 64);
    for (int t = 0; t < count; t++)
      dots[t] = (panel_ints)_mm512_dpbusd_epi32((__m512i)dots[t], w, _mm512_set1_epi32(four_values(x[t].values, b, k)));
  }
#else
  __m256i sums[4];
  for (int t = 0; t < count; t++) sums[t] = _mm256_setzero_si256();
#pragma clang loop unroll(full)
  for (int k = 0; k < 8; k++) {
    __m256i w = _mm256_loadu_si256((const __m256i *)(panel + k * 32));
    for (int t = 0; t < count; t++) {
      __m256i q = _mm256_set1_epi32(four_values(x[t].values, b, k));
      /* int4: eight times 2 * 15 * 127 fit into int16 */
      if (is_int4) sums[t] = _mm256_add_epi16(sums[t], _mm256_maddubs_epi16(w, q));
      else sums[t] = _mm256_add_epi32(sums[t], four_int8(w, q));
    }
  }
  for (int t = 0; t < count; t++)
    dots[t] = is_int4 ? (panel_ints)_mm256_madd_epi16(sums[t], _mm256_set1_epi16(1)) - x[t].sums[b]
                      : (panel_ints)sums[t];
#endif
}
