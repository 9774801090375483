/* XNNPACK's addition: both operands times integers, and a rounded shift to the right. A stride is 0 where an operand is
   repeated. */
static void add_int8(const struct add_int8_call *a) {
  const int8_t *first = a->first, *second = a->second;
  int8_t *output = a->output;
  int32_t i, j, k, l;
  for (i = 0; i < a->size_0; i++)
    for (j = 0; j < a->size_1; j++)
      for (k = 0; k < a->size_2; k++) {
        const int8_t *x = first + i * a->first_0 + j * a->first_1 + k * a->first_2;
        const int8_t *y = second + i * a->second_0 + j * a->second_1 + k * a->second_2;
        for (l = 0; l < a->size_3; l++, x += a->first_3, y += a->second_3) {
          int32_t sum = a->bias + *x * a->first_multiplier + *y * a->second_multiplier;
          *output++ = (int8_t)least(most((sum >> a->shift) + a->output_zero, a->low), a->high);
        }
      }
}

/* ADD and SUB: both operands in a common scale with 20 more bits. A stride is 0 where an operand is repeated. */
static void add_int8_fixed(const struct add_int8_fixed_call *a) {
  const int8_t *first = a->first, *second = a->second;
  int8_t *output = a->output;
  int32_t i, j, k, l;
  for (i = 0; i < a->size_0; i++)
    for (j = 0; j < a->size_1; j++)
      for (k = 0; k < a->size_2; k++) {
        const int8_t *x = first + i * a->first_0 + j * a->first_1 + k * a->first_2;
        const int8_t *y = second + i * a->second_0 + j * a->second_1 + k * a->second_2;
        for (l = 0; l < a->size_3; l++, x += a->first_3, y += a->second_3) {
          int32_t one = scaled_twice((*x - a->first_zero) * (INT32_C(1) << 20), a->first_multiplier, a->first_shift);
          int32_t two = scaled_twice((*y - a->second_zero) * (INT32_C(1) << 20), a->second_multiplier, a->second_shift);
          int32_t sum = scaled_twice(a->subtract ? one - two : one + two, a->output_multiplier, a->output_shift);
          *output++ = (int8_t)least(most(sum + a->output_zero, a->low), a->high);
        }
      }
}

static void multiply_int8(const struct multiply_int8_call *a) {
  const int8_t *first = a->first, *second = a->second;
  int8_t *output = a->output;
  int32_t i, j, k, l;
  for (i = 0; i < a->size_0; i++)
    for (j = 0; j < a->size_1; j++)
      for (k = 0; k < a->size_2; k++) {
        const int8_t *x = first + i * a->first_0 + j * a->first_1 + k * a->first_2;
        const int8_t *y = second + i * a->second_0 + j * a->second_1 + k * a->second_2;
        for (l = 0; l < a->size_3; l++, x += a->first_3, y += a->second_3) {
          float value = (float)((*x - a->first_zero) * (*y - a->second_zero)) * a->multiplier;
          *output++ = (int8_t)rounded(value, a->output_zero, a->low, a->high);
        }
      }
}

static void multiply_int8_fixed(const struct multiply_int8_fixed_call *a) {
  const int8_t *first = a->first, *second = a->second;
  int8_t *output = a->output;
  int32_t i, j, k, l;
  for (i = 0; i < a->size_0; i++)
    for (j = 0; j < a->size_1; j++)
      for (k = 0; k < a->size_2; k++) {
        const int8_t *x = first + i * a->first_0 + j * a->first_1 + k * a->first_2;
        const int8_t *y = second + i * a->second_0 + j * a->second_1 + k * a->second_2;
        for (l = 0; l < a->size_3; l++, x += a->first_3, y += a->second_3) {
          int32_t product = (int32_t)(*x - a->first_zero) * (*y - a->second_zero);
          int32_t value = scaled_twice(product, a->multiplier, a->shift) + a->output_zero;
          *output++ = (int8_t)least(most(value, a->low), a->high);
        }
      }
}

static float combined(int32_t operation, float x, float y) {
  switch (operation) {
    case 0: return x + y;
    case 1: return x - y;
    case 2: return x * y;
    case 3: return x / y;
    case 4: return most_float(x, y);
    case 5: return least_float(x, y);
    case 6: return x < 0.0f ? x * y : x;
    default: return (x - y) * (x - y);
  }
}

static void binary_float(const struct binary_float_call *a) {
  const float *first = a->first, *second = a->second;
  float *output = a->output;
  int32_t i, j, k, l;
  for (i = 0; i < a->size_0; i++)
    for (j = 0; j < a->size_1; j++)
      for (k = 0; k < a->size_2; k++) {
        const float *x = first + i * a->first_0 + j * a->first_1 + k * a->first_2;
        const float *y = second + i * a->second_0 + j * a->second_1 + k * a->second_2;
        for (l = 0; l < a->size_3; l++, x += a->first_3, y += a->second_3) {
          *output++ = least_float(most_float(combined(a->operation, *x, *y), a->low), a->high);
        }
      }
}

/* clamp, logistic, tanh, exp, hard swish, leaky ReLU, abs, neg, sqrt, 1/sqrt, square, ELU, log: as they are numbered. */
static float of_one(int32_t operation, float x, float alpha, float low, float high) {
  float size = x < 0 ? -x : x, value;
  switch (operation) {
    case 0: return least_float(most_float(x, low), high);
    case 1: return 1.0f / (1.0f + exponential(-x));
    case 2:
      if (size < 0.625f) return small_tangent(x);
      value = 1.0f - 2.0f / (exponential(2.0f * size) + 1.0f);
      return x < 0 ? -value : value;
    case 3: return exponential(x);
    case 4: return x * least_float(most_float(x + 3.0f, 0.0f), 6.0f) / 6.0f;
    case 5: return x < 0.0f ? x * alpha : x;
    case 6: return size;
    case 7: return -x;
    case 8: return sqrtf(x);
    case 9: return 1.0f / sqrtf(x);
    case 10: return x * x;
    case 12: return logarithm(x);
    default:
      if (x >= 0.0f) return x;
      /* Near 0 the difference loses digits. */
      return x > -0.34f ? small_exponential_less_one(x) : exponential(x) - 1.0f;
  }
}

static void unary_float(const struct unary_float_call *a) {
  const float *input = a->input;
  float *output = a->output;
  int32_t i;
  for (i = 0; i < a->count; i++) output[i] = of_one(a->operation, input[i], a->alpha, a->low, a->high);
}

/* What an int8 becomes was computed beforehand, for all 256. */
static void table_int8(const struct table_int8_call *a) {
  const int8_t *input = a->input, *table = a->table;
  int8_t *output = a->output;
  int32_t i;
  for (i = 0; i < a->count; i++) output[i] = table[input[i] + 128];
}

/* From uint8 to int8 and back. */
static void flip_sign(const struct flip_sign_call *a) {
  const uint8_t *input = a->input;
  uint8_t *output = a->output;
  int32_t i;
  for (i = 0; i < a->count; i++) output[i] = input[i] ^ 0x80;
}

static void quantize_float(const struct quantize_float_call *a) {
  const float *input = a->input;
  int8_t *output = a->output;
  float inverse = 1.0f / a->scale;
  int32_t i;
  for (i = 0; i < a->count; i++) output[i] = (int8_t)rounded(input[i] * inverse, a->zero, a->low, a->high);
}

/* Divided by the scale, halves away from zero. NaN becomes the lowest. */
static void quantize_float_fixed(const struct quantize_float_fixed_call *a) {
  const float *input = a->input;
  int8_t *output = a->output;
  int32_t i;
  for (i = 0; i < a->count; i++) {
    float value = input[i] / a->scale, rest;
    int32_t whole;
    value = value > -1e6f ? least_float(value, 1e6f) : -1e6f;
    whole = (int32_t)value; /* towards zero */
    rest = value - (float)whole;
    whole += rest >= 0.5f ? 1 : rest <= -0.5f ? -1 : 0;
    output[i] = (int8_t)least(most(whole + a->zero, a->low), a->high);
  }
}

static void dequantize_int8(const struct dequantize_int8_call *a) {
  const int8_t *input = a->input;
  float *output = a->output;
  int32_t i;
  for (i = 0; i < a->count; i++) output[i] = (float)(input[i] - a->zero) * a->scale;
}

/* Between integers of 1, 2 and 4 bytes. */
static void requantize(const struct requantize_call *a) {
  int32_t i;
  for (i = 0; i < a->count; i++) {
    int32_t value = integer_at(a->input, i, a->input_bytes) - a->input_zero;
    value = saturated_sum(scaled_twice(value, a->multiplier, a->shift), a->output_zero);
    put_integer(a->output, i, a->output_bytes, least(most(value, a->low), a->high));
  }
}

/* Softmax by a table of exponentials, for 255 steps below the maximum up to the maximum itself. */
static void softmax_int8(const struct softmax_int8_call *a) {
  const int8_t *input = a->input;
  const float *table = a->table;
  int8_t *output = a->output;
  int32_t row, i;
  for (row = 0; row < a->rows; row++, input += a->columns, output += a->columns) {
    int32_t highest = -128;
    const float *powers;
    float sum = 0.0f, inverse;
    for (i = 0; i < a->columns; i++) highest = most(highest, input[i]);
    powers = table + 255 - highest;
    for (i = 0; i < a->columns; i++) sum += powers[input[i]];
    inverse = 1.0f / (sum * a->output_scale);
    for (i = 0; i < a->columns; i++) {
      int32_t value = (int32_t)(powers[input[i]] * inverse + 0.5f) + a->output_zero;
      output[i] = (int8_t)least(most(value, -128), 127);
    }
  }
}

static void softmax_float(const struct softmax_float_call *a) {
  const float *input = a->input;
  float *output = a->output;
  int32_t row, i;
  for (row = 0; row < a->rows; row++, input += a->columns, output += a->columns) {
    float highest = input[0], sum = 0.0f, less;
    for (i = 1; i < a->columns; i++) highest = most_float(highest, input[i]);
    for (i = 0; i < a->columns; i++) {
      float power = (input[i] - highest) * a->beta, value = exponential(power);
      output[i] = a->is_log ? power : value;
      sum += value;
    }
    less = a->is_log ? logarithm(sum) : 0.0f;
    for (i = 0; i < a->columns; i++) output[i] = a->is_log ? output[i] - less : output[i] / sum;
  }
}

/* gemmlowp's SaturatingRoundingDoublingHighMul. */
static int32_t high_product(int32_t a, int32_t b) { return scaled_twice(a, b, 0); }

/* gemmlowp's RoundingDivideByPOT. */
static int32_t rounded_shift(int32_t value, int32_t shift) {
  int32_t mask, rest;
  if (shift > 31) return 0;
  mask = (int32_t)(((uint32_t)1 << shift) - 1);
  rest = value & mask;
  return (value >> shift) + (rest > (mask >> 1) + (value < 0) ? 1 : 0);
}

/* SaturatingRoundingMultiplyByPOT to the left. */
static int32_t shifted_left(int32_t value, int32_t bits) {
  int64_t wide = (int64_t)value * ((int64_t)1 << bits);
  return wide > INT32_MAX ? INT32_MAX : wide < INT32_MIN ? INT32_MIN : (int32_t)wide;
}

static int32_t leading_zeros(uint32_t value) {
  int32_t count = 0;
  while (count < 31 && !(value & ((uint32_t)0x80000000u >> count))) count++;
  return count;
}

/* TFLite's reference softmax in fixed point: exponentials with 31 bits behind the point from a table of 256, for 255
   steps below the maximum up to the maximum itself. */
static void softmax_int8_fixed(const struct softmax_int8_fixed_call *a) {
  const int8_t *input = a->input;
  const int32_t *table = a->table;
  uint8_t *output = a->output;
  int32_t lowest = a->output_bytes == 1 ? -128 : -32768, row, i;
  for (row = 0; row < a->rows; row++, input += a->columns, output += a->columns * a->output_bytes) {
    int32_t highest = -128, sum = 0, zeros, half, x, inverse, bits;
    const int32_t *powers;
    for (i = 0; i < a->columns; i++) highest = most(highest, input[i]);
    powers = table + 255 - highest;
    for (i = 0; i < a->columns; i++) sum = saturated_sum(sum, rounded_shift(powers[input[i]], 12));
    /* 1/(1 + x) by three steps of Newton's method, x the rest of the sum. */
    zeros = leading_zeros((uint32_t)sum);
    half = (int32_t)(((int64_t)(int32_t)(((uint32_t)sum << zeros) - ((uint32_t)1 << 31)) + INT32_MAX + 1) / 2);
    x = 1515870810 + high_product(half, -1010580540);
    for (i = 0; i < 3; i++) x += shifted_left(high_product(x, (INT32_C(1) << 29) - high_product(half, x)), 2);
    inverse = shifted_left(x, 1);
    bits = 12 - zeros + 31 - 8 * a->output_bytes;
    for (i = 0; i < a->columns; i++) {
      int32_t value = saturated_sum(rounded_shift(high_product(inverse, powers[input[i]]), bits), lowest);
      put_integer(output, i, a->output_bytes, least(most(value, lowest), -1 - lowest));
    }
  }
}
