/* LSTM over a sequence: floats, and int8 with gates and cells of int16 as TFLite has them (lstm_eval.cc). The functions
   of the gates are gemmlowp's (fixedpoint/fixedpoint.h) in int16, without a table: a module has no data of its own. */
#include "vectors.h"

INLINE int32_t saturated(int32_t value) { return least(most(value, -32768), 32767); }

/* SaturatingRoundingDoublingHighMul of int16. */
INLINE int32_t short_product(int32_t a, int32_t b) {
  if (a == -32768 && b == -32768) return 32767;
  int32_t product = a * b;
  return (product + (product >= 0 ? 1 << 14 : 1 - (1 << 14))) / (INT32_C(1) << 15);
}

/* RoundingDivideByPOT. */
INLINE int32_t halved(int32_t value, int32_t shift) {
  int32_t mask = (int32_t)(((uint32_t)1 << shift) - 1), rest = value & mask;
  return (value >> shift) + (rest > (mask >> 1) + (value < 0) ? 1 : 0);
}

/* A constant of 31 bits behind the point in 15. */
#define CONSTANT(value) (((value) + 32768) >> 16)

/* Times e^-(2^power) where the rest has this bit. */
#define FACTOR(power, value) \
  if (power < bits && rest & (1 << (15 - bits + power))) result = short_product(result, CONSTANT(value));

/* e^a of a <= 0 with so many bits before the point, 15 behind it in the result. */
INLINE int32_t exponential_of_negative(int32_t a, int32_t bits) {
  int32_t quarter = 1 << (13 - bits);
  int32_t part = (a & (quarter - 1)) - quarter;
  int32_t x = saturated(part * (1 << bits)) + (1 << 12);
  int32_t x2 = short_product(x, x), x3 = short_product(x2, x), x4 = short_product(x2, x2);
  int32_t tail = halved(short_product(halved(x4, 2) + x3, CONSTANT(715827883)) + x2, 1);
  int32_t first = CONSTANT(1895147668);
  int32_t result = saturated(first + short_product(first, x + tail));
  int32_t rest = part - a;
  FACTOR(-2, 1672461947)
  FACTOR(-1, 1302514674)
  FACTOR(0, 790015084)
  FACTOR(1, 290630308)
  FACTOR(2, 39332535)
  FACTOR(3, 720401)
  FACTOR(4, 242)
  return a == 0 ? 32767 : result;
}

/* Three steps of Newton's method from 48/17 - 32/17 d towards 1/d, d = (a + 1) / 2; 2 bits before the point. */
INLINE int32_t inverse_of_half_sum(int32_t a) {
  int32_t sum = a + INT32_C(32767), half = (sum + (sum >= 0 ? 1 : -1)) / 2;
  int32_t x = CONSTANT(1515870810) + short_product(half, CONSTANT(-1010580540));
  for (int32_t i = 0; i < 3; i++) x += saturated(short_product(x, (1 << 13) - short_product(half, x)) * 4);
  return x;
}

/* The logistic function of a value with 3 bits before the point, or the hyperbolic tangent of one with so many. */
INLINE int32_t activated_fixed(int32_t a, int32_t bits, int32_t is_tanh) {
  if (a == 0) return is_tanh ? 0 : 1 << 14;
  int32_t lower = a < 0 ? a : -a;
  int32_t inverse = inverse_of_half_sum(exponential_of_negative(lower, bits + is_tanh));
  int32_t value = saturated(is_tanh ? (inverse - (1 << 13)) * 4 : inverse * 2);
  if (is_tanh) return a < 0 ? -value : value;
  return a > 0 ? value : 32767 - value;
}

INLINE int32_t dot_int8(const int8_t *weights, const int8_t *values, int32_t count) {
  int32x8 sums = all_int(0);
  int32_t k = 0, total = 0;
  for (; k + 16 <= count; k += 16) sums = add_pairs(sums, wide(weights + k), wide(values + k));
  for (; k < count; k++) total += weights[k] * values[k];
  for (int i = 0; i < 8; i++) total += sums[i];
  return total;
}

COLD(lstm_int8) {
  int32_t cells = a->cells, inputs = a->inputs;
  const int8_t *weights = AT(const int8_t, weights), *recurrent = AT(const int8_t, recurrent);
  const int32_t *bias = AT(const int32_t, bias), *recurrent_bias = AT(const int32_t, recurrent_bias);
  int16_t *gates = AT(int16_t, scratch);
  const int32_t scales[4][4] = {
    {a->input_multiplier, a->input_shift, a->input_recurrent_multiplier, a->input_recurrent_shift},
    {a->forget_multiplier, a->forget_shift, a->forget_recurrent_multiplier, a->forget_recurrent_shift},
    {a->cell_multiplier, a->cell_shift, a->cell_recurrent_multiplier, a->cell_recurrent_shift},
    {a->output_multiplier, a->output_shift, a->output_recurrent_multiplier, a->output_recurrent_shift},
  };
  for (int32_t b = 0; b < a->batch; b++) {
    int8_t *hidden = AT(int8_t, hidden) + b * cells;
    int16_t *cell = AT(int16_t, cell) + b * cells;
    for (int32_t step = 0; step < a->steps; step++) {
      const int8_t *input = AT(const int8_t, input) + (b * a->steps + step) * inputs;
      int8_t *output = AT(int8_t, output) + (b * a->steps + step) * cells;
      /* The four gates, then the outputs: one loop, so that the functions stand in it once. */
      for (int32_t row = 0; row < 5 * cells; row++) {
        int32_t gate = row / cells, i = row - 4 * cells, value, bits = 3;
        if (gate < 4) {
          const int32_t *s = scales[gate];
          int32_t sum = bias[row] + dot_int8(weights + row * inputs, input, inputs);
          value = saturated(scaled_twice(sum, s[0], s[1]));
          sum = recurrent_bias[row] + dot_int8(recurrent + row * cells, hidden, cells);
          value = saturated(scaled_twice(sum, s[2], s[3]) + value);
        } else {
          int32_t kept = halved((int32_t)gates[cells + i] * cell[i], 15);
          int32_t added = halved((int32_t)gates[i] * gates[2 * cells + i], 30 - a->cell_bits);
          value = saturated((int32_t)(int16_t)kept + (int16_t)added);
          if (a->clip > 0) value = least(most(value, -a->clip), a->clip);
          cell[i] = (int16_t)value;
          bits = 15 - a->cell_bits;
        }
        int32_t result = activated_fixed(value, bits, gate == 2 || gate == 4);
        if (gate < 4) {
          gates[row] = (int16_t)result;
        } else {
          result = scaled_twice(gates[3 * cells + i] * result, a->hidden_multiplier, a->hidden_shift) + a->hidden_zero;
          output[i] = (int8_t)least(most(result, -128), 127);
        }
      }
      for (int32_t i = 0; i < cells; i++) hidden[i] = output[i];
    }
  }
}

INLINE float dot_float(const float *weights, const float *values, int32_t count) {
  float32x8 sums = all_float(0.0f);
  int32_t k = 0;
  for (; k + 8 <= count; k += 8) sums += *(const float32x8 *)(weights + k) * *(const float32x8 *)(values + k);
  float total = ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
  for (; k < count; k++) total += weights[k] * values[k];
  return total;
}

INLINE float activated_float(float x, int32_t is_tanh) {
  float size = x < 0 ? -x : x;
  if (is_tanh && size < 0.625f) return small_tangent(x);
  float power = exponential(is_tanh ? 2.0f * size : -x);
  if (!is_tanh) return 1.0f / (1.0f + power);
  return x < 0 ? 2.0f / (power + 1.0f) - 1.0f : 1.0f - 2.0f / (power + 1.0f);
}

COLD(lstm_float) {
  int32_t cells = a->cells, inputs = a->inputs;
  const float *weights = AT(const float, weights), *recurrent = AT(const float, recurrent), *bias = AT(const float, bias);
  float *gates = AT(float, scratch);
  for (int32_t b = 0; b < a->batch; b++) {
    float *hidden = AT(float, hidden) + b * cells, *cell = AT(float, cell) + b * cells;
    for (int32_t step = 0; step < a->steps; step++) {
      const float *input = AT(const float, input) + (b * a->steps + step) * inputs;
      float *output = AT(float, output) + (b * a->steps + step) * cells;
      for (int32_t row = 0; row < 5 * cells; row++) {
        int32_t gate = row / cells, i = row - 4 * cells;
        float value;
        if (gate < 4) {
          value = bias[row] + dot_float(weights + row * inputs, input, inputs);
          value += dot_float(recurrent + row * cells, hidden, cells);
        } else {
          value = gates[cells + i] * cell[i] + gates[i] * gates[2 * cells + i];
          if (a->clip > 0) value = least_float(most_float(value, -a->clip), a->clip);
          cell[i] = value;
        }
        float result = activated_float(value, gate == 2 || gate == 4);
        if (gate < 4)
          gates[row] = result;
        else
          output[i] = gates[3 * cells + i] * result;
      }
      for (int32_t i = 0; i < cells; i++) hidden[i] = output[i];
    }
  }
}
