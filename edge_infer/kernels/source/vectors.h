/* Eight lanes at once, by Clang's vector extensions; the product of int16 pairs by each processor's own instruction. */
#pragma once
#include <stdint.h>
#include "arguments.h"

#if defined(__wasm_simd128__)
#include <wasm_simd128.h>
#elif defined(__SSE2__)
#include <immintrin.h>
#endif

typedef int32_t int32x8 __attribute__((vector_size(32), aligned(4)));
typedef int16_t int16x16 __attribute__((vector_size(32), aligned(2)));
typedef int16_t int16x8 __attribute__((vector_size(16), aligned(2)));
typedef int8_t int8x16 __attribute__((vector_size(16), aligned(1)));
typedef int8_t int8x8 __attribute__((vector_size(8), aligned(1)));
typedef float float32x8 __attribute__((vector_size(32), aligned(4)));

#define KERNEL(name) __attribute__((visibility("default"))) void name(uint8_t *image, const struct name##_arguments *a)
/* A kernel that takes little of the time of a model: compiled for few bytes. */
#define COLD(name) __attribute__((minsize)) KERNEL(name)
#define INLINE __attribute__((always_inline)) static inline
/* The address of a tensor; an absent one is not read. */
#define AT(type, place) ((type *)(image + (a->place)))

INLINE int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }
INLINE int32_t most(int32_t a, int32_t b) { return a > b ? a : b; }
INLINE float least_float(float a, float b) { return b < a ? b : a; }
INLINE float most_float(float a, float b) { return b > a ? b : a; }

/* sums[i] += weights[2i] * first + weights[2i+1] * second, in each lane */
INLINE int32x8 add_pairs(int32x8 sums, int16x16 weights, int16x16 values) {
#if defined(__wasm_simd128__)
  union { int16x16 v; v128_t h[2]; } w = {weights}, x = {values};
  union { int32x8 v; v128_t h[2]; } s = {sums};
  s.h[0] = wasm_i32x4_add(s.h[0], wasm_i32x4_dot_i16x8(w.h[0], x.h[0]));
  s.h[1] = wasm_i32x4_add(s.h[1], wasm_i32x4_dot_i16x8(w.h[1], x.h[1]));
  return s.v;
#elif defined(__AVX2__)
  return sums + (int32x8)_mm256_madd_epi16((__m256i)weights, (__m256i)values);
#elif defined(__SSE2__)
  union { int16x16 v; __m128i h[2]; } w = {weights}, x = {values};
  union { int32x8 v; __m128i h[2]; } s = {sums};
  s.h[0] = _mm_add_epi32(s.h[0], _mm_madd_epi16(w.h[0], x.h[0]));
  s.h[1] = _mm_add_epi32(s.h[1], _mm_madd_epi16(w.h[1], x.h[1]));
  return s.v;
#else
  int16x8 w0 = __builtin_shufflevector(weights, weights, 0, 2, 4, 6, 8, 10, 12, 14);
  int16x8 w1 = __builtin_shufflevector(weights, weights, 1, 3, 5, 7, 9, 11, 13, 15);
  int16x8 x0 = __builtin_shufflevector(values, values, 0, 2, 4, 6, 8, 10, 12, 14);
  int16x8 x1 = __builtin_shufflevector(values, values, 1, 3, 5, 7, 9, 11, 13, 15);
  return sums + __builtin_convertvector(w0, int32x8) * __builtin_convertvector(x0, int32x8) +
         __builtin_convertvector(w1, int32x8) * __builtin_convertvector(x1, int32x8);
#endif
}

INLINE int16x16 wide(const int8_t *weights) {
#if defined(__wasm_simd128__) /* a load widens its eight by itself */
  union { v128_t h[2]; int16x16 v; } both = {{wasm_i16x8_load8x8(weights), wasm_i16x8_load8x8(weights + 8)}};
  return both.v;
#endif
  return __builtin_convertvector(*(const int8x16 *)weights, int16x16);
}

/* One pair of int16 in all lanes. */
INLINE int16x16 pair(const int16_t *values) {
  int32_t two;
  __builtin_memcpy(&two, values, 4);
  int32x8 all = {two, two, two, two, two, two, two, two};
  return (int16x16)all;
}

INLINE int32x8 eight_bytes(const int8_t *values) { return __builtin_convertvector(*(const int8x8 *)values, int32x8); }

INLINE float32x8 all_float(float value) {
  return (float32x8){value, value, value, value, value, value, value, value};
}

INLINE int32x8 all_int(int32_t value) {
  return (int32x8){value, value, value, value, value, value, value, value};
}

/* As `value < low ? low : value` and the like: a value that is no number stays. */
INLINE float32x8 clamped(float32x8 value, float low, float high) {
#if defined(__wasm_simd128__)
  union { float32x8 v; v128_t h[2]; } both = {value};
  v128_t lows = wasm_f32x4_splat(low), highs = wasm_f32x4_splat(high);
  for (int i = 0; i < 2; i++) both.h[i] = wasm_f32x4_pmin(wasm_f32x4_pmax(both.h[i], lows), highs);
  return both.v;
#elif defined(__SSE2__)
  union { float32x8 v; __m128 h[2]; } both = {value};
  __m128 lows = _mm_set1_ps(low), highs = _mm_set1_ps(high);
  for (int i = 0; i < 2; i++) both.h[i] = _mm_min_ps(highs, _mm_max_ps(lows, both.h[i]));
  return both.v;
#else
  float32x8 lows = all_float(low), highs = all_float(high);
  int32x8 under = value < lows, over = highs < value;
  value = (float32x8)((under & (int32x8)lows) | (~under & (int32x8)value));
  return (float32x8)((over & (int32x8)highs) | (~over & (int32x8)value));
#endif
}

/* XNNPACK's rounding (qs8-requantization, fp32): to the nearest, ties to even. Adding 1.5 * 2^23 rounds what is less
   than 2^22, as the clamped value is. */
INLINE int32x8 rounded(int32x8 sums, const float *multipliers, int32_t zero, int32_t low, int32_t high) {
  float32x8 value = __builtin_convertvector(sums, float32x8) * *(const float32x8 *)multipliers;
  value = clamped(value, (float)(low - zero), (float)(high - zero));
  return (int32x8)(value + all_float(12582912.0f)) - all_int(0x4B400000) + all_int(zero);
}

/* The same of one value. */
INLINE int32_t rounded_one(float value, int32_t zero, int32_t low, int32_t high) {
  value = least_float(most_float(value, (float)(low - zero)), (float)(high - zero));
  union { float value; int32_t bits; } sum = {value + 12582912.0f};
  return sum.bits - 0x4B400000 + zero;
}

/* gemmlowp's SaturatingRoundingDoublingHighMul and RoundingDivideByPOT, as TFLite's MultiplyByQuantizedMultiplier uses
   them (tensorflow/lite/kernels/internal/common.cc); the shift is positive to the left. */
INLINE int32_t scaled_twice(int32_t value, int32_t multiplier, int32_t shift) {
  int64_t product = (int64_t)(int32_t)((uint32_t)value << (shift > 0 ? shift : 0)) * multiplier;
  int64_t nudge = product >= 0 ? (1 << 30) : (1 - (1 << 30));
  int32_t high = (int32_t)((product + nudge) / ((int64_t)1 << 31));
  int32_t right = shift > 0 ? 0 : -shift;
  int32_t mask = (int32_t)(((int64_t)1 << right) - 1), rest = high & mask;
  return (high >> right) + (rest > (mask >> 1) + (high < 0) ? 1 : 0);
}

/* The same by one rounding, as LiteRT's reference FULLY_CONNECTED does. */
INLINE int32_t scaled_once(int32_t value, int32_t multiplier, int32_t shift) {
  int32_t total = 31 - shift;
  return (int32_t)(((int64_t)value * multiplier + ((int64_t)1 << (total - 1))) >> total);
}

/* Store eight values that fit into int8, or the first of them. */
INLINE void store_int8(int8_t *output, int32x8 values, int32_t count) {
#if defined(__wasm_simd128__)
  union { int32x8 v; v128_t h[2]; } both = {values};
  v128_t narrow = wasm_i16x8_narrow_i32x4(both.h[0], both.h[1]);
  union { v128_t v; int8x8 first; } bytes = {wasm_i8x16_narrow_i16x8(narrow, narrow)};
  int8x8 packed = bytes.first;
#elif defined(__SSE2__)
  union { int32x8 v; __m128i h[2]; } both = {values};
  __m128i narrow = _mm_packs_epi32(both.h[0], both.h[1]);
  union { __m128i v; int8x8 first; } bytes = {_mm_packs_epi16(narrow, narrow)};
  int8x8 packed = bytes.first;
#else
  int8x8 packed = __builtin_convertvector(values, int8x8);
#endif
  if (count >= 8) {
    *(int8x8 *)output = packed;
    return;
  }
#pragma clang loop unroll(disable)
  for (int i = 0; i < count; i++) output[i] = packed[i];
}

/* Widen int8 to int16, less a zero point. */
INLINE void widen(int16_t *output, const int8_t *input, int32_t count, int32_t zero) {
  int16_t z = (int16_t)zero;
  int16x8 zeros = {z, z, z, z, z, z, z, z};
  int32_t i = 0;
  if (count >= 8) {
    for (;; i = least(i + 8, count - 8)) { /* the last eight overlap those before */
      *(int16x8 *)(output + i) = __builtin_convertvector(*(const int8x8 *)(input + i), int16x8) - zeros;
      if (i == count - 8) return;
    }
  }
  for (; i < count; i++) output[i] = (int16_t)(input[i] - z);
}

INLINE void clear(int16_t *output, int32_t count) {
  int16x8 none = {0};
  int32_t i = 0;
  for (; i + 8 <= count; i += 8) *(int16x8 *)(output + i) = none;
  for (; i < count; i++) output[i] = 0;
}

INLINE void store_float(float *output, float32x8 values, int32_t count) {
  if (count >= 8) {
    *(float32x8 *)output = values;
    return;
  }
#pragma clang loop unroll(disable)
  for (int i = 0; i < count; i++) output[i] = values[i];
}

/* e^r - 1 where |r| <= ln 2 / 2, by the polynomial of Cephes' expf (Moshier). */
INLINE float small_exponential_less_one(float r) {
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return p * r * r + r;
}

/* e^x by Cephes' split of ln 2, within 2e-7 of the true value. Results below 1.6e-38 become 0. */
INLINE float exponential(float x) {
  if (x < -87.0f) return 0.0f;
  if (x > 88.72283f) return __builtin_inff();
  float scaled = x * 1.44269504f;
  int32_t power = x == x ? (int32_t)(scaled < 0 ? scaled - 0.5f : scaled + 0.5f) : 0;
  float r = x - (float)power * 0.693359375f + (float)power * 2.12194440e-4f;
  float value = small_exponential_less_one(r) + 1.0f;
  /* 2^128 is no float: twice 2^127 then. */
  if (power > 127) {
    value += value;
    power = 127;
  }
  union { int32_t bits; float value; } two = {(power + 127) << 23};
  return value * two.value;
}

/* tanh where |x| < 0.625: near 0 the quotient of exponentials loses digits, and Cephes' tanhf takes a polynomial. */
INLINE float small_tangent(float x) {
  if (x < 1e-4f && x > -1e-4f) return x; /* -0 stays -0 */
  float s = x * x;
  float p = (((-5.70498872745e-3f * s + 2.06390887954e-2f) * s - 5.37397155531e-2f) * s + 1.33314422036e-1f) * s;
  return (p - 3.33332819422e-1f) * s * x + x;
}

/* The natural logarithm by Cephes' logf, within 1e-7 of the true value. */
INLINE float logarithm(float x) {
  if (!(x > 0.0f)) return x == 0.0f ? -__builtin_inff() : __builtin_nanf("");
  if (x > 3.4028235e38f) return x;
  float scale = 0.0f;
  if (x < 1.17549435e-38f) x *= 8388608.0f, scale = -23.0f; /* below the normal numbers */
  union { float value; int32_t bits; } whole = {x};
  scale += (float)((whole.bits >> 23) - 126);
  whole.bits = (whole.bits & 0x7FFFFF) | 0x3F000000;
  float m = whole.value;
  if (m < 0.707106781f) m += m, scale -= 1.0f;
  m -= 1.0f;
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  float square = m * m;
  return m + (p * m * square - 2.12194440e-4f * scale - 0.5f * square) + 0.693359375f * scale;
}

/* An integer of 1, 2 or 4 bytes. */
INLINE int32_t integer_at(const void *values, int32_t place, int32_t bytes) {
  if (bytes == 1) return ((const int8_t *)values)[place];
  if (bytes == 2) return ((const int16_t *)values)[place];
  return ((const int32_t *)values)[place];
}

INLINE void put_integer(void *values, int32_t place, int32_t bytes, int32_t value) {
  if (bytes == 1)
    ((int8_t *)values)[place] = (int8_t)value;
  else if (bytes == 2)
    ((int16_t *)values)[place] = (int16_t)value;
  else
    ((int32_t *)values)[place] = value;
}

INLINE int32_t saturated_sum(int32_t a, int32_t b) {
  int32_t sum;
  return __builtin_add_overflow(a, b, &sum) ? (a < 0 ? (int32_t)0x80000000 : 0x7FFFFFFF) : sum;
}

INLINE int32_t leading_zeros(uint32_t value) { return value ? __builtin_clz(value) : 31; }

INLINE void move(uint8_t *output, const uint8_t *input, int32_t count) {
  if (count == 4)
    __builtin_memcpy(output, input, 4);
  else
    for (int32_t i = 0; i < count; i++) output[i] = input[i];
}
