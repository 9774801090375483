/* Floats may differ where a compiler fuses a product with a sum. Shares of the largest do not overflow when squared. */
static int is_near(const float *want, const float *got, int count) {
  float largest = 0.0f, error = 0.0f, size = 0.0f;
  int i;
  for (i = 0; i < count; i++) {
    float one = want[i] < 0.0f ? -want[i] : want[i];
    if (one > largest && one <= 3.4028234e38f) largest = one;
  }
  if (largest == 0.0f) largest = 1.0f;
  for (i = 0; i < count; i++) {
    float one = want[i] / largest, far = want[i] / largest - got[i] / largest;
    int is_same = want[i] == got[i] || (want[i] != want[i] && got[i] != got[i]);
    if (!is_same) error += far * far;
    if (one >= -1.0f && one <= 1.0f) size += one * one;
  }
  return error <= 1e-10f * size;
}
