/* Depthwise convolution of int8: eight channels at once over a ring of widened rows. */
#include "vectors.h"

#define DEPTHWISE(name, STORE)                                                                                        \
  KERNEL(name) {                                                                                                      \
    int32_t channels = a->output_channels, padded = (channels + 7) & ~7;                                              \
    int32_t taps = a->kernel_height * a->kernel_width, pairs = (taps + 1) / 2;                                        \
    int32_t ring = (a->kernel_height - 1) * a->dilation_height + 1;                                                   \
    int32_t columns = (a->output_width - 1) * a->stride_width + (a->kernel_width - 1) * a->dilation_width + 1;        \
    int16_t *rows = AT(int16_t, scratch);                                                                             \
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
            int32_t inside = y >= 0 && y < a->input_height && from >= 0 && from < a->input_width;                     \
            const int8_t *values = input + (y * a->input_width + from) * channels;                                    \
            for (int32_t i = 0; i < channels; i++) row[i] = inside ? (int16_t)(values[i] - a->input_zero) : 0;        \
            for (int32_t i = channels; i < padded; i++) row[i] = 0;                                                   \
          }                                                                                                           \
        }                                                                                                             \
        for (int32_t channel = 0; channel < channels; channel += 8) {                                                 \
          const int8_t *weights = AT(const int8_t, weights) + channel * 2 * pairs;                                    \
          int32x8 bias = *(const int32x8 *)(AT(const int32_t, bias) + channel);                                       \
          for (int32_t ox = 0; ox < a->output_width; ox++) {                                                          \
            int32x8 sums = bias;                                                                                      \
            const int8_t *w = weights;                                                                                \
            int32_t ky = 0, kx = 0;                                                                                   \
            const int16_t *line = rows + top % ring * columns * padded + ox * a->stride_width * padded + channel;     \
            for (int32_t k = 0; k < taps; k += 2, w += 16) {                                                          \
              int16x8 first = *(const int16x8 *)(line + kx * a->dilation_width * padded), second = first;             \
              if (++kx == a->kernel_width) {                                                                          \
                kx = 0, ky++;                                                                                         \
                line = rows + (top + ky * a->dilation_height) % ring * columns * padded +                             \
                       ox * a->stride_width * padded + channel;                                                       \
              }                                                                                                       \
              if (k + 1 < taps) {                                                                                     \
                second = *(const int16x8 *)(line + kx * a->dilation_width * padded);                                  \
                if (++kx == a->kernel_width) {                                                                        \
                  kx = 0, ky++;                                                                                       \
                  line = rows + (top + ky * a->dilation_height) % ring * columns * padded +                           \
                         ox * a->stride_width * padded + channel;                                                     \
                }                                                                                                     \
              }                                                                                                       \
              sums = add_pairs(sums, wide(w), __builtin_shufflevector(first, second, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, \
                                                                      5, 13, 6, 14, 7, 15));                          \
            }                                                                                                         \
            store_int8(output + (oy * a->output_width + ox) * channels + channel, STORE(sums), channels - channel);   \
          }                                                                                                           \
        }                                                                                                             \
      }                                                                                                               \
    }                                                                                                                 \
  }

#define LITERT(sums) rounded(sums, AT(const float, multipliers) + channel, a->output_zero, a->low, a->high)
DEPTHWISE(depthwise_int8, LITERT)

INLINE int32x8 fixed(int32x8 sums, const int32_t *multipliers, const int32_t *shifts, int32_t zero, int32_t low,
                     int32_t high) {
  for (int i = 0; i < 8; i++)
    sums[i] = least(most(scaled_twice(sums[i], multipliers[i], shifts[i]) + zero, low), high);
  return sums;
}
#define FIXED(sums)                                                                                                   \
  fixed(sums, AT(const int32_t, multipliers) + channel, AT(const int32_t, shifts) + channel, a->output_zero, a->low,  \
        a->high)
DEPTHWISE(depthwise_int8_fixed, FIXED)
