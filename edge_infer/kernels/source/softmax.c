/* Softmax over the last dimension. */
#include "vectors.h"

/* TFLite's optimized int8 softmax (optimized_ops.h): exponentials from a table of 256 floats, for 255 steps below the
   maximum up to the maximum itself. */
KERNEL(softmax_int8) {
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

KERNEL(softmax_float) {
  const float *input = AT(const float, input);
  float *output = AT(float, output);
  for (int32_t row = 0; row < a->rows; row++, input += a->columns, output += a->columns) {
    float highest = input[0], sum = 0.0f;
    for (int32_t i = 1; i < a->columns; i++) highest = most_float(highest, input[i]);
    for (int32_t i = 0; i < a->columns; i++) {
      output[i] = exponential((input[i] - highest) * a->beta);
      sum += output[i];
    }
    for (int32_t i = 0; i < a->columns; i++) output[i] /= sum;
  }
}
