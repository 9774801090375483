/* Dots of quantised blocks by products of int16 pairs: WebAssembly and SSE2. Read by quantised.h. */
#pragma once

INLINE i32x4 multiplied(i16x8 a, i16x8 b) {
#if defined(__wasm_simd128__)
  return (i32x4)wasm_i32x4_dot_i16x8((v128_t)a, (v128_t)b);
#else
  return (i32x4)_mm_madd_epi16((__m128i)a, (__m128i)b);
#endif
}

/* Sixteen bytes as int16: of int4 the even low halves, odd low, even high, odd high, each plus 8; of int8 even and odd. */
#define EVEN_LOW(v) ((i16x8)((v) & 15))
#define ODD_LOW(v) ((i16x8)(((v) >> 8) & 15))
#define EVEN_HIGH(v) ((i16x8)(((v) >> 4) & 15))
#define ODD_HIGH(v) ((i16x8)((v) >> 12))
#define EVEN(v) ((i16x8)((v) << 8) >> 8)
#define ODD(v) ((i16x8)(v) >> 8)

INLINE i32x4 block_lanes(const uint8_t *w, const i16x8 q[4], int is_int4) {
  u16x8 v = *(const u16x8 *)w;
  if (is_int4)
    return (multiplied(EVEN_LOW(v), q[0]) + multiplied(ODD_LOW(v), q[1])) +
           (multiplied(EVEN_HIGH(v), q[2]) + multiplied(ODD_HIGH(v), q[3]));
  u16x8 u = *(const u16x8 *)(w + 16);
  return (multiplied(EVEN(v), q[0]) + multiplied(ODD(v), q[1])) + (multiplied(EVEN(u), q[2]) + multiplied(ODD(u), q[3]));
}

/* The next four blocks, or fewer, of two rows of weights: the second row is `step` blocks further. */
INLINE void four_blocks(f32x4 sums[2], const uint8_t *w, const uint16_t *scales, struct quantised x, int32_t b,
                        int32_t step, int32_t left, int is_int4) {
  int32_t block_bytes = is_int4 ? 16 : 32;
  i32x4 lanes[2][4] = {{{0}}};
  for (int i = 0; i < 4 && i < left; i++) {
    const i16x8 *q = (const i16x8 *)(x.values + (b + i) * 64);
    i16x8 four[4] = {q[0], q[1], q[2], q[3]};
    for (int r = 0; r < 2; r++) lanes[r][i] = block_lanes(w + (r * step + b + i) * block_bytes, four, is_int4);
  }
  for (int r = 0; r < 2; r++) {
    i32x4 dots = fold_four(lanes[r][0], lanes[r][1], lanes[r][2], lanes[r][3]);
    if (is_int4) dots -= *(const i32x4 *)(x.sums + b);
    f32x4 scale = widen_half4(*(const u16x4 *)(scales + r * step + b));
    if (left < 4) scale = (f32x4)((i32x4)scale & ((i32x4){0, 1, 2, 3} < left));
    sums[r] += __builtin_convertvector(dots, f32x4) * (scale * *(const f32x4 *)(x.scales + b));
  }
}

static __attribute__((noinline)) void last_blocks(f32x4 sums[2], const uint8_t *w, const uint16_t *scales,
                                                  struct quantised x, int32_t b, int32_t step, int32_t left,
                                                  int is_int4) {
  if (is_int4) four_blocks(sums, w, scales, x, b, step, left, 1);
  else four_blocks(sums, w, scales, x, b, step, left, 0);
}

/* The product of rows of weights with one quantised row, two rows at a time; the last of an odd number is its own pair. */
INLINE void rows_by_one(const uint8_t *w, const uint16_t *scales, struct quantised x, int32_t blocks, float *y,
                        int32_t rows, int is_int4) {
  for (int32_t r = 0; r < rows; r += 2) {
    f32x4 sums[2] = {{0}, {0}};
    int32_t b = 0, step = r + 1 < rows ? blocks : 0;
    for (; b + 4 <= blocks; b += 4) four_blocks(sums, w, scales, x, b, step, 4, is_int4);
    if (b < blocks) last_blocks(sums, w, scales, x, b, step, blocks - b, is_int4);
    y[r] = fold4(sums[0]);
    if (step) y[r + 1] = fold4(sums[1]);
    w += 2 * blocks * (is_int4 ? 16 : 32);
    scales += 2 * blocks;
  }
}

/* A panel holds int16 values, whatever the weights were. Its eight rows stand as two fours side by side: each value of
   an activation that is loaded serves both. */
#define PANELS_ARE_ALIKE 1
#define PANEL_ROWS 8
#define PANEL_BLOCK_BYTES (PANEL_ROWS * BLOCK * 2)
typedef int32_t panel_ints __attribute__((vector_size(32), aligned(4)));
typedef float panel_floats __attribute__((vector_size(32), aligned(4)));

/* One block of four rows of a panel: 16 pairs of columns, in each the int16 pair of every row. */
INLINE void pack_four(uint8_t *panel, const uint8_t *const rows[], int32_t b, int is_int4) {
  i32x4 parts[4][4];
  for (int r = 0; r < 4; r++) {
    u16x8 v = *(const u16x8 *)(rows[r] + b * (is_int4 ? 16 : 32));
    if (is_int4) {
      parts[0][r] = (i32x4)(EVEN_LOW(v) - 8), parts[1][r] = (i32x4)(ODD_LOW(v) - 8);
      parts[2][r] = (i32x4)(EVEN_HIGH(v) - 8), parts[3][r] = (i32x4)(ODD_HIGH(v) - 8);
    } else {
      u16x8 u = *(const u16x8 *)(rows[r] + b * 32 + 16);
      parts[0][r] = (i32x4)EVEN(v), parts[1][r] = (i32x4)ODD(v);
      parts[2][r] = (i32x4)EVEN(u), parts[3][r] = (i32x4)ODD(u);
    }
  }
  i32x4 *to = (i32x4 *)panel;
  for (int p = 0; p < 4; p++) {
    i32x4 *v = parts[p];
    i32x4 ab = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5), cd = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5);
    i32x4 AB = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7), CD = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
    to[8 * p] = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    to[8 * p + 2] = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    to[8 * p + 4] = __builtin_shufflevector(AB, CD, 0, 1, 4, 5);
    to[8 * p + 6] = __builtin_shufflevector(AB, CD, 2, 3, 6, 7);
  }
}

/* One block of all rows of a panel. */
INLINE void pack_block(uint8_t *panel, const uint8_t *const rows[], int32_t b, int is_int4) {
#pragma clang loop unroll(disable)
  for (int four = 0; four < 2; four++) pack_four(panel + 16 * four, rows + 4 * four, b, is_int4);
}

/* The dots of a block of all rows of a panel with the same block of `count` quantised rows. */
INLINE void panel_dots(panel_ints dots[], const uint8_t *panel, const struct quantised x[], int32_t b, int count,
                       int is_int4) {
  (void)is_int4;
  i32x4 low[4], high[4];
  for (int t = 0; t < count; t++) low[t] = high[t] = (i32x4){0};
  const struct { i16x8 first, second; } *w = (const void *)panel;
  const struct { int32_t pairs[4]; } *q = (const void *)(x->values + b * 64 * count); /* of `count` rows in turn */
#pragma clang loop unroll(disable)
  for (int p = 0; p < 16; p++, w++, q = (const void *)(q->pairs + count)) {
    __asm__("" : "+r"(w), "+r"(q)); /* keeps both as they are: a load then names its offset */
    i16x8 first = w->first, second = w->second;
    for (int t = 0; t < count; t++) {
      i16x8 pair = (i16x8)((i32x4){0} + q->pairs[t]);
      low[t] += multiplied(first, pair);
      high[t] += multiplied(second, pair);
    }
  }
  for (int t = 0; t < count; t++) dots[t] = __builtin_shufflevector(low[t], high[t], 0, 1, 2, 3, 4, 5, 6, 7);
}
