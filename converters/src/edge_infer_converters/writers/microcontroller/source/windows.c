/* The part of a window that lies inside of the image, along one side: taps `first` to `last`, and where tap 0 lies. */
struct span { int32_t first, last, start; };

static struct span span_of(int32_t place, int32_t stride, int32_t pad, int32_t dilation, int32_t taps, int32_t size) {
  struct span found;
  found.start = place * stride - pad;
  found.first = found.start < 0 ? (dilation - 1 - found.start) / dilation : 0;
  found.last = least(taps, (size - found.start + dilation - 1) / dilation);
  return found;
}

/* The sum of a channel as an integer of the output's scale. */
static int8_t fixed_result(int32_t sum, int32_t multiplier, int32_t shift, int32_t zero, int32_t low, int32_t high) {
  return (int8_t)least(most(scaled_twice(sum, multiplier, shift) + zero, low), high);
}

/* The same where |sum| < 2^30 and all shifts are to the right, as they are of every call here. */
static int8_t small_result(int32_t sum, int32_t multiplier, int32_t shift, int32_t zero, int32_t low, int32_t high) {
  int32_t scaled = (int32_t)(((int64_t)(2 * sum) * multiplier + INT64_C(0x80000000)) >> 32);
  int32_t half = INT32_C(1) << (-shift - 1);
  return (int8_t)least(most(((scaled + (scaled >> 31) + half) >> -shift) + zero, low), high);
}

static int8_t once_result(int32_t sum, int32_t multiplier, int32_t shift, int32_t zero, int32_t low, int32_t high) {
  return (int8_t)least(most(scaled_once(sum, multiplier, shift) + zero, low), high);
}

static int8_t float_result(int32_t sum, float multiplier, int32_t zero, int32_t low, int32_t high) {
  return (int8_t)rounded((float)sum * multiplier, zero, low, high);
}

/* sum + the products of `count` values and weights, each less its zero point. */
static int32_t sum_of_products(int32_t sum, const int8_t *input, const int8_t *weights, int32_t count, int32_t zero,
                               int32_t weights_zero) {
  if (weights_zero == 0)
    for (; count >= 4; count -= 4, input += 4, weights += 4)
      sum += (input[0] - zero) * weights[0] + (input[1] - zero) * weights[1] + (input[2] - zero) * weights[2] +
             (input[3] - zero) * weights[3];
  for (; count > 0; count--) sum += (*input++ - zero) * (*weights++ - weights_zero);
  return sum;
}

/* A convolution; a fully connected layer is one of 1 by 1. Weights are [outputs, height, width, inputs]. */
static void convolution_int8(const struct convolution_int8_call *a) {
  int32_t inputs = a->input_channels, outputs = a->output_channels, width = a->input_width;
  int32_t row = a->kernel_width * inputs, b, oy, ox, n, ky, kx;
  int8_t *output = a->output;
  for (b = 0; b < a->batch; b++) {
    const int8_t *image = (const int8_t *)a->input + b * a->input_height * width * inputs;
    for (oy = 0; oy < a->output_height; oy++)
      for (ox = 0; ox < a->output_width; ox++) {
        struct span y = span_of(oy, a->stride_height, a->pad_top, a->dilation_height, a->kernel_height, a->input_height);
        struct span x = span_of(ox, a->stride_width, a->pad_left, a->dilation_width, a->kernel_width, width);
        int32_t run = a->dilation_width == 1 ? x.last - x.first : 1;
        const int8_t *weights = a->weights;
        for (n = 0; n < outputs; n++, weights += a->kernel_height * row) {
          int32_t sum = a->bias[n];
          for (ky = y.first; ky < y.last; ky++)
            for (kx = x.first; kx < x.last; kx += run) {
              int32_t place = (y.start + ky * a->dilation_height) * width + x.start + kx * a->dilation_width;
              sum = sum_of_products(sum, image + place * inputs, weights + ky * row + kx * inputs, run * inputs,
                                    a->input_zero, a->weights_zero);
            }
          *output++ = RESULT(sum, n);
        }
      }
  }
}

/* A convolution of each channel alone. Weights are [height, width, channels]. */
static void depthwise_int8(const struct depthwise_int8_call *a) {
  int32_t channels = a->input_channels, width = a->input_width, down = a->dilation_height * width * channels;
  int32_t across = a->dilation_width * channels, b, oy, ox, n, ky, kx;
  int8_t *output = a->output;
  for (b = 0; b < a->batch; b++) {
    const int8_t *image = (const int8_t *)a->input + b * a->input_height * width * channels;
    for (oy = 0; oy < a->output_height; oy++)
      for (ox = 0; ox < a->output_width; ox++) {
        struct span y = span_of(oy, a->stride_height, a->pad_top, a->dilation_height, a->kernel_height, a->input_height);
        struct span x = span_of(ox, a->stride_width, a->pad_left, a->dilation_width, a->kernel_width, width);
        const int8_t *first = image + (y.start * width + x.start) * channels + y.first * down + x.first * across;
        const int8_t *taps = (const int8_t *)a->weights + (y.first * a->kernel_width + x.first) * channels;
        for (n = 0; n < channels; n++) {
          int32_t sum = a->bias[n];
          for (ky = y.first; ky < y.last; ky++) {
            const int8_t *value = first + n + (ky - y.first) * down;
            const int8_t *weight = taps + n + (ky - y.first) * a->kernel_width * channels;
            for (kx = x.first; kx < x.last; kx++, value += across, weight += channels)
              sum += (*value - a->input_zero) * (*weight - a->weights_zero);
          }
          *output++ = RESULT(sum, n);
        }
      }
  }
}

/* A convolution of values that `quantize_rows` made of floats, a scale and a zero point for each sample. */
static void convolution_hybrid(const struct convolution_hybrid_call *a) {
  int32_t inputs = a->input_channels, outputs = a->output_channels, width = a->input_width;
  int32_t row = a->kernel_width * inputs, b, oy, ox, n, ky, kx;
  float *output = a->output;
  for (b = 0; b < a->batch; b++) {
    const int8_t *image = (const int8_t *)a->input + b * a->input_height * width * inputs;
    const float *parameters = (const float *)a->parameters + 2 * b;
    for (oy = 0; oy < a->output_height; oy++)
      for (ox = 0; ox < a->output_width; ox++) {
        struct span y = span_of(oy, a->stride_height, a->pad_top, a->dilation_height, a->kernel_height, a->input_height);
        struct span x = span_of(ox, a->stride_width, a->pad_left, a->dilation_width, a->kernel_width, width);
        int32_t run = a->dilation_width == 1 ? x.last - x.first : 1;
        const int8_t *weights = a->weights;
        for (n = 0; n < outputs; n++, weights += a->kernel_height * row) {
          int32_t sum = 0;
          float value;
          for (ky = y.first; ky < y.last; ky++)
            for (kx = x.first; kx < x.last; kx += run) {
              int32_t place = (y.start + ky * a->dilation_height) * width + x.start + kx * a->dilation_width;
              sum = sum_of_products(sum, image + place * inputs, weights + ky * row + kx * inputs, run * inputs,
                                    (int32_t)parameters[1], 0);
            }
          value = (float)((double)((float)sum * parameters[0]) * a->multipliers[n] + a->bias[n]);
          *output++ = least_float(most_float(value, a->low), a->high);
        }
      }
  }
}

/* A convolution of floats, added in the order of the taps. Outside of the image zeros are added. */
static void convolution_float(const struct convolution_float_call *a) {
  int32_t inputs = a->input_channels, outputs = a->output_channels, width = a->input_width;
  int32_t row = a->kernel_width * inputs, b, oy, ox, n, ky, kx, i;
  float *output = a->output;
  for (b = 0; b < a->batch; b++) {
    const float *image = (const float *)a->input + b * a->input_height * width * inputs;
    for (oy = 0; oy < a->output_height; oy++)
      for (ox = 0; ox < a->output_width; ox++) {
        struct span y = span_of(oy, a->stride_height, a->pad_top, a->dilation_height, a->kernel_height, a->input_height);
        struct span x = span_of(ox, a->stride_width, a->pad_left, a->dilation_width, a->kernel_width, width);
        const float *weights = a->weights;
        for (n = 0; n < outputs; n++, weights += a->kernel_height * row) {
          float sum = a->bias[n];
          for (ky = y.first; ky < y.last; ky++)
            for (kx = x.first; kx < x.last; kx++) {
              int32_t place = (y.start + ky * a->dilation_height) * width + x.start + kx * a->dilation_width;
              const float *value = image + place * inputs, *weight = weights + ky * row + kx * inputs;
              for (i = 0; i < inputs; i++) sum += value[i] * weight[i];
            }
          *output++ = least_float(most_float(sum, a->low), a->high);
        }
      }
  }
}

static void depthwise_float(const struct depthwise_float_call *a) {
  int32_t channels = a->input_channels, width = a->input_width, b, oy, ox, n, ky, kx;
  const float *weights = a->weights;
  float *output = a->output;
  for (b = 0; b < a->batch; b++) {
    const float *image = (const float *)a->input + b * a->input_height * width * channels;
    for (oy = 0; oy < a->output_height; oy++)
      for (ox = 0; ox < a->output_width; ox++) {
        struct span y = span_of(oy, a->stride_height, a->pad_top, a->dilation_height, a->kernel_height, a->input_height);
        struct span x = span_of(ox, a->stride_width, a->pad_left, a->dilation_width, a->kernel_width, width);
        for (n = 0; n < channels; n++) {
          float sum = a->bias[n];
          for (ky = y.first; ky < y.last; ky++)
            for (kx = x.first; kx < x.last; kx++) {
              int32_t place = (y.start + ky * a->dilation_height) * width + x.start + kx * a->dilation_width;
              sum += image[place * channels + n] * weights[(ky * a->kernel_width + kx) * channels + n];
            }
          *output++ = least_float(most_float(sum, a->low), a->high);
        }
      }
  }
}
