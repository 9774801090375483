/* Floats may differ where a compiler fuses a product with a sum. */
static int is_near(const float *want, const float *got, int count) {
  float error = 0.0f, size = 0.0f;
  int i;
  for (i = 0; i < count; i++) {
    error += (want[i] - got[i]) * (want[i] - got[i]);
    size += want[i] * want[i];
  }
  return error <= 1e-10f * size;
}
