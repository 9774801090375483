/* Softmax over the last dimension. */
#include "vectors.h"

/* TFLite's optimized int8 softmax (optimized_ops.h): exponentials from a table of 256 floats, for 255 steps below the
   maximum up to the maximum itself. */
COLD(softmax_int8) {
  const int8_t *input = AT(const int8_t, input);
  const float *table = AT(const float, table);
  int8_t *output = AT(int8_t, output);
  for (int32_t row = 0; row < a->rows; row++, input += a->columns, output += a->columns) {
    int32_t highest = -128;
    for (int32_t i = 0; i < a->columns; i++) highest = most(highest, input[i]);
    const float *powers = table + 255 - highest;
    float sum = 0.0f;
    for (int32_t i = 0; i < a->columns; i++) sum += powers[input[i]];
    float inverse = 1.0f / (sum * a->output_scale);
    for (int32_t i = 0; i < a->columns; i++) {
      int32_t value = (int32_t)(powers[input[i]] * inverse + 0.5f) + a->output_zero;
      output[i] = (int8_t)least(most(value, -128), 127);
    }
  }
}

COLD(softmax_float) {
  const float *input = AT(const float, input);
  float *output = AT(float, output);
  for (int32_t row = 0; row < a->rows; row++, input += a->columns, output += a->columns) {
    float highest = input[0], sum = 0.0f;
    for (int32_t i = 1; i < a->columns; i++) highest = most_float(highest, input[i]);
    for (int32_t i = 0; i < a->columns; i++) {
      float power = (input[i] - highest) * a->beta, value = exponential(power);
      output[i] = a->is_log ? power : value;
      sum += value;
    }
    float less = a->is_log ? logarithm(sum) : 0.0f;
    for (int32_t i = 0; i < a->columns; i++) output[i] = a->is_log ? output[i] - less : output[i] / sum;
  }
}

/* gemmlowp's SaturatingRoundingDoublingHighMul. */
INLINE int32_t high_product(int32_t a, int32_t b) { return scaled_twice(a, b, 0); }

/* gemmlowp's RoundingDivideByPOT. */
INLINE int32_t rounded_shift(int32_t value, int32_t shift) {
  if (shift > 31) return 0;
  int32_t mask = (int32_t)(((uint32_t)1 << shift) - 1), rest = value & mask;
  return (value >> shift) + (rest > (mask >> 1) + (value < 0) ? 1 : 0);
}

/* SaturatingRoundingMultiplyByPOT to the left. */
INLINE int32_t shifted_left(int32_t value, int32_t bits) {
  int64_t wide = (int64_t)value * ((int64_t)1 << bits);
  return wide > 0x7FFFFFFF ? 0x7FFFFFFF : wide < -0x7FFFFFFF - 1 ? -0x7FFFFFFF - 1 : (int32_t)wide;
}

/* TFLite's reference softmax of int8 (reference/softmax.h), in fixed point throughout: exponentials with 31 bits behind
   the point from a table of 256, for 255 steps below the maximum up to the maximum itself. */
COLD(softmax_int8_fixed) {
  const int8_t *input = AT(const int8_t, input);
  const int32_t *table = AT(const int32_t, table);
  uint8_t *output = AT(uint8_t, output);
  for (int32_t row = 0; row < a->rows; row++, input += a->columns, output += a->columns * a->output_bytes) {
    int32_t highest = -128, sum = 0;
    for (int32_t i = 0; i < a->columns; i++) highest = most(highest, input[i]);
    const int32_t *powers = table + 255 - highest;
    for (int32_t i = 0; i < a->columns; i++) sum = saturated_sum(sum, rounded_shift(powers[input[i]], 12));
    /* GetReciprocal: 1/(1 + x) by three steps of Newton's method, x the rest of the sum. */
    int32_t zeros = leading_zeros((uint32_t)sum);
    int32_t rest = (int32_t)(((uint32_t)sum << zeros) - ((uint32_t)1 << 31));
    int32_t half = (int32_t)(((int64_t)rest + 0x7FFFFFFF + 1) / 2);
    int32_t x = 1515870810 + high_product(half, -1010580540);
    for (int32_t i = 0; i < 3; i++) x += shifted_left(high_product(x, (INT32_C(1) << 29) - high_product(half, x)), 2);
    int32_t inverse = shifted_left(x, 1), bits = 12 - zeros + 31 - 8 * a->output_bytes;
    int32_t lowest = a->output_bytes == 1 ? -128 : -32768;
    for (int32_t i = 0; i < a->columns; i++) {
      int32_t value = saturated_sum(rounded_shift(high_product(inverse, powers[input[i]]), bits), lowest);
      put_integer(output, i, a->output_bytes, least(most(value, lowest), -1 - lowest));
    }
  }
}
