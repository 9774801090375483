static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

static int32_t most(int32_t a, int32_t b) { return a > b ? a : b; }

static float least_float(float a, float b) { return b < a ? b : a; }

static float most_float(float a, float b) { return b > a ? b : a; }

/* value * multiplier * 2^(shift - 31), rounded twice with halves away from zero: MultiplyByQuantizedMultiplier of
   TFLite. The shift is positive to the left. */
static int32_t scaled_twice(int32_t value, int32_t multiplier, int32_t shift) {
  int32_t left = shift > 0 ? shift : 0, right = shift > 0 ? 0 : -shift;
  int64_t product = (int64_t)(int32_t)((uint32_t)value << left) * multiplier;
  int32_t high = (int32_t)((product + ((int64_t)1 << 30)) >> 31);
  int32_t mask = (int32_t)(((uint32_t)1 << right) - 1), rest = high & mask;
  return (high >> right) + (rest > (mask >> 1) + (high < 0) ? 1 : 0);
}

/* The same, rounded once: LiteRT's reference FULLY_CONNECTED. */
static int32_t scaled_once(int32_t value, int32_t multiplier, int32_t shift) {
  int32_t total = 31 - shift;
  return (int32_t)(((int64_t)value * multiplier + ((int64_t)1 << (total - 1))) >> total);
}

/* To the nearest, ties to even, as XNNPACK does: what is less than 2^22 is rounded by adding 1.5 * 2^23. */
static int32_t rounded(float value, int32_t zero, int32_t low, int32_t high) {
  union { float value; int32_t bits; } sum;
  value = least_float(most_float(value, (float)(low - zero)), (float)(high - zero));
  sum.value = value + 12582912.0f;
  return sum.bits - 0x4B400000 + zero;
}

static int32_t saturated_sum(int32_t a, int32_t b) {
  int64_t sum = (int64_t)a + b;
  return sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : (int32_t)sum;
}

/* An integer of 1, 2 or 4 bytes. */
static int32_t integer_at(const void *values, int32_t place, int32_t bytes) {
  if (bytes == 1) return ((const int8_t *)values)[place];
  if (bytes == 2) return ((const int16_t *)values)[place];
  return ((const int32_t *)values)[place];
}

static void put_integer(void *values, int32_t place, int32_t bytes, int32_t value) {
  if (bytes == 1)
    ((int8_t *)values)[place] = (int8_t)value;
  else if (bytes == 2)
    ((int16_t *)values)[place] = (int16_t)value;
  else
    ((int32_t *)values)[place] = value;
}

/* e^r - 1 where |r| <= ln 2 / 2, by the polynomial of Cephes' expf (Moshier). */
static float small_exponential_less_one(float r) {
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return p * r * r + r;
}

/* e^x by Cephes' split of ln 2, within 2e-7 of the true value. Results below 1.6e-38 become 0. */
static float exponential(float x) {
  union { int32_t bits; float value; } two;
  float scaled = x * 1.44269504f, r, value;
  int32_t power;
  if (x < -87.0f) return 0.0f;
  if (x > 88.72283f) return (float)HUGE_VAL;
  power = x == x ? (int32_t)(scaled < 0 ? scaled - 0.5f : scaled + 0.5f) : 0;
  r = x - (float)power * 0.693359375f + (float)power * 2.12194440e-4f;
  value = small_exponential_less_one(r) + 1.0f;
  if (power > 127) { /* 2^128 is no float: twice 2^127 then */
    value += value;
    power = 127;
  }
  two.bits = (int32_t)((uint32_t)(power + 127) << 23);
  return value * two.value;
}

/* tanh where |x| < 0.625: near 0 the quotient of exponentials loses digits, and Cephes' tanhf takes a polynomial. */
static float small_tangent(float x) {
  float s = x * x, p;
  if (x < 1e-4f && x > -1e-4f) return x; /* -0 stays -0 */
  p = (((-5.70498872745e-3f * s + 2.06390887954e-2f) * s - 5.37397155531e-2f) * s + 1.33314422036e-1f) * s;
  return (p - 3.33332819422e-1f) * s * x + x;
}

/* The natural logarithm by Cephes' logf, within 1e-7 of the true value. */
static float logarithm(float x) {
  union { float value; int32_t bits; } whole;
  float scale = 0.0f, m, p, square;
  if (!(x > 0.0f)) return x == 0.0f ? -(float)HUGE_VAL : NAN;
  if (x > 3.4028235e38f) return x;
  if (x < 1.17549435e-38f) { /* below the normal numbers */
    x *= 8388608.0f;
    scale = -23.0f;
  }
  whole.value = x;
  scale += (float)((whole.bits >> 23) - 126);
  whole.bits = (whole.bits & 0x7FFFFF) | 0x3F000000;
  m = whole.value;
  if (m < 0.707106781f) {
    m += m;
    scale -= 1.0f;
  }
  m -= 1.0f;
  p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  square = m * m;
  return m + (p * m * square - 2.12194440e-4f * scale - 0.5f * square) + 0.693359375f * scale;
}

static int32_t leading_zeros(uint32_t value) {
  int32_t count = 0;
  while (count < 31 && !(value & ((uint32_t)0x80000000u >> count))) count++;
  return count;
}
