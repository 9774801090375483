/* Dots of quantised blocks with NEON, on 64-bit and 32-bit Arm. Read by quantised.h. */
#pragma once

/* A block: the products of eight values at a time, at most 2 * 128 * 127 in an int16, as four int32. */
INLINE i32x4 block_lanes(const uint8_t *w, const int8_t *q, int is_int4) {
  int8x16_t first, second, x = vld1q_s8(q), y = vld1q_s8(q + 16);
  uint8x16_t v = vld1q_u8(w);
  if (is_int4) {
    first = vsubq_s8(vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(15))), vdupq_n_s8(8));
    second = vsubq_s8(vreinterpretq_s8_u8(vshrq_n_u8(v, 4)), vdupq_n_s8(8));
  } else {
    first = vreinterpretq_s8_u8(v);
    second = vld1q_s8((const int8_t *)w + 16);
  }
  int16x8_t low = vmlal_s8(vmull_s8(vget_low_s8(first), vget_low_s8(x)), vget_low_s8(second), vget_low_s8(y));
  int16x8_t high = vmlal_s8(vmull_s8(vget_high_s8(first), vget_high_s8(x)), vget_high_s8(second), vget_high_s8(y));
  return (i32x4)vpadalq_s16(vpaddlq_s16(low), high);
}

INLINE void rows_by_one(const uint8_t *w, const uint16_t *scales, struct quantised x, int32_t blocks, float *y,
                        int32_t rows, int is_int4) {
  int32_t block_bytes = is_int4 ? 16 : 32;
  for (int32_t r = 0; r < rows; r++) {
    f32x4 sum = {0};
    for (int32_t b = 0; b < blocks; b += 4) {
      int32_t left = blocks - b;
      i32x4 lanes[4];
      for (int i = 0; i < 4; i++)
        lanes[i] = i < left ? block_lanes(w + (b + i) * block_bytes, x.values + (b + i) * BLOCK, is_int4) : (i32x4){0};
      f32x4 scale = widen_half4(*(const u16x4 *)(scales + b));
      if (left < 4) scale = (f32x4)((i32x4)scale & ((i32x4){0, 1, 2, 3} < left));
      i32x4 dots = fold_four(lanes[0], lanes[1], lanes[2], lanes[3]);
      sum += __builtin_convertvector(dots, f32x4) * (scale * *(const f32x4 *)(x.scales + b));
    }
    y[r] = fold4(sum);
    w += blocks * block_bytes;
    scales += blocks;
  }
}

#define PANEL_ROWS 8
#define PANEL_BLOCK_BYTES (PANEL_ROWS * BLOCK)
typedef int32_t panel_ints __attribute__((vector_size(32), aligned(4)));
typedef float panel_floats __attribute__((vector_size(32), aligned(4)));

/* One block of all rows of a panel: for each column the values of eight rows. */
INLINE void pack_block(uint8_t *panel, const uint8_t *const rows[], int32_t b, int is_int4) {
  for (int r = 0; r < PANEL_ROWS; r++) {
    const uint8_t *w = rows[r] + b * (is_int4 ? 16 : 32);
    for (int i = 0; i < 16; i++) {
      panel[i * PANEL_ROWS + r] = is_int4 ? (uint8_t)((w[i] & 15) - 8) : w[i];
      panel[(i + 16) * PANEL_ROWS + r] = is_int4 ? (uint8_t)((w[i] >> 4) - 8) : w[i + 16];
    }
  }
}

/* The dots of a block of all rows of a panel with the same block of `count` quantised rows. */
INLINE void panel_dots(panel_ints dots[], const uint8_t *panel, const struct quantised x[], int32_t b, int count,
                       int is_int4) {
  for (int t = 0; t < count; t++) {
    const int8_t *q = x[t].values + b * BLOCK;
    int16x8_t sums = vdupq_n_s16(0);
    int32x4_t low = vdupq_n_s32(0), high = vdupq_n_s32(0);
    for (int i = 0; i < BLOCK; i++) {
      int8x8_t w = vld1_s8((const int8_t *)panel + i * PANEL_ROWS), value = vdup_n_s8(q[i]);
      if (is_int4) { /* 32 * 8 * 127 fit into int16 */
        sums = vmlal_s8(sums, w, value);
      } else {
        int16x8_t products = vmull_s8(w, value);
        low = vaddw_s16(low, vget_low_s16(products));
        high = vaddw_s16(high, vget_high_s16(products));
      }
    }
    if (is_int4) low = vmovl_s16(vget_low_s16(sums)), high = vmovl_s16(vget_high_s16(sums));
    dots[t] = __builtin_shufflevector((i32x4)low, (i32x4)high, 0, 1, 2, 3, 4, 5, 6, 7);
  }
}
