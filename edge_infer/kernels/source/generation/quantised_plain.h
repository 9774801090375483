/* Dots of quantised blocks one value after the other: what every other form must equal. Read by quantised.h. */
#pragma once

INLINE int32_t weight_of(const uint8_t *block, int32_t i, int is_int4) {
  if (!is_int4) return (int8_t)block[i];
  return (i < 16 ? block[i] & 15 : block[i - 16] >> 4) - 8;
}

INLINE int32_t block_dot(const uint8_t *w, const int8_t *q, int is_int4) {
  int32_t sum = 0;
  for (int32_t i = 0; i < BLOCK; i++) sum += weight_of(w, i, is_int4) * q[i];
  return sum;
}

INLINE void rows_by_one(const uint8_t *w, const uint16_t *scales, struct quantised x, int32_t blocks, float *y,
                        int32_t rows, int is_int4) {
  int32_t block_bytes = is_int4 ? 16 : 32;
  for (int32_t r = 0; r < rows; r++) {
    f32x4 sum = {0};
    for (int32_t b = 0; b < blocks; b += 4) {
      i32x4 dots = {0};
      for (int i = 0; i < least(4, blocks - b); i++)
        dots[i] = block_dot(w + (b + i) * block_bytes, x.values + (b + i) * BLOCK, is_int4);
      f32x4 scale = load_scales(scales + b, blocks - b) * *(const f32x4 *)(x.scales + b);
      sum += __builtin_convertvector(dots, f32x4) * scale;
    }
    y[r] = fold4(sum);
    w += blocks * block_bytes;
    scales += blocks;
  }
}

/* A panel of int4 holds int8 values. */
#define PANELS_ARE_ALIKE 1
#define PANEL_ROWS 4
#define PANEL_BLOCK_BYTES (PANEL_ROWS * BLOCK)
typedef int32_t panel_ints __attribute__((vector_size(16), aligned(4)));
typedef float panel_floats __attribute__((vector_size(16), aligned(4)));

INLINE void pack_block(uint8_t *panel, const uint8_t *const rows[], int32_t b, int is_int4) {
  for (int i = 0; i < BLOCK; i++)
    for (int r = 0; r < PANEL_ROWS; r++)
      panel[i * PANEL_ROWS + r] = (uint8_t)weight_of(rows[r] + b * (is_int4 ? 16 : 32), i, is_int4);
}

INLINE void panel_dots(panel_ints dots[], const uint8_t *panel, const struct quantised x[], int32_t b, int count,
                       int is_int4) {
  (void)is_int4;
  for (int t = 0; t < count; t++) {
    dots[t] = (panel_ints){0};
    for (int i = 0; i < BLOCK; i++)
      for (int r = 0; r < PANEL_ROWS; r++)
        dots[t][r] += (int8_t)panel[i * PANEL_ROWS + r] * x[t].values[b * BLOCK + i];
  }
}
