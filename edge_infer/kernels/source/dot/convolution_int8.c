/* The int8 convolution by the dot product of relaxed SIMD, for processors that have one instruction for it: four
   products of bytes are added to each lane. Its sums are those of `../convolution_int8.c`, bit for bit, where the
   second operand is taken as unsigned or as signed bytes and nothing saturates, which `is_exact` says.

   The linker puts this module into the file of a model, whose memory it works in: it may have no memory of its own, so
   no stack and no constants in memory. */
#include "../vectors.h"

#define ROWS 4

typedef union {
  v128_t h[2];
  int32x8 v;
} sums8;

INLINE v128_t dot(v128_t weights, v128_t values, v128_t sums) {
  return wasm_i32x4_relaxed_dot_i8x16_i7x16_add(weights, values, sums);
}

/* Whether the dot product is exact here: of four times -128 and 255, less that of -128 and 128, which is the same for
   unsigned bytes and for signed ones. Where sums of two products are cut to 16 bits it is another. */
__attribute__((visibility("default"))) int32_t is_exact(void) {
  v128_t values = wasm_u8x16_const(255, 255, 255, 255, 128, 128, 128, 128, 0, 0, 0, 0, 0, 0, 0, 0);
  v128_t sums = dot(wasm_i8x16_splat(-128), values, wasm_i32x4_splat(0));
  return wasm_i32x4_extract_lane(sums, 0) - wasm_i32x4_extract_lane(sums, 1) == 4 * -128 * (255 - 128);
}

/* Copy bytes, some bits of each turned over; the last ones overlap those before. */
INLINE void turned(uint8_t *output, const uint8_t *input, int32_t count, v128_t bits) {
  int32_t i = 0;
  if (count >= 16)
    for (;; i = least(i + 16, count - 16)) {
      wasm_v128_store(output + i, wasm_v128_xor(wasm_v128_load(input + i), bits));
      if (i == count - 16) return;
    }
  if (count >= 8) {
    v128_t last = wasm_v128_load64_zero(input + count - 8);
    wasm_v128_store64_lane(output, wasm_v128_xor(wasm_v128_load64_zero(input), bits), 0);
    wasm_v128_store64_lane(output + count - 8, wasm_v128_xor(last, bits), 0);
    return;
  }
  if (count >= 4) {
    v128_t last = wasm_v128_load32_zero(input + count - 4);
    wasm_v128_store32_lane(output, wasm_v128_xor(wasm_v128_load32_zero(input), bits), 0);
    wasm_v128_store32_lane(output + count - 4, wasm_v128_xor(last, bits), 0);
    return;
  }
#pragma clang loop unroll(disable)
  for (; i < count; i++) output[i] = input[i] ^ wasm_u8x16_extract_lane(bits, 0);
}

INLINE void fill_bytes(uint8_t *output, int32_t count, uint8_t value) {
#pragma clang loop unroll(disable)
  for (int32_t i = 0; i < count; i++) output[i] = value;
}

/* Add the products of COUNT rows to SUMS, and the weights themselves to the last of them. */
INLINE void add_rows(const uint8_t *rows, const int8_t *weights, int32_t taps, int count, sums8 *sums) {
  for (int32_t k = 0; k < taps; k += 4, weights += 32) {
    v128_t first = wasm_v128_load(weights), second = first;
    if (k + 4 > taps) { /* two taps are left: with the two before, which weigh nothing now */
      first = wasm_i32x4_const_splat(0);
      k -= 2;
    } else {
      second = wasm_v128_load(weights + 16);
    }
    v128_t low = wasm_i16x8_shuffle(first, second, 0, 8, 1, 9, 2, 10, 3, 11);
    v128_t high = wasm_i16x8_shuffle(first, second, 4, 12, 5, 13, 6, 14, 7, 15);
#pragma clang loop unroll(full)
    for (int r = 0; r <= count; r++) {
      v128_t values = r < count ? wasm_v128_load32_splat(rows + r * taps + k) : wasm_i8x16_const_splat(1);
      sums8 *sum = sums + (r < count ? r : ROWS);
      sum->h[0] = dot(low, values, sum->h[0]);
      sum->h[1] = dot(high, values, sum->h[1]);
    }
  }
}

INLINE void store_some(int8_t *output, int32x8 values, int32_t count) {
  sums8 both = {.v = values};
  v128_t narrow = wasm_i16x8_narrow_i32x4(both.h[0], both.h[1]), bytes = wasm_i8x16_narrow_i16x8(narrow, narrow);
  if (count >= 8) {
    wasm_v128_store64_lane(output, bytes, 0);
    return;
  }
#pragma clang loop unroll(disable)
  for (; count > 0; count--, output++) {
    wasm_v128_store8_lane(output, bytes, 0);
    bytes = wasm_i8x16_shuffle(bytes, bytes, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0);
  }
}

INLINE int32_t sum_of(const uint8_t *row, int32_t count, int32_t is_signed, int32_t zero) {
  int32_t sum = -zero * count;
#pragma clang loop unroll(disable)
  for (int32_t i = 0; i < count; i++) sum += is_signed ? (int8_t)row[i] : row[i];
  return sum;
}

KERNEL(convolution_int8) {
    /* Values are offset to be what this processor takes: unsigned bytes, or signed ones. */
  int32_t is_signed = wasm_i32x4_extract_lane(dot(wasm_i8x16_splat(1), wasm_i8x16_splat(-1), wasm_i32x4_splat(0)), 0) < 0;
  uint8_t turn = is_signed ? 0 : 128;
  v128_t bits = wasm_u8x16_splat(turn);
  int32_t places = a->output_height * a->output_width, channels = a->output_channels;
  int32_t depth = a->input_channels, zero = a->input_zero + turn;
  int32_t used = a->kernel_height * a->kernel_width * depth, taps = (used + 1) & ~1;
  uint8_t *rows = AT(uint8_t, scratch);
  /* Rows of one place each lie beside each other already: they are copied as one. */
  int32_t is_dense = used == depth && taps == depth && a->stride_height * a->stride_width == 1 &&
                     !(a->pad_top | a->pad_left) && a->output_width == a->input_width;
  for (int32_t b = 0; b < a->batch; b++) {
    const uint8_t *input = AT(const uint8_t, input) + b * a->input_height * a->input_width * depth;
    int8_t *output = AT(int8_t, output) + b * places * channels;
    for (int32_t place = 0; place < places; place += ROWS) {
      int32_t count = least(ROWS, places - place);
      for (int32_t r = 0; r < (is_dense ? 1 : count); r++) {
        uint8_t *row = rows + r * taps;
        int32_t top = (place + r) / a->output_width * a->stride_height - a->pad_top;
        int32_t left = (place + r) % a->output_width * a->stride_width - a->pad_left;
        row[taps - 1] = 0;
        for (int32_t ky = 0; ky < a->kernel_height; ky++) {
          int32_t y = top + ky * a->dilation_height;
          for (int32_t kx = 0; kx < a->kernel_width;) {
            int32_t x = left + kx * a->dilation_width, run = 1;
            if (y < 0 || y >= a->input_height || x < 0 || x >= a->input_width) {
              fill_bytes(row, depth, (uint8_t)zero);
            } else {
              if (is_dense) run = count;
              else if (a->dilation_width == 1) run = least(a->kernel_width - kx, a->input_width - x);
              turned(row, input + (y * a->input_width + x) * depth, run * depth, bits);
            }
            row += run * depth;
            kx += run;
          }
        }
      }
      /* What the zero point of the weights takes from the sums of each row. */
      int32_t less = 0, second = 0, third = 0, fourth = 0;
#pragma clang loop unroll(disable)
      for (int32_t r = 0; a->weights_zero && r < ROWS; r++) {
        less = second, second = third, third = fourth;
        fourth = a->weights_zero * sum_of(rows + r * taps, used, is_signed, zero);
      }
      for (int32_t channel = 0; channel < channels; channel += 8) {
        const int8_t *weights = AT(const int8_t, weights) + channel * taps;
        sums8 sums[ROWS + 1] = {
            {.v = all_int(-less)}, {.v = all_int(-second)}, {.v = all_int(-third)}, {.v = all_int(-fourth)}, {{0}}};
        if (count == 1)
          add_rows(rows, weights, taps, 1, sums);
        else
          add_rows(rows, weights, taps, ROWS, sums);
        int32x8 start = *(const int32x8 *)(AT(const int32_t, bias) + channel) - sums[ROWS].v * zero;
        int8_t *to = output + place * channels + channel;
#pragma clang loop unroll(disable)
        for (int32_t r = 0; r < count; r++, to += channels) {
          int32x8 sum = sums[0].v + start;
          store_some(to, rounded(sum, AT(const float, multipliers) + channel, a->output_zero, a->low, a->high),
                     channels - channel);
          sums[0] = sums[1], sums[1] = sums[2], sums[2] = sums[3];
        }
      }
    }
  }
}
