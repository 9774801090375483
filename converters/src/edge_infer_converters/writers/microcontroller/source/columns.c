/* Products of pairs of int16. A processor with DSP instructions takes two at once: it splits four weights into those at
   even and at odd places, so a column has its values in the order 0, 2, 1, 3. */
#if defined(__ARM_FEATURE_DSP)
#include <arm_acle.h>
static int32_t word_at(const void *place) {
  int32_t word;
  memcpy(&word, place, 4);
  return word;
}
static int32_t even_weights(int32_t four) { return (int32_t)__sxtb16((uint32_t)four); }
static int32_t odd_weights(int32_t four) { return (int32_t)__sxtb16(((uint32_t)four >> 8) | ((uint32_t)four << 24)); }
#endif

/* Add the products of two filters and two columns to the four sums. */
static void four_sums(int32_t *sums, const int8_t *weights, const int8_t *others, const int16_t *first,
                      const int16_t *second, int32_t count) {
  int32_t s0 = sums[0], s1 = sums[1], s2 = sums[2], s3 = sums[3], k = 0;
#if defined(__ARM_FEATURE_DSP)
  for (; k + 4 <= count; k += 4) {
    int32_t w = word_at(weights + k), v = word_at(others + k);
    int32_t even = even_weights(w), odd = odd_weights(w), other_even = even_weights(v), other_odd = odd_weights(v);
    int32_t x = word_at(first + k), y = word_at(second + k);
    s0 = __smlad(even, x, s0);
    s1 = __smlad(even, y, s1);
    s2 = __smlad(other_even, x, s2);
    s3 = __smlad(other_even, y, s3);
    x = word_at(first + k + 2);
    y = word_at(second + k + 2);
    s0 = __smlad(odd, x, s0);
    s1 = __smlad(odd, y, s1);
    s2 = __smlad(other_odd, x, s2);
    s3 = __smlad(other_odd, y, s3);
  }
#endif
  for (count -= k; count > 0; count--, k++) {
    int32_t w = weights[k], v = others[k], x = first[k], y = second[k];
    s0 += w * x;
    s1 += w * y;
    s2 += v * x;
    s3 += v * y;
  }
  sums[0] = s0;
  sums[1] = s1;
  sums[2] = s2;
  sums[3] = s3;
}

static int32_t sum_of(const int16_t *column, int32_t count) {
  int32_t sum = 0, k;
  for (k = 0; k < count; k++) sum += column[k];
  return sum;
}

/* Write what one output sees into a column of int16, less the zero point; outside of the image that is 0. */
static void gather_column(const struct convolution_int8_call *a, const int8_t *image, int32_t oy, int32_t ox,
                          int16_t *column) {
  struct span y = span_of(oy, a->stride_height, a->pad_top, a->dilation_height, a->kernel_height, a->input_height);
  struct span x = span_of(ox, a->stride_width, a->pad_left, a->dilation_width, a->kernel_width, a->input_width);
  int32_t inputs = a->input_channels, zero = a->input_zero, ky, kx, i;
  int16_t *to = column;
  for (ky = 0; ky < a->kernel_height; ky++)
    for (kx = 0; kx < a->kernel_width; kx++, to += inputs) {
      const int8_t *from = image + ((y.start + ky * a->dilation_height) * a->input_width + x.start +
                                    kx * a->dilation_width) * inputs;
      if (ky < y.first || ky >= y.last || kx < x.first || kx >= x.last)
        memset(to, 0, 2 * (uint32_t)inputs);
      else
        for (i = 0; i < inputs; i++) to[i] = (int16_t)(from[i] - zero);
    }
#if defined(__ARM_FEATURE_DSP)
  for (i = 0; i + 4 <= (int32_t)(to - column); i += 4) {
    int16_t second = column[i + 1];
    column[i + 1] = column[i + 2];
    column[i + 2] = second;
  }
#endif
}

/* A convolution; a fully connected layer is one of 1 by 1. Weights are [outputs, height, width, inputs]. Two outputs
   beside each other are computed at once, of two filters. */
static void convolution_int8(const struct convolution_int8_call *a) {
  int32_t taps = a->kernel_height * a->kernel_width * a->input_channels, outputs = a->output_channels;
  int32_t places = a->output_height * a->output_width, b, place, n;
  int16_t *columns = a->scratch;
  int8_t *output = a->output;
  for (b = 0; b < a->batch; b++) {
    const int8_t *image = (const int8_t *)a->input + b * a->input_height * a->input_width * a->input_channels;
    for (place = 0; place < places; place += 2) {
      int32_t two = place + 1 < places, less = 0, less_second = 0;
      const int16_t *second = two ? columns + taps : columns;
      gather_column(a, image, place / a->output_width, place % a->output_width, columns);
      if (two)
        gather_column(a, image, (place + 1) / a->output_width, (place + 1) % a->output_width, columns + taps);
      if (a->weights_zero != 0) {
        less = a->weights_zero * sum_of(columns, taps);
        less_second = a->weights_zero * sum_of(second, taps);
      }
      for (n = 0; n < outputs; n += 2) {
        int32_t more = n + 1 < outputs;
        const int8_t *weights = (const int8_t *)a->weights + n * taps;
        int32_t sums[4];
        sums[0] = a->bias[n] - less;
        sums[1] = a->bias[n] - less_second;
        sums[2] = a->bias[n + more] - less;
        sums[3] = a->bias[n + more] - less_second;
        four_sums(sums, weights, weights + more * taps, columns, second, taps);
        output[n] = RESULT(sums[0], n);
        if (two) output[outputs + n] = RESULT(sums[1], n);
        if (more) output[n + 1] = RESULT(sums[2], n + 1);
        if (two && more) output[outputs + n + 1] = RESULT(sums[3], n + 1);
      }
      output += two ? 2 * outputs : outputs;
    }
  }
}

/* A convolution of each channel alone, four channels at once. Weights are [height, width, channels]. */
static void depthwise_int8(const struct depthwise_int8_call *a) {
  int32_t channels = a->input_channels, width = a->input_width, down = a->dilation_height * width * channels;
  int32_t across = a->dilation_width * channels, zero = a->input_zero, weights_zero = a->weights_zero;
  int32_t b, oy, ox, n, ky, kx;
  int8_t *output = a->output;
  for (b = 0; b < a->batch; b++) {
    const int8_t *image = (const int8_t *)a->input + b * a->input_height * width * channels;
    for (oy = 0; oy < a->output_height; oy++)
      for (ox = 0; ox < a->output_width; ox++) {
        struct span y = span_of(oy, a->stride_height, a->pad_top, a->dilation_height, a->kernel_height, a->input_height);
        struct span x = span_of(ox, a->stride_width, a->pad_left, a->dilation_width, a->kernel_width, width);
        const int8_t *first = image + (y.start * width + x.start) * channels + y.first * down + x.first * across;
        const int8_t *taps = (const int8_t *)a->weights + (y.first * a->kernel_width + x.first) * channels;
        n = 0;
        for (; n + 4 <= channels; n += 4) {
          int32_t s0 = a->bias[n], s1 = a->bias[n + 1], s2 = a->bias[n + 2], s3 = a->bias[n + 3];
          for (ky = y.first; ky < y.last; ky++) {
            const int8_t *value = first + n + (ky - y.first) * down;
            const int8_t *weight = taps + n + (ky - y.first) * a->kernel_width * channels;
            for (kx = x.first; kx < x.last; kx++, value += across, weight += channels) {
#if defined(__ARM_FEATURE_DSP)
              if (weights_zero == 0) {
                int32_t zeros = (int32_t)(((uint32_t)zero << 16) | ((uint32_t)zero & 0xFFFFu));
                int32_t v = word_at(value), w = word_at(weight);
                int32_t v02 = __ssub16(even_weights(v), zeros), v13 = __ssub16(odd_weights(v), zeros);
                int32_t w02 = even_weights(w), w13 = odd_weights(w);
                s0 = __smlabb(v02, w02, s0);
                s1 = __smlabb(v13, w13, s1);
                s2 = __smlatt(v02, w02, s2);
                s3 = __smlatt(v13, w13, s3);
                continue;
              }
#endif
              s0 += (value[0] - zero) * (weight[0] - weights_zero);
              s1 += (value[1] - zero) * (weight[1] - weights_zero);
              s2 += (value[2] - zero) * (weight[2] - weights_zero);
              s3 += (value[3] - zero) * (weight[3] - weights_zero);
            }
          }
          output[n] = RESULT(s0, n);
          output[n + 1] = RESULT(s1, n + 1);
          output[n + 2] = RESULT(s2, n + 2);
          output[n + 3] = RESULT(s3, n + 3);
        }
        for (; n < channels; n++) {
          int32_t sum = a->bias[n];
          for (ky = y.first; ky < y.last; ky++) {
            const int8_t *value = first + n + (ky - y.first) * down;
            const int8_t *weight = taps + n + (ky - y.first) * a->kernel_width * channels;
            for (kx = x.first; kx < x.last; kx++, value += across, weight += channels)
              sum += (*value - zero) * (*weight - weights_zero);
          }
          output[n] = RESULT(sum, n);
        }
        output += channels;
      }
  }
}

/* A fully connected layer: the rows of an image are the rows of a matrix. Weights are [outputs, inputs]. */
static void connected_int8(const struct connected_int8_call *a) {
  int32_t inputs = a->input_channels, outputs = a->output_channels, zero = a->input_zero, rows, n, k;
  const int8_t *input = a->input;
  int8_t *output = a->output;
  for (rows = a->batch * a->output_height; rows > 0; rows--, input += inputs)
    for (n = 0; n < outputs; n++) {
      const int8_t *weights = (const int8_t *)a->weights + n * inputs;
      int32_t sum = a->bias[n];
      k = 0;
#if defined(__ARM_FEATURE_DSP)
      if (a->weights_zero == 0) {
        int32_t zeros = (int32_t)(((uint32_t)zero << 16) | ((uint32_t)zero & 0xFFFFu));
        for (; k + 4 <= inputs; k += 4) {
          int32_t v = word_at(input + k), w = word_at(weights + k);
          sum = __smlad(__ssub16(even_weights(v), zeros), even_weights(w), sum);
          sum = __smlad(__ssub16(odd_weights(v), zeros), odd_weights(w), sum);
        }
      }
#endif
      for (; k < inputs; k++) sum += (input[k] - zero) * (weights[k] - a->weights_zero);
      *output++ = RESULT(sum, n);
    }
}
