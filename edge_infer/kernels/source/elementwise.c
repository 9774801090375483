/* One element in, one element out; two operands may be repeated along dimensions. */
#include "vectors.h"

/* Run BODY for each row of outputs, with the places of both operands where it begins. */
#define ROWS_OF_BOTH(BODY)                                                                                            \
  for (int32_t i = 0, out = 0; i < a->size_0; i++)                                                                    \
    for (int32_t j = 0; j < a->size_1; j++)                                                                           \
      for (int32_t k = 0; k < a->size_2; k++) {                                                                       \
        int32_t x = i * a->first_0 + j * a->first_1 + k * a->first_2;                                                 \
        int32_t y = i * a->second_0 + j * a->second_1 + k * a->second_2;                                              \
        BODY                                                                                                          \
      }

/* Run BODY for each output element, with the places of both operands. */
#define BROADCAST(BODY)                                                                                               \
  ROWS_OF_BOTH(for (int32_t l = 0; l < a->size_3; l++, out++, x += a->first_3, y += a->second_3) BODY)

/* XNNPACK's int8 addition (qs8-vadd-minmax): both operands times integers, and a rounded shift to the right. */
COLD(add_int8) {
  const int8_t *first = AT(const int8_t, first), *second = AT(const int8_t, second);
  int8_t *output = AT(int8_t, output);
  int32_t is_side = a->first_3 == 1 && a->second_3 == 1;
  ROWS_OF_BOTH({
    int32_t l = 0;
    for (; is_side && l + 8 <= a->size_3; l += 8, out += 8, x += 8, y += 8) {
      int32x8 sum = eight_bytes(first + x) * a->first_multiplier + eight_bytes(second + y) * a->second_multiplier;
      sum = ((sum + a->bias) >> a->shift) + a->output_zero;
      sum = __builtin_elementwise_min(__builtin_elementwise_max(sum, all_int(a->low)), all_int(a->high));
      store_int8(output + out, sum, 8);
    }
    for (; l < a->size_3; l++, out++, x += a->first_3, y += a->second_3) {
      int32_t sum = a->bias + first[x] * a->first_multiplier + second[y] * a->second_multiplier;
      output[out] = (int8_t)least(most((sum >> a->shift) + a->output_zero, a->low), a->high);
    }
  })
}

/* TFLite's int8 ADD and SUB (reference/integer_ops/add.h): both operands in a common scale with 20 more bits. What an
   operand gives depends on its 8 bits alone. */
COLD(add_int8_fixed) {
  const int8_t *first = AT(const int8_t, first), *second = AT(const int8_t, second);
  int8_t *output = AT(int8_t, output);
  int32_t of_first[256], of_second[256];
  for (int32_t i = 0; i < 256; i++) {
    of_first[i] = scaled_twice((i - 128 - a->first_zero) * (1 << 20), a->first_multiplier, a->first_shift);
    of_second[i] = scaled_twice((i - 128 - a->second_zero) * (1 << 20), a->second_multiplier, a->second_shift);
    if (a->subtract) of_second[i] = -of_second[i];
  }
  BROADCAST({
    int32_t sum = of_first[first[x] + 128] + of_second[second[y] + 128];
    int32_t value = scaled_twice(sum, a->output_multiplier, a->output_shift) + a->output_zero;
    output[out] = (int8_t)least(most(value, a->low), a->high);
  })
}

/* The product rounded as XNNPACK does (qs8-vmul, fp32). */
COLD(multiply_int8) {
  const int8_t *first = AT(const int8_t, first), *second = AT(const int8_t, second);
  int8_t *output = AT(int8_t, output);
  BROADCAST({
    float value = (float)((first[x] - a->first_zero) * (second[y] - a->second_zero)) * a->multiplier;
    output[out] = (int8_t)rounded_one(value, a->output_zero, a->low, a->high);
  })
}

COLD(multiply_int8_fixed) {
  const int8_t *first = AT(const int8_t, first), *second = AT(const int8_t, second);
  int8_t *output = AT(int8_t, output);
  BROADCAST({
    int32_t product = (first[x] - a->first_zero) * (second[y] - a->second_zero);
    int32_t value = scaled_twice(product, a->multiplier, a->shift) + a->output_zero;
    output[out] = (int8_t)least(most(value, a->low), a->high);
  })
}

enum { ADD, SUBTRACT, MULTIPLY, DIVIDE, MAXIMUM, MINIMUM, PRELU, SQUARED_DIFFERENCE };

INLINE float combined(int32_t operation, float x, float y) {
  switch (operation) {
    case ADD: return x + y;
    case SUBTRACT: return x - y;
    case MULTIPLY: return x * y;
    case DIVIDE: return x / y;
    case MAXIMUM: return most_float(x, y);
    case MINIMUM: return least_float(x, y);
    case PRELU: return x < 0.0f ? x * y : x;
    default: return (x - y) * (x - y);
  }
}

COLD(binary_float) {
  const float *first = AT(const float, first), *second = AT(const float, second);
  float *output = AT(float, output);
  int32_t operation = a->operation;
  int32_t is_side = a->second_3 == 1, is_simple = operation <= MULTIPLY && a->first_3 == 1 && (is_side || !a->second_3);
  ROWS_OF_BOTH({
    int32_t l = 0;
    for (; is_simple && l + 8 <= a->size_3; l += 8, out += 8, x += 8, y += 8 * is_side) {
      float32x8 value = *(const float32x8 *)(first + x);
      float32x8 other = is_side ? *(const float32x8 *)(second + y) : all_float(second[y]);
      value = operation == ADD ? value + other : operation == MULTIPLY ? value * other : value - other;
      store_float(output + out, clamped(value, a->low, a->high), 8);
    }
    for (; l < a->size_3; l++, out++, x += a->first_3, y += a->second_3)
      output[out] = least_float(most_float(combined(operation, first[x], second[y]), a->low), a->high);
  })
}

enum { CLAMP, LOGISTIC, TANH, EXP, HARD_SWISH, LEAKY_RELU, ABS, NEG, SQRT, RSQRT, SQUARE, ELU, LOG };

INLINE float root(float x) { return __builtin_sqrtf(x); }

INLINE float of_one(int32_t operation, float x, float alpha, float low, float high) {
  switch (operation) {
    case CLAMP: return least_float(most_float(x, low), high);
    case LOGISTIC: return 1.0f / (1.0f + exponential(-x));
    case TANH: {
      float size = x < 0 ? -x : x;
      if (size < 0.625f) return small_tangent(x);
      float value = 1.0f - 2.0f / (exponential(2.0f * size) + 1.0f);
      return x < 0 ? -value : value;
    }
    case EXP: return exponential(x);
    case HARD_SWISH: return x * least_float(most_float(x + 3.0f, 0.0f), 6.0f) / 6.0f;
    case LEAKY_RELU: return x < 0.0f ? x * alpha : x;
    case ABS: return x < 0 ? -x : x;
    case NEG: return -x;
    case SQRT: return root(x);
    case RSQRT: return 1.0f / root(x);
    case SQUARE: return x * x;
    case LOG: return logarithm(x);
    default:
      if (x >= 0.0f) return x;
      /* Near 0 the difference loses digits. */
      return x > -0.34f ? small_exponential_less_one(x) : exponential(x) - 1.0f;
  }
}

COLD(unary_float) {
  const float *input = AT(const float, input);
  float *output = AT(float, output);
  for (int32_t i = 0; i < a->count; i++) output[i] = of_one(a->operation, input[i], a->alpha, a->low, a->high);
}

COLD(table_int8) {
  const int8_t *input = AT(const int8_t, input), *table = AT(const int8_t, table);
  int8_t *output = AT(int8_t, output);
  for (int32_t i = 0; i < a->count; i++) output[i] = table[input[i] + 128];
}

COLD(flip_sign) {
  const uint8_t *input = AT(const uint8_t, input);
  uint8_t *output = AT(uint8_t, output);
  for (int32_t i = 0; i < a->count; i++) output[i] = input[i] ^ 0x80;
}

/* XNNPACK's conversion: times the inverse of the scale, to the nearest, ties to even. */
COLD(quantize_float) {
  const float *input = AT(const float, input);
  int8_t *output = AT(int8_t, output);
  float inverse = 1.0f / a->scale;
  for (int32_t i = 0; i < a->count; i++)
    output[i] = (int8_t)rounded_one(input[i] * inverse, a->zero, a->low, a->high);
}

/* TFLite's AffineQuantize: divided by the scale, halves away from zero. */
COLD(quantize_float_fixed) {
  const float *input = AT(const float, input);
  int8_t *output = AT(int8_t, output);
  for (int32_t i = 0; i < a->count; i++) {
    float value = input[i] / a->scale;
    value = value > -1e6f ? least_float(value, 1e6f) : -1e6f; /* NaN becomes the lowest, as in TFLite on x86 */
    int32_t whole = (int32_t)value; /* towards zero */
    float rest = value - (float)whole;
    whole += rest >= 0.5f ? 1 : rest <= -0.5f ? -1 : 0;
    output[i] = (int8_t)least(most(whole + a->zero, a->low), a->high);
  }
}

COLD(dequantize_int8) {
  const int8_t *input = AT(const int8_t, input);
  float *output = AT(float, output);
  for (int32_t i = 0; i < a->count; i++) output[i] = (float)(input[i] - a->zero) * a->scale;
}

/* TFLite's Requantize between integers of 1, 2 and 4 bytes. */
COLD(requantize) {
  const uint8_t *input = AT(const uint8_t, input);
  uint8_t *output = AT(uint8_t, output);
  for (int32_t i = 0; i < a->count; i++) {
    int32_t value = integer_at(input, i, a->input_bytes) - a->input_zero;
    value = saturated_sum(scaled_twice(value, a->multiplier, a->shift), a->output_zero);
    value = least(most(value, a->low), a->high);
    put_integer(output, i, a->output_bytes, value);
  }
}
