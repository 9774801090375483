/* ADD and SUB: both operands in a common scale with 20 more bits, without the tables of other processors. A stride is 0 where an operand is repeated. */
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

/* XNNPACK's int8 addition (qs8-vadd-minmax): both operands times integers, and a rounded shift to the right. */
static void add_int8(const struct add_int8_call *a) {
  int8_t *output = a->output;
  int32_t i, j, k, l;
  for (i = 0; i < a->size_0; i++)
    for (j = 0; j < a->size_1; j++)
      for (k = 0; k < a->size_2; k++) {
        const int8_t *x = (const int8_t *)a->first + i * a->first_0 + j * a->first_1 + k * a->first_2;
        const int8_t *y = (const int8_t *)a->second + i * a->second_0 + j * a->second_1 + k * a->second_2;
        for (l = 0; l < a->size_3; l++, x += a->first_3, y += a->second_3) {
          int32_t sum = a->bias + *x * a->first_multiplier + *y * a->second_multiplier;
          *output++ = (int8_t)least(most((sum >> a->shift) + a->output_zero, a->low), a->high);
        }
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
