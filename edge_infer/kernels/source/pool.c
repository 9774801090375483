/* Pools and means. */
#include "vectors.h"

/* Halves away from zero. */
INLINE int32_t rounded_mean(int32_t sum, int32_t count) {
  return sum > 0 ? (sum + count / 2) / count : (sum - count / 2) / count;
}

/* Run the window of each output: START, then STEP with `value` for each input inside the image, then END. */
#define POOL(name, type, sum_type, START, STEP, END)                                                                   \
  COLD(name) {                                                                                                         \
    int32_t channels = a->output_channels;                                                                             \
    for (int32_t b = 0; b < a->batch; b++) {                                                                           \
      const type *input = AT(const type, input) + b * a->input_height * a->input_width * channels;                     \
      type *output = AT(type, output) + b * a->output_height * a->output_width * channels;                             \
      for (int32_t oy = 0; oy < a->output_height; oy++)                                                                \
        for (int32_t ox = 0; ox < a->output_width; ox++, output += channels) {                                         \
          int32_t top = oy * a->stride_height - a->pad_top, left = ox * a->stride_width - a->pad_left;                 \
          int32_t first_y = most(top, 0), last_y = least(top + a->kernel_height, a->input_height);                     \
          int32_t first_x = most(left, 0), last_x = least(left + a->kernel_width, a->input_width);                     \
          for (int32_t channel = 0; channel < channels; channel++) {                                                   \
            sum_type sum = START;                                                                                      \
            for (int32_t y = first_y; y < last_y; y++)                                                                 \
              for (int32_t x = first_x; x < last_x; x++) {                                                             \
                sum_type value = input[(y * a->input_width + x) * channels + channel];                                 \
                STEP;                                                                                                  \
              }                                                                                                        \
            sum_type result = END;                                                                                     \
            result = result < a->low ? a->low : result;                                                                \
            output[channel] = (type)(a->high < result ? a->high : result);                                             \
          }                                                                                                            \
        }                                                                                                              \
    }                                                                                                                  \
  }

POOL(average_pool_int8, int8_t, int32_t, 0, sum += value, rounded_mean(sum, (last_y - first_y) * (last_x - first_x)))

/* Of uint8 with the sign flipped: TFLite rounds the unsigned sum. */
POOL(average_pool_uint8, int8_t, int32_t, 0, sum += value + 128,
     rounded_mean(sum, (last_y - first_y) * (last_x - first_x)) - 128)

POOL(max_pool_int8, int8_t, int32_t, -128, sum = most(sum, value), sum)

POOL(average_pool_float, float, float, 0.0f, sum += value, sum / (float)((last_y - first_y) * (last_x - first_x)))

POOL(max_pool_float, float, float, -3.4028235e38f, sum = most_float(sum, value), sum)

/* XNNPACK's quantized mean along one axis of [outer, reduced, inner]: the sum times a float, to the nearest, ties to even. */
COLD(mean_int8) {
  const int8_t *input = AT(const int8_t, input);
  int8_t *output = AT(int8_t, output);
  for (int32_t o = 0; o < a->outer; o++, input += a->reduced * a->inner)
    for (int32_t i = 0; i < a->inner; i++) {
      int32_t sum = 0;
      for (int32_t r = 0; r < a->reduced; r++) sum += input[r * a->inner + i] - a->input_zero;
      *output++ = (int8_t)rounded_one((float)sum * a->multiplier, a->output_zero, -128, 127);
    }
}

/* TFLite's quantized mean (reference/integer_ops/mean.h): the multiplier holds the scales and the count. */
COLD(mean_int8_fixed) {
  const int8_t *input = AT(const int8_t, input);
  int8_t *output = AT(int8_t, output);
  for (int32_t o = 0; o < a->outer; o++, input += a->reduced * a->inner)
    for (int32_t i = 0; i < a->inner; i++) {
      int32_t sum = 0;
      for (int32_t r = 0; r < a->reduced; r++) sum += input[r * a->inner + i] - a->input_zero;
      int32_t value = scaled_twice(sum, a->multiplier, a->shift) + a->output_zero;
      *output++ = (int8_t)least(most(value, -128), 127);
    }
}

COLD(mean_float) {
  const float *input = AT(const float, input);
  float *output = AT(float, output);
  for (int32_t o = 0; o < a->outer; o++, input += a->reduced * a->inner)
    for (int32_t i = 0; i < a->inner; i++) {
      float sum = 0.0f;
      for (int32_t r = 0; r < a->reduced; r++) sum += input[r * a->inner + i];
      *output++ = sum / (float)a->reduced;
    }
}
