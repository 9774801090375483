static int32_t dot_int8(const int8_t *weights, const int8_t *values, int32_t count) {
  int32_t k, total = 0;
  for (k = 0; k < count; k++) total += weights[k] * values[k];
  return total;
}

/* Eight sums, added in the order of the kernels for large processors. */
static float dot_float(const float *weights, const float *values, int32_t count) {
  float sums[8] = {0};
  int32_t k = 0;
  for (; k + 8 <= count; k += 8)
    for (int32_t i = 0; i < 8; i++) sums[i] += weights[k + i] * values[k + i];
  float total = ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
  for (; k < count; k++) total += weights[k] * values[k];
  return total;
}
