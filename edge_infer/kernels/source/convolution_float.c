/* Convolution of float32: four places of the image times eight channels at once, added in the order of the taps. */
#include "vectors.h"

#define ROWS 4

INLINE void copy_floats(float *output, const float *input, int32_t count) {
  if (count >= 8) {
    for (int32_t i = 0;; i = least(i + 8, count - 8)) { /* the last eight overlap those before */
      *(float32x8 *)(output + i) = *(const float32x8 *)(input + i);
      if (i == count - 8) return;
    }
  }
  for (int32_t i = 0; i < count; i++) output[i] = input[i];
}

INLINE void gather(const struct convolution_float_arguments *a, const float *input, int32_t top, int32_t left, float *row) {
  int32_t channels = a->input_channels;
  for (int32_t ky = 0; ky < a->kernel_height; ky++) {
    int32_t y = top + ky * a->dilation_height;
    for (int32_t kx = 0; kx < a->kernel_width;) {
      int32_t x = left + kx * a->dilation_width, run = 1;
      if (y < 0 || y >= a->input_height || x < 0 || x >= a->input_width) {
        for (int32_t i = 0; i < channels; i++) row[i] = 0.0f;
      } else {
        if (a->dilation_width == 1) run = least(a->kernel_width - kx, a->input_width - x);
        copy_floats(row, input + (y * a->input_width + x) * channels, run * channels);
      }
      row += run * channels;
      kx += run;
    }
  }
}

KERNEL(convolution_float) {
  int32_t places = a->output_height * a->output_width, channels = a->output_channels;
  int32_t taps = a->kernel_height * a->kernel_width * a->input_channels;
  int32_t is_plain = a->kernel_height == 1 && a->kernel_width == 1 && a->stride_height == 1 && a->stride_width == 1 &&
                     a->pad_top == 0 && a->pad_left == 0 && a->output_width == a->input_width &&
                     a->output_height <= a->input_height;
  const float *weights = AT(const float, weights), *bias = AT(const float, bias);
  for (int32_t b = 0; b < a->batch; b++) {
    const float *input = AT(const float, input) + b * a->input_height * a->input_width * a->input_channels;
    float *output = AT(float, output) + b * places * channels;
    for (int32_t place = 0; place < places; place += ROWS) {
      int32_t count = least(ROWS, places - place);
      const float *rows = input + place * taps;
      if (!is_plain) {
        float *row = AT(float, scratch);
        for (int32_t r = 0; r < count; r++) {
          int32_t y = (place + r) / a->output_width, x = (place + r) % a->output_width;
          gather(a, input, y * a->stride_height - a->pad_top, x * a->stride_width - a->pad_left, row + r * taps);
        }
        rows = row;
      }
      const float *r1 = rows + (count > 1 ? taps : 0), *r2 = rows + (count > 2 ? 2 * taps : 0);
      const float *r3 = rows + (count > 3 ? 3 * taps : 0);
      for (int32_t channel = 0; channel < channels; channel += 8) {
        const float *w = weights + channel * taps;
        float32x8 start = *(const float32x8 *)(bias + channel);
        float32x8 s0 = start, s1 = start, s2 = start, s3 = start;
        if (count == 1) {
          for (int32_t k = 0; k < taps; k++, w += 8) s0 += *(const float32x8 *)w * all_float(rows[k]);
        } else {
          for (int32_t k = 0; k < taps; k++, w += 8) {
            float32x8 v = *(const float32x8 *)w;
            s0 += v * all_float(rows[k]);
            s1 += v * all_float(r1[k]);
            s2 += v * all_float(r2[k]);
            s3 += v * all_float(r3[k]);
          }
        }
        float32x8 sums[ROWS] = {s0, s1, s2, s3};
        for (int32_t r = 0; r < ROWS; r++)
          if (r < count)
            store_float(output + (place + r) * channels + channel, clamped(sums[r], a->low, a->high),
                        channels - channel);
      }
    }
  }
}

KERNEL(depthwise_float) {
  int32_t channels = a->output_channels;
  const float *weights = AT(const float, weights), *bias = AT(const float, bias);
  for (int32_t b = 0; b < a->batch; b++) {
    const float *input = AT(const float, input) + b * a->input_height * a->input_width * channels;
    float *output = AT(float, output) + b * a->output_height * a->output_width * channels;
    for (int32_t oy = 0; oy < a->output_height; oy++)
      for (int32_t ox = 0; ox < a->output_width; ox++, output += channels) {
        int32_t top = oy * a->stride_height - a->pad_top, left = ox * a->stride_width - a->pad_left;
        int32_t channel = 0;
        for (; channel + 8 <= channels; channel += 8) {
          float32x8 sums = *(const float32x8 *)(bias + channel);
          for (int32_t ky = 0; ky < a->kernel_height; ky++) {
            int32_t y = top + ky * a->dilation_height;
            if (y < 0 || y >= a->input_height) continue;
#pragma clang loop vectorize(disable) unroll(disable)
            for (int32_t kx = 0; kx < a->kernel_width; kx++) {
              int32_t x = left + kx * a->dilation_width;
              if (x < 0 || x >= a->input_width) continue;
              sums += *(const float32x8 *)(input + (y * a->input_width + x) * channels + channel) *
                      *(const float32x8 *)(weights + (ky * a->kernel_width + kx) * channels + channel);
            }
          }
          store_float(output + channel, clamped(sums, a->low, a->high), 8);
        }
        for (; channel < channels; channel++) {
          float sum = bias[channel];
          for (int32_t ky = 0; ky < a->kernel_height; ky++)
            for (int32_t kx = 0; kx < a->kernel_width; kx++) {
              int32_t y = top + ky * a->dilation_height, x = left + kx * a->dilation_width;
              if (y < 0 || y >= a->input_height || x < 0 || x >= a->input_width) continue;
              sum += input[(y * a->input_width + x) * channels + channel] *
                     weights[(ky * a->kernel_width + kx) * channels + channel];
            }
          output[channel] = least_float(most_float(sum, a->low), a->high);
        }
      }
  }
}
