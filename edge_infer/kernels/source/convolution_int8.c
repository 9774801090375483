/* Convolution of int8: four places of the image times eight channels at once. The results are int8 by one of two
   roundings, or floats where the values were quantized just before. */
#include "vectors.h"

#define ROWS 4

/* Write the values that one output sees into a row of int16, less the zero point; outside of the image they are 0. */
#define GATHER(arguments)                                                                                             \
  INLINE void gather_##arguments(const struct arguments *a, const int8_t *input, int32_t place, int16_t *row,         \
                                 int32_t zero) {                                                                      \
    int32_t channels = a->input_channels;                                                                             \
    int32_t top = place / a->output_width * a->stride_height - a->pad_top;                                            \
    int32_t left = place % a->output_width * a->stride_width - a->pad_left;                                           \
    int32_t taps = a->kernel_height * a->kernel_width * channels;                                                     \
    row[((taps + 1) / 2) * 2 - 1] = 0;                                                                                \
    for (int32_t ky = 0; ky < a->kernel_height; ky++) {                                                               \
      int32_t y = top + ky * a->dilation_height;                                                                      \
      for (int32_t kx = 0; kx < a->kernel_width;) {                                                                   \
        int32_t x = left + kx * a->dilation_width, run = 1;                                                           \
        if (y < 0 || y >= a->input_height || x < 0 || x >= a->input_width) {                                          \
          clear(row, channels);                                                                                       \
        } else {                                                                                                      \
          if (a->dilation_width == 1) run = least(a->kernel_width - kx, a->input_width - x);                          \
          const int8_t *from = input + (y * a->input_width + x) * channels;                                           \
          widen(row, from, run * channels, zero);                                                                     \
        }                                                                                                             \
        row += run * channels;                                                                                        \
        kx += run;                                                                                                    \
      }                                                                                                               \
    }                                                                                                                 \
  }
GATHER(convolution_int8_arguments)
GATHER(convolution_int8_fixed_arguments)
GATHER(convolution_hybrid_arguments)

INLINE int32x8 bias_of(const int32_t *bias, int32_t channel) { return *(const int32x8 *)(bias + channel); }

/* One row has no neighbours to share the weights with: four sums hide the latency instead. */
INLINE int32x8 one_row(const int16_t *row, const int8_t *weights, int32x8 sums, int32_t pairs) {
  int32x8 second = all_int(0), third = second, fourth = second;
  int32_t k = 0;
  for (; k + 4 <= pairs; k += 4, weights += 64) {
    sums = add_pairs(sums, wide(weights), pair(row + 2 * k));
    second = add_pairs(second, wide(weights + 16), pair(row + 2 * k + 2));
    third = add_pairs(third, wide(weights + 32), pair(row + 2 * k + 4));
    fourth = add_pairs(fourth, wide(weights + 48), pair(row + 2 * k + 6));
  }
  for (; k < pairs; k++, weights += 16) sums = add_pairs(sums, wide(weights), pair(row + 2 * k));
  return sums + second + (third + fourth);
}

INLINE void four_rows(const int16_t *rows, const int8_t *weights, int32x8 *sums, int32_t pairs) {
  int32x8 s0 = sums[0], s1 = s0, s2 = s0, s3 = s0;
  const int16_t *r1 = rows + 2 * pairs, *r2 = r1 + 2 * pairs, *r3 = r2 + 2 * pairs;
  for (int32_t k = 0; k < pairs; k++, weights += 16) {
    int16x16 w = wide(weights);
    s0 = add_pairs(s0, w, pair(rows + 2 * k));
    s1 = add_pairs(s1, w, pair(r1 + 2 * k));
    s2 = add_pairs(s2, w, pair(r2 + 2 * k));
    s3 = add_pairs(s3, w, pair(r3 + 2 * k));
  }
  sums[0] = s0, sums[1] = s1, sums[2] = s2, sums[3] = s3;
}

INLINE int32_t sum_of(const int16_t *row, int32_t count) {
  int32_t sum = 0;
#pragma clang loop unroll(disable)
  for (int32_t i = 0; i < count; i++) sum += row[i];
  return sum;
}

/* TYPE is that of the outputs, ZERO the zero point of a sample, WEIGHTS_ZERO that of the weights: what it takes from
   the sums of a place is the same for all channels. */
#define CONVOLUTION(DECLARED, name, TYPE, ZERO, WEIGHTS_ZERO, STORE)                                                  \
  DECLARED(name) {                                                                                                    \
    int32_t places = a->output_height * a->output_width, channels = a->output_channels;                               \
    int32_t pairs = (a->kernel_height * a->kernel_width * a->input_channels + 1) / 2;                                 \
    const int8_t *weights = AT(const int8_t, weights);                                                                \
    const int32_t *bias = AT(const int32_t, bias);                                                                    \
    int16_t *rows = AT(int16_t, scratch);                                                                             \
    for (int32_t b = 0; b < a->batch; b++) {                                                                          \
      const int8_t *input = AT(const int8_t, input) + b * a->input_height * a->input_width * a->input_channels;       \
      TYPE *output = AT(TYPE, output) + b * places * channels;                                                        \
      int32_t zero = ZERO;                                                                                            \
      for (int32_t place = 0; place < places; place += ROWS) {                                                        \
        int32_t count = least(ROWS, places - place), less[ROWS] = {0};                                                \
        for (int32_t r = 0; r < ROWS; r++)                                                                            \
          if (r < count) {                                                                                            \
            gather_##name##_arguments(a, input, place + r, rows + r * 2 * pairs, zero);                               \
            if (WEIGHTS_ZERO) less[r] = WEIGHTS_ZERO * sum_of(rows + r * 2 * pairs, 2 * pairs);                       \
          }                                                                                                           \
        for (int32_t channel = 0; channel < channels; channel += 8) {                                                 \
          const int8_t *w = weights + channel * 2 * pairs;                                                            \
          int32x8 sums[ROWS] = {START(bias, channel)};                                                                \
          if (count == 1)                                                                                             \
            sums[0] = one_row(rows, w, sums[0], pairs);                                                               \
          else                                                                                                        \
            four_rows(rows, w, sums, pairs);                                                                          \
          for (int32_t r = 0; r < ROWS; r++)                                                                          \
            if (r < count) {                                                                                          \
              int32x8 sum = sums[r] - all_int(less[r]);                                                               \
              STORE(output + (place + r) * channels + channel, sum, channels - channel);                              \
            }                                                                                                         \
        }                                                                                                             \
      }                                                                                                               \
    }                                                                                                                 \
  }

#define START(bias, channel) bias_of(bias, channel)
#define LITERT(to, sum, count)                                                                                        \
  store_int8(to, rounded(sum, AT(const float, multipliers) + channel, a->output_zero, a->low, a->high), count)
CONVOLUTION(KERNEL, convolution_int8, int8_t, a->input_zero, a->weights_zero, LITERT)

INLINE int32x8 fixed(int32x8 sums, const int32_t *multipliers, const int32_t *shifts, int32_t single, int32_t zero,
                     int32_t low, int32_t high) {
#pragma clang loop unroll(disable)
  for (int i = 0; i < 8; i++) {
    int32_t value = single ? scaled_once(sums[i], multipliers[i], shifts[i])
                           : scaled_twice(sums[i], multipliers[i], shifts[i]);
    sums[i] = least(most(value + zero, low), high);
  }
  return sums;
}
#define FIXED(to, sum, count)                                                                                         \
  store_int8(to, fixed(sum, AT(const int32_t, multipliers) + channel, AT(const int32_t, shifts) + channel,            \
                       a->single, a->output_zero, a->low, a->high), count)
CONVOLUTION(COLD, convolution_int8_fixed, int8_t, a->input_zero, a->weights_zero, FIXED)

/* XNNPACK's qd8-f32-qc8w: the sum times the scale of the sample, then times that of the channel and the bias in one
   rounding, as by a fused multiply-add. */
INLINE void store_scaled(float *output, int32x8 sums, const float *scales, const float *bias, float scale, float low,
                         float high, int32_t count) {
#pragma clang loop unroll(disable)
  for (int i = 0; i < least(count, 8); i++) {
    float value = (float)((double)((float)sums[i] * scale) * scales[i] + bias[i]);
    output[i] = least_float(most_float(value, low), high);
  }
}
#undef START
#define START(bias, channel) all_int(0)
#define SCALED(to, sum, count)                                                                                        \
  store_scaled(to, sum, AT(const float, multipliers) + channel, (const float *)bias + channel,                        \
               AT(const float, parameters)[2 * b], a->low, a->high, count)
CONVOLUTION(COLD, convolution_hybrid, float, (int32_t)AT(const float, parameters)[2 * b + 1], 0, SCALED)
