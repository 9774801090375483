/* Resizes of images, as TFLite's reference does them (reference/resize_bilinear.h, resize_nearest_neighbor.h). */
#include "vectors.h"

INLINE float resize_scale(int32_t input, int32_t output, int32_t align_corners) {
  return align_corners && output > 1 ? (float)(input - 1) / (float)(output - 1) : (float)input / (float)output;
}

INLINE int32_t floor_of(float value) {
  int32_t whole = (int32_t)value;
  return whole - ((float)whole > value);
}

INLINE int32_t nearest(int32_t place, int32_t input, float scale, int32_t align_corners, int32_t half_pixel) {
  float value = half_pixel ? ((float)place + 0.5f) * scale : (float)place * scale;
  int32_t whole = align_corners ? (int32_t)(value + 0.5f) : floor_of(value);
  return most(least(whole, input - 1), 0);
}

COLD(resize_nearest) {
  float down = resize_scale(a->input_height, a->output_height, a->align_corners);
  float across = resize_scale(a->input_width, a->output_width, a->align_corners);
  int32_t bytes = a->channels * a->element_bytes;
  uint8_t *output = AT(uint8_t, output);
  for (int32_t b = 0; b < a->batch; b++) {
    const uint8_t *input = AT(const uint8_t, input) + b * a->input_height * a->input_width * bytes;
    for (int32_t oy = 0; oy < a->output_height; oy++) {
      int32_t y = nearest(oy, a->input_height, down, a->align_corners, a->half_pixel_centers);
      for (int32_t ox = 0; ox < a->output_width; ox++, output += bytes) {
        int32_t x = nearest(ox, a->input_width, across, a->align_corners, a->half_pixel_centers);
        const uint8_t *from = input + (y * a->input_width + x) * bytes;
        for (int32_t i = 0; i < bytes; i++) output[i] = from[i];
      }
    }
  }
}

struct between { int32_t lower, upper; float share; };

INLINE struct between place_of(int32_t place, int32_t input, float scale, int32_t half_pixel) {
  float value = half_pixel ? ((float)place + 0.5f) * scale - 0.5f : (float)place * scale;
  int32_t whole = floor_of(value);
  int32_t lower = least(most(whole, 0), input - 1);
  return (struct between){lower, least(whole + 1, input - 1), value - (float)lower};
}

COLD(resize_bilinear_float) {
  float down = resize_scale(a->input_height, a->output_height, a->align_corners);
  float across = resize_scale(a->input_width, a->output_width, a->align_corners);
  float *output = AT(float, output);
  for (int32_t b = 0; b < a->batch; b++) {
    const float *input = AT(const float, input) + b * a->input_height * a->input_width * a->channels;
    for (int32_t oy = 0; oy < a->output_height; oy++) {
      struct between y = place_of(oy, a->input_height, down, a->half_pixel_centers);
      for (int32_t ox = 0; ox < a->output_width; ox++, output += a->channels) {
        struct between x = place_of(ox, a->input_width, across, a->half_pixel_centers);
        const float *top = input + y.lower * a->input_width * a->channels;
        const float *bottom = input + y.upper * a->input_width * a->channels;
        int32_t left = x.lower * a->channels, right = x.upper * a->channels;
        for (int32_t i = 0; i < a->channels; i++)
          output[i] = top[left + i] * (1 - y.share) * (1 - x.share) + bottom[left + i] * y.share * (1 - x.share) +
                      top[right + i] * (1 - y.share) * x.share + bottom[right + i] * y.share * x.share;
      }
    }
  }
}

struct between_fixed { int32_t lower, upper, share; };

/* Places and shares with 10 bits behind the point. */
INLINE struct between_fixed place_fixed(int32_t place, int32_t input, int32_t scale, int32_t half_pixel) {
  int32_t value = half_pixel ? place * scale + scale / 2 - (1 << 9) : place * scale;
  int32_t lower = least(most(value / (INT32_C(1) << 10), 0), input - 1), upper = least((value + (INT32_C(1) << 10) - 1) / (INT32_C(1) << 10), input - 1);
  return (struct between_fixed){lower, upper, value - (INT32_C(1) << 10) * lower};
}

INLINE int32_t scale_fixed(int32_t input, int32_t output, int32_t align_corners) {
  if (align_corners && output > 1) return ((INT32_C(1) << 10) * (input - 1) + (output - 1) / 2) / (output - 1);
  return ((INT32_C(1) << 10) * input + output / 2) / output;
}

COLD(resize_bilinear_int8_fixed) {
  int32_t down = scale_fixed(a->input_height, a->output_height, a->align_corners);
  int32_t across = scale_fixed(a->input_width, a->output_width, a->align_corners);
  int8_t *output = AT(int8_t, output);
  for (int32_t b = 0; b < a->batch; b++) {
    const int8_t *input = AT(const int8_t, input) + b * a->input_height * a->input_width * a->channels;
    for (int32_t oy = 0; oy < a->output_height; oy++) {
      struct between_fixed y = place_fixed(oy, a->input_height, down, a->half_pixel_centers);
      for (int32_t ox = 0; ox < a->output_width; ox++, output += a->channels) {
        struct between_fixed x = place_fixed(ox, a->input_width, across, a->half_pixel_centers);
        const int8_t *top = input + y.lower * a->input_width * a->channels;
        const int8_t *bottom = input + y.upper * a->input_width * a->channels;
        int32_t left = x.lower * a->channels, right = x.upper * a->channels, one = INT32_C(1) << 10;
        for (int32_t i = 0; i < a->channels; i++) {
          int64_t sum = (int64_t)top[left + i] * (one - y.share) * (one - x.share) +
                        (int64_t)bottom[left + i] * y.share * (one - x.share) +
                        (int64_t)top[right + i] * (one - y.share) * x.share +
                        (int64_t)bottom[right + i] * y.share * x.share;
          int64_t half = sum > 0 ? (INT32_C(1) << 19) : -(INT32_C(1) << 19);
          output[i] = (int8_t)((sum + half) / (INT32_C(1) << 20));
        }
      }
    }
  }
}

/* XNNPACK's: float places, inside of the image, and shares with 11 bits behind the point (indirection.c, s8-ibilinear). */
INLINE struct between_fixed place_of_eleven(int32_t place, int32_t input, float scale, int32_t half_pixel) {
  float value = (float)place * scale;
  if (half_pixel) value = least_float(most_float(value + (0.5f * scale - 0.5f), 0.0f), (float)(input - 1));
  int32_t lower = least((int32_t)value, input - 1);
  float share = (value - (float)lower) * 2048.0f;
  union { float value; int32_t bits; } sum = {share + 12582912.0f}; /* to the nearest, ties to even */
  return (struct between_fixed){lower, least(lower + 1, input - 1), sum.bits - 0x4B400000};
}

COLD(resize_bilinear_int8) {
  float down = resize_scale(a->input_height, a->output_height, a->align_corners);
  float across = resize_scale(a->input_width, a->output_width, a->align_corners);
  int8_t *output = AT(int8_t, output);
  for (int32_t b = 0; b < a->batch; b++) {
    const int8_t *input = AT(const int8_t, input) + b * a->input_height * a->input_width * a->channels;
    for (int32_t oy = 0; oy < a->output_height; oy++) {
      struct between_fixed y = place_of_eleven(oy, a->input_height, down, a->half_pixel_centers);
      for (int32_t ox = 0; ox < a->output_width; ox++, output += a->channels) {
        struct between_fixed x = place_of_eleven(ox, a->input_width, across, a->half_pixel_centers);
        const int8_t *top = input + y.lower * a->input_width * a->channels;
        const int8_t *bottom = input + y.upper * a->input_width * a->channels;
        int32_t left = x.lower * a->channels, right = x.upper * a->channels;
        for (int32_t i = 0; i < a->channels; i++) {
          int32_t upper = top[left + i] * INT32_C(2048) + (top[right + i] - top[left + i]) * x.share;
          int32_t lower = bottom[left + i] * INT32_C(2048) + (bottom[right + i] - bottom[left + i]) * x.share;
          output[i] = (int8_t)((upper * 2048 + (lower - upper) * y.share + (INT32_C(1) << 21)) >> 22);
        }
      }
    }
  }
}
