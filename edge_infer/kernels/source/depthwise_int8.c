/* Depthwise convolution of int8: eight channels at once over a ring of widened rows. */
#include "vectors.h"

/* Where the values of each tap lie, from the first one on; an odd number of taps has a last one whose weight is 0. */
INLINE void find_taps(int32_t *places, int32_t taps, int32_t top, int32_t ring, int32_t width, int32_t dilation_height,
                      int32_t dilation_width, int32_t row, int32_t padded) {
  for (int32_t k = 0; k < taps; k++) {
    int32_t ky = k / width, kx = k % width;
    places[k] = (top + ky * dilation_height) % ring * row + kx * dilation_width * padded;
  }
  if (taps & 1) places[taps] = places[0];
}

/* Add the taps of one output. */
INLINE int32x8 add_taps(int32x8 sums, const int16_t *line, const int32_t *places, const int8_t *weights,
                        int32_t pairs, int16x16 zeros) {
  for (int32_t k = 0; k < pairs; k++) {
    int16x8 first = *(const int16x8 *)(line + places[2 * k]), second = *(const int16x8 *)(line + places[2 * k + 1]);
    int16x16 both = __builtin_shufflevector(first, second, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    sums = add_pairs(sums, wide(weights + 16 * k) - zeros, both);
  }
  return sums;
}

INLINE int16x16 all_short(int16_t value) {
  int32_t two = (int32_t)((uint32_t)(uint16_t)value * 0x10001u);
  return (int16x16)all_int(two);
}

#define DEPTHWISE(DECLARED, name, STORE)                                                                              \
  DECLARED(name) {                                                                                                    \
    int32_t channels = a->output_channels, padded = (channels + 7) & ~7;                                              \
    int32_t taps = a->kernel_height * a->kernel_width, pairs = (taps + 1) / 2;                                        \
    int32_t ring = (a->kernel_height - 1) * a->dilation_height + 1;                                                   \
    int32_t columns = (a->output_width - 1) * a->stride_width + (a->kernel_width - 1) * a->dilation_width + 1;        \
    int32_t *places = AT(int32_t, scratch);                                                                           \
    int16_t *rows = (int16_t *)(places + 2 * pairs);                                                                  \
    int32_t is_small = pairs == 5 && !a->weights_zero; /* 3 by 3, the most frequent */                                \
    int16x16 zeros = all_short((int16_t)a->weights_zero);                                                             \
    for (int32_t b = 0; b < a->batch; b++) {                                                                          \
      const int8_t *input = AT(const int8_t, input) + b * a->input_height * a->input_width * channels;                \
      int8_t *output = AT(int8_t, output) + b * a->output_height * a->output_width * channels;                        \
      int32_t ready = 0; /* so many rows of the padded image were widened */                                          \
      for (int32_t oy = 0; oy < a->output_height; oy++) {                                                             \
        int32_t top = oy * a->stride_height;                                                                          \
        if (ready < top) ready = top;                                                                                 \
        for (; ready < top + ring; ready++) {                                                                         \
          int16_t *row = rows + ready % ring * columns * padded;                                                      \
          int32_t y = ready - a->pad_top;                                                                             \
          for (int32_t x = 0; x < columns; x++, row += padded) {                                                      \
            int32_t from = x - a->pad_left;                                                                           \
            if (y >= 0 && y < a->input_height && from >= 0 && from < a->input_width)                                  \
              widen(row, input + (y * a->input_width + from) * channels, channels, a->input_zero);                    \
            else                                                                                                      \
              clear(row, channels);                                                                                   \
            clear(row + channels, padded - channels);                                                                 \
          }                                                                                                           \
        }                                                                                                             \
        find_taps(places, taps, top, ring, a->kernel_width, a->dilation_height, a->dilation_width, columns * padded,  \
                  padded);                                                                                            \
        for (int32_t channel = 0; channel < channels; channel += 8) {                                                 \
          const int8_t *weights = AT(const int8_t, weights) + channel * 2 * pairs;                                    \
          int32x8 bias = *(const int32x8 *)(AT(const int32_t, bias) + channel);                                       \
          const int16_t *line = rows + channel;                                                                       \
          int8_t *to = output + oy * a->output_width * channels + channel;                                            \
          for (int32_t ox = 0; ox < a->output_width; ox++, line += a->stride_width * padded, to += channels) {        \
            int32x8 sums = is_small ? add_taps(bias, line, places, weights, 5, (int16x16){0})                         \
                                    : add_taps(bias, line, places, weights, pairs, zeros);                            \
            store_int8(to, STORE(sums), channels - channel);                                                          \
          }                                                                                                           \
        }                                                                                                             \
      }                                                                                                               \
    }                                                                                                                 \
  }

#define LITERT(sums) rounded(sums, AT(const float, multipliers) + channel, a->output_zero, a->low, a->high)
DEPTHWISE(KERNEL, depthwise_int8, LITERT)

INLINE int32x8 fixed(int32x8 sums, const int32_t *multipliers, const int32_t *shifts, int32_t zero, int32_t low,
                     int32_t high) {
#pragma clang loop unroll(disable)
  for (int i = 0; i < 8; i++)
    sums[i] = least(most(scaled_twice(sums[i], multipliers[i], shifts[i]) + zero, low), high);
  return sums;
}
#define FIXED(sums)                                                                                                   \
  fixed(sums, AT(const int32_t, multipliers) + channel, AT(const int32_t, shifts) + channel, a->output_zero, a->low,  \
        a->high)
DEPTHWISE(COLD, depthwise_int8_fixed, FIXED)
