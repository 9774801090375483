/* Sixteen lanes at once, and the order of every sum of floats: the same bits on every processor.
 *
 * A sum over a row takes element i into lane i mod 16 and folds the lanes as a tree (`fold`). No product is fused with a
 * sum. Clang makes one, two or four registers of these vectors, which changes no result.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#if defined(PLAIN)
#define LANES_PLAIN 1
#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
#define LANES_PAIRS 1
#elif defined(__AVX2__)
#include <immintrin.h>
#define LANES_AVX2 1
#elif defined(__SSE2__)
#include <immintrin.h>
#define LANES_PAIRS 1
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#define LANES_NEON 1
#else
#define LANES_PLAIN 1
#endif

#define EXPORT __attribute__((visibility("default")))
#define INLINE __attribute__((always_inline)) static inline
/* A function whose time is that of others. */
#define SMALL __attribute__((minsize))
#define BLOCK 32

typedef float f32x16 __attribute__((vector_size(64), aligned(4)));
typedef float f32x4 __attribute__((vector_size(16), aligned(4)));
typedef int32_t i32x16 __attribute__((vector_size(64), aligned(4)));
typedef int32_t i32x4 __attribute__((vector_size(16), aligned(4)));
typedef uint16_t u16x16 __attribute__((vector_size(32), aligned(2)));
typedef uint16_t u16x4 __attribute__((vector_size(8), aligned(2)));

INLINE int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }
INLINE int32_t most(int32_t a, int32_t b) { return a > b ? a : b; }
INLINE int32_t round_up(int32_t value, int32_t unit) { return (value + unit - 1) / unit * unit; }

INLINE float from_bits(int32_t bits) {
  union { int32_t bits; float value; } both = {bits};
  return both.value;
}

INLINE int32_t to_bits(float value) {
  union { float value; int32_t bits; } both = {value};
  return both.bits;
}

INLINE f32x16 all(float value) { return (f32x16){0} + value; }

INLINE f32x16 chosen(i32x16 mask, f32x16 yes, f32x16 no) {
  return (f32x16)((mask & (i32x16)yes) | (~mask & (i32x16)no));
}

INLINE f32x16 larger(f32x16 a, f32x16 b) { return chosen(a < b, b, a); }

INLINE f32x16 load(const float *from) { return *(const f32x16 *)from; }

INLINE void store(float *to, f32x16 value) { *(f32x16 *)to = value; }

/* The first `count` of 16, the others zero; at most 16. */
f32x16 load_some(const float *from, int32_t count);
f32x16 load_half_some(const uint16_t *from, int32_t count);
void store_part(float *to, f32x16 value, int32_t count);

INLINE void store_some(float *to, f32x16 value, int32_t count) {
  if (count >= 16) store(to, value);
  else store_part(to, value, count);
}

INLINE float fold4(f32x4 v) { return (v[0] + v[2]) + (v[1] + v[3]); }

INLINE float fold(f32x16 v) {
  typedef float f32x8 __attribute__((vector_size(32)));
  f32x8 half = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
               __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  return fold4(__builtin_shufflevector(half, half, 0, 1, 2, 3) + __builtin_shufflevector(half, half, 4, 5, 6, 7));
}

/* The largest lane; which of equal ones, and the order, is no matter. A NaN lane may be passed over. */
INLINE float fold_largest(f32x16 v) {
  float best = v[0];
  for (int i = 1; i < 16; i++) best = v[i] > best ? v[i] : best;
  return best;
}

/* Float16 as float32, exactly; a denormal one too, without a denormal float32 on the way. */
#define WIDEN_HALF(floats, ints, bits)                                                             \
  ints sign = (bits & 0x8000) << 16, exponent = bits & 0x7c00, magnitude = (bits & 0x7fff) << 13;  \
  ints small = exponent == 0, special = exponent == 0x7c00;                                        \
  ints normal = magnitude + (112 << 23) + (special & (112 << 23));                                 \
  floats tiny = __builtin_convertvector(bits & 0x3ff, floats) * 5.9604644775390625e-8f;            \
  return (floats)(sign | (small & (ints)tiny) | (~small & normal))

INLINE f32x16 load_half(const uint16_t *from) {
#if defined(LANES_AVX2)
  union { __m256 half[2]; f32x16 v; } both = {{_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from)),
                                               _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + 8)))}};
  return both.v;
#else
  i32x16 bits = __builtin_convertvector(*(const u16x16 *)from, i32x16);
  WIDEN_HALF(f32x16, i32x16, bits);
#endif
}

INLINE f32x4 widen_half4(u16x4 half) {
#if defined(LANES_AVX2)
  return (f32x4)_mm_cvtph_ps((__m128i)__builtin_shufflevector(half, half, 0, 1, 2, 3, -1, -1, -1, -1));
#else
  i32x4 bits = __builtin_convertvector(half, i32x4);
  WIDEN_HALF(f32x4, i32x4, bits);
#endif
}

/* The first `count` of 4 scales, the others zero. */
INLINE f32x4 load_scales(const uint16_t *from, int32_t count) {
  if (count >= 4) return widen_half4(*(const u16x4 *)from);
  u16x4 some = {0};
  for (int i = 0; i < count; i++) some[i] = from[i];
  return widen_half4(some);
}
