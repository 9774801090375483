/* Exponential, tanh, erf and their kin, by + - * / and bits only. Results below the smallest normal float become 0. */
#pragma once
#include "lanes.h"

f32x16 exponential(f32x16 x);
f32x16 hyperbolic_tangent(f32x16 x);
f32x16 error_function(f32x16 x);
void cosine_and_sine(double angle, float *cosine, float *sine);

INLINE f32x16 silu(f32x16 x) { return x / (1.0f + exponential(-x)); }

INLINE f32x16 gelu(f32x16 x) { return 0.5f * x * (1.0f + error_function(x * 0.70710678f)); }

/* 0.5 x (1 + tanh u) is x / (1 + e^-2u). */
INLINE f32x16 gelu_tanh(f32x16 x) {
  f32x16 u = 0.79788456f * (x + 0.044715f * x * x * x);
  return x / (1.0f + exponential(-2.0f * u));
}

INLINE f32x16 softcapped(f32x16 x, float cap) { return hyperbolic_tangent(x / cap) * cap; }
