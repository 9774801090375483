/* Functions of sixteen lanes, and what reads and writes fewer. */
#include "functions.h"

f32x16 load_some(const float *from, int32_t count) {
  float some[16] = {0};
  for (int i = 0; i < count; i++) some[i] = from[i];
  return load(some);
}

f32x16 load_half_some(const uint16_t *from, int32_t count) {
  uint16_t some[16] = {0};
  for (int i = 0; i < count; i++) some[i] = from[i];
  return load_half(some);
}

void store_part(float *to, f32x16 value, int32_t count) {
  float whole[16];
  store(whole, value);
  for (int i = 0; i < count; i++) to[i] = whole[i];
}

/* As many lanes as a register has: a function of sixteen is a loop over them. */
#if defined(LANES_AVX2)
typedef f32x16 some;
typedef i32x16 ints;
#else
typedef f32x4 some;
typedef i32x4 ints;
#endif
#define PARTS ((int)(sizeof(f32x16) / sizeof(some)))

INLINE some every(float value) { return (some){0} + value; }
INLINE some either(ints mask, some yes, some no) { return (some)((mask & (ints)yes) | (~mask & (ints)no)); }

/* e^x within 2e-7 of the true value, by Cephes' split of ln 2 and its polynomial (Moshier's expf). Below -87 it is 0,
   from 88 on it stays as it is there. */
INLINE some exponential_of(some x) {
  ints under = x < every(-87.0f);
  x = either(x > every(88.0f), every(88.0f), either(under, every(0.0f), x));
  some shifted = x * 1.44269504f + 12582912.0f; /* rounds to the nearest */
  some power = shifted - 12582912.0f;
  some r = x - power * 0.693359375f + power * 2.12194440e-4f;
  some p = 1.9875691500e-4f * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  some two = (some)(((ints)shifted - 0x4B400000 + 127) << 23);
  return either(under, every(0.0f), p * two);
}

/* Cephes' tanhf. */
INLINE some tangent_of(some x) {
  some size = (some)((ints)x & 0x7fffffff), z = x * x;
  some p = -5.70498872745e-3f * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  p = p * z * x + x;
  some far = 1.0f - 2.0f / (exponential_of(size + size) + 1.0f);
  far = (some)((ints)far | ((ints)x & (int32_t)0x80000000));
  return either(size < every(0.625f), p, far);
}

/* Cephes' erff. */
INLINE some error_function_of(some x) {
  some a = (some)((ints)x & 0x7fffffff), z = x * x;
  some near = 7.853861353153693e-5f * z - 8.010193625184903e-4f;
  near = near * z + 5.188327685732524e-3f;
  near = near * z - 2.685381193529856e-2f;
  near = near * z + 1.128358514861418e-1f;
  near = near * z - 3.761262582423300e-1f;
  near = (near * z + 1.128379165726710e+0f) * x;
  some one = either(a < every(1.0f), every(1.0f), a), q = 1.0f / one, y = q * q;
  some p = 2.326819970068386e-2f * y - 1.387039388740657e-1f;
  p = p * y + 3.687424674597105e-1f;
  p = p * y - 5.824733027278666e-1f;
  p = p * y + 6.210004621745983e-1f;
  p = p * y - 4.944515323274145e-1f;
  p = p * y + 3.404879937665872e-1f;
  p = p * y - 2.741127028184656e-1f;
  p = p * y + 5.638259427386472e-1f;
  some r = -1.047766399936249e+1f * y + 1.297719955372516e+1f;
  r = r * y - 7.495518717768503e+0f;
  r = r * y + 2.921019019210786e+0f;
  r = r * y - 1.015265279202700e+0f;
  r = r * y + 4.218463358204948e-1f;
  r = r * y - 2.820767439740514e-1f;
  r = r * y + 5.641895067754075e-1f;
  some far = 1.0f - exponential_of(-(one * one)) * q * either(one < every(2.0f), p, r);
  far = (some)((ints)far | ((ints)x & (int32_t)0x80000000));
  return either(a < every(1.0f), near, either(a == a, far, x));
}

#define OF_SIXTEEN(name, function)                    \
  f32x16 name(f32x16 x) {                             \
    union { f32x16 whole; some parts[PARTS]; } v = {x}; \
    _Pragma("clang loop unroll(disable)")             \
    for (int i = 0; i < PARTS; i++) v.parts[i] = function(v.parts[i]); \
    return v.whole;                                   \
  }
OF_SIXTEEN(exponential, exponential_of)
OF_SIXTEEN(hyperbolic_tangent, tangent_of)
OF_SIXTEEN(error_function, error_function_of)

/* Cosine and sine in double precision (fdlibm's kernels), within 2^20 quarter turns. */
void cosine_and_sine(double angle, float *cosine, float *sine) {
  union { double value; uint64_t bits; } turn = {angle * 0.63661977236758134308 + 6755399441055744.0};
  double quarters = turn.value - 6755399441055744.0;
  double r = (angle - quarters * 1.57079632673412561417e+00) - quarters * 6.07710050650619224932e-11;
  double z = r * r;
  double s = 1.58969099521155010221e-10 * z - 2.50507602534068634195e-08;
  s = s * z + 2.75573137070700676789e-06;
  s = s * z - 1.98412698298579493134e-04;
  s = s * z + 8.33333333332248946124e-03;
  s = s * z - 1.66666666666666324348e-01;
  s = r + r * z * s;
  double c = -1.13596475577881948265e-11 * z + 2.08757232129817482790e-09;
  c = c * z - 2.75573143513906633035e-07;
  c = c * z + 2.48015872894767294178e-05;
  c = c * z - 1.38888888888741095749e-03;
  c = c * z + 4.16666666666666019037e-02;
  c = 1.0 - 0.5 * z + z * z * c;
  int quarter = (int)(turn.bits & 3);
  double first = quarter & 1 ? s : c, second = quarter & 1 ? c : s;
  *cosine = (float)(quarter == 1 || quarter == 2 ? -first : first);
  *sine = (float)(quarter >= 2 ? -second : second);
}
