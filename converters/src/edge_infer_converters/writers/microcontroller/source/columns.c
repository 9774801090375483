/* Products of pairs of int16. A processor with DSP instructions takes two at once: it splits four bytes into those at
   even and at odd places, so a column has its values in the order 0, 2, 1, 3. */
#if defined(__ARM_FEATURE_DSP)
#include <arm_acle.h>
static int32_t word_at(const void *place) {
  int32_t word;
  memcpy(&word, place, 4);
  return word;
}
#endif

#if defined(__ARM_FEATURE_DSP)
static int32_t even_weights(int32_t four) { return (int32_t)__sxtb16((uint32_t)four); }
static int32_t odd_weights(int32_t four) { return (int32_t)__sxtb16((uint32_t)four >> 8); }
/* Of values their zero point is taken away by the same instruction: `zeros` is twice 0 - zero, as `both` makes it. */
static int32_t both(int32_t value) { return (int32_t)(((uint32_t)value << 16) | ((uint32_t)value & 0xFFFFu)); }
static int32_t even_values(int32_t zeros, int32_t four) { return (int32_t)__sxtab16((uint32_t)zeros, (uint32_t)four); }
static int32_t odd_values(int32_t zeros, int32_t four) {
  return (int32_t)__sxtab16((uint32_t)zeros, (uint32_t)four >> 8);
}
#endif

#if defined(__ARM_FEATURE_DSP)
static void put_word(void *place, int32_t word) { memcpy(place, &word, 4); }
#endif

/* The upper half of a product, rounded. */
static int32_t rounded_high(int32_t first, int32_t second) {
#if defined(__ARM_FEATURE_DSP) && defined(__GNUC__)
  int32_t high;
  __asm__("smmulr %0, %1, %2" : "=r"(high) : "r"(first), "r"(second));
  return high;
#else
  return (int32_t)(((int64_t)first * second + INT64_C(0x80000000)) >> 32);
#endif
}

/* `small_result` of `windows.c`: the bounds of int8 itself are one instruction. */
static int8_t small_result(int32_t sum, int32_t multiplier, int32_t shift, int32_t zero, int32_t low, int32_t high) {
  int32_t scaled = rounded_high(2 * sum, multiplier), half = INT32_C(1) << (-shift - 1);
  scaled = ((scaled + (scaled >> 31) + half) >> -shift) + zero;
#if defined(__ARM_FEATURE_DSP)
  if (low == -128 && high == 127) return (int8_t)__ssat(scaled, 8);
#endif
  return (int8_t)least(most(scaled, low), high);
}

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

/* A row of a window has a few bytes, for which a call of memcpy would take longer. */
static void copy_bytes(int8_t *to, const int8_t *from, int32_t count) {
#if defined(__ARM_FEATURE_DSP)
  int32_t i = 0;
  for (; i + 4 <= count; i += 4) put_word(to + i, word_at(from + i));
  for (; i < count; i++) to[i] = from[i];
#else
  memcpy(to, from, (uint32_t)count);
#endif
}

/* Write what one output sees into a column of int16, less the zero point; outside of the image that is 0. The bytes lie
   in the second half of the column first, each behind the place that it becomes. */
static void gather_column(const struct convolution_int8_call *a, const int8_t *image, int32_t oy, int32_t ox,
                          int16_t *column) {
  struct span y = span_of(oy, a->stride_height, a->pad_top, a->dilation_height, a->kernel_height, a->input_height);
  struct span x = span_of(ox, a->stride_width, a->pad_left, a->dilation_width, a->kernel_width, a->input_width);
  int32_t inputs = a->input_channels, taps = a->kernel_height * a->kernel_width * inputs, ky, kx, k = 0;
  int32_t run = a->dilation_width == 1 ? a->kernel_width : 1;
  int8_t *bytes = (int8_t *)column + taps, *to = bytes;
  const int8_t *from = bytes;
  if (taps == inputs && y.first < y.last && x.first < x.last)
    from = image + (y.start * a->input_width + x.start) * inputs;
  else
    for (ky = 0; ky < a->kernel_height; ky++)
      for (kx = 0; kx < a->kernel_width; kx += run, to += run * inputs) {
        int32_t first = most(x.first, kx), last = least(x.last, kx + run);
        int32_t place = (y.start + ky * a->dilation_height) * a->input_width + x.start + first * a->dilation_width;
        if (ky < y.first || ky >= y.last || last - first < run) memset(to, a->input_zero, (uint32_t)(run * inputs));
        if (ky >= y.first && ky < y.last && first < last)
          copy_bytes(to + (first - kx) * inputs, image + place * inputs, (last - first) * inputs);
      }
#if defined(__ARM_FEATURE_DSP)
  for (; k + 4 <= taps; k += 4) {
    int32_t four = word_at(from + k), zeros = both(-a->input_zero);
    put_word(column + k, even_values(zeros, four));
    put_word(column + k + 2, odd_values(zeros, four));
  }
#endif
  for (taps -= k; taps > 0; taps--, k++) column[k] = (int16_t)(from[k] - a->input_zero);
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
        sums[0] = RESULT(sums[0], n);
        sums[1] = RESULT(sums[1], n);
        sums[2] = RESULT(sums[2], n + more);
        sums[3] = RESULT(sums[3], n + more);
        output[n] = (int8_t)sums[0];
        output[n + more] = (int8_t)sums[2];
        if (two) {
          output[outputs + n] = (int8_t)sums[1];
          output[outputs + n + more] = (int8_t)sums[3];
        }
      }
      output += two ? 2 * outputs : outputs;
    }
  }
}

/* A convolution of each channel alone, four channels at once. Weights are [height, width, channels]. */
static void depthwise_int8(const struct depthwise_int8_call *a) {
  int32_t channels = a->input_channels, width = a->input_width, down = a->dilation_height * width * channels;
  int32_t across = a->dilation_width * channels, b, oy, ox, n, ky, kx, rest;
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
          const int8_t *row = first + n, *weights = taps + n;
          for (ky = y.first; ky < y.last; ky++, row += down, weights += a->kernel_width * channels) {
            const int8_t *value = row, *weight = weights;
            for (kx = x.last - x.first; kx > 0; kx--, value += across, weight += channels) {
#if defined(__ARM_FEATURE_DSP)
              if (a->weights_zero == 0) {
                int32_t v = word_at(value), w = word_at(weight), zeros = both(-a->input_zero);
                int32_t v02 = even_values(zeros, v), v13 = odd_values(zeros, v);
                int32_t w02 = even_weights(w), w13 = odd_weights(w);
                s0 = __smlabb(v02, w02, s0);
                s1 = __smlabb(v13, w13, s1);
                s2 = __smlatt(v02, w02, s2);
                s3 = __smlatt(v13, w13, s3);
                continue;
              }
#endif
              s0 += (value[0] - a->input_zero) * (weight[0] - a->weights_zero);
              s1 += (value[1] - a->input_zero) * (weight[1] - a->weights_zero);
              s2 += (value[2] - a->input_zero) * (weight[2] - a->weights_zero);
              s3 += (value[3] - a->input_zero) * (weight[3] - a->weights_zero);
            }
          }
          s0 = RESULT(s0, n);
          s1 = RESULT(s1, n + 1);
          s2 = RESULT(s2, n + 2);
          s3 = RESULT(s3, n + 3);
          output[n] = (int8_t)s0;
          output[n + 1] = (int8_t)s1;
          output[n + 2] = (int8_t)s2;
          output[n + 3] = (int8_t)s3;
        }
        for (rest = channels & 3; rest > 0; rest--, n++) {
          int32_t sum = a->bias[n];
          for (ky = y.first; ky < y.last; ky++) {
            const int8_t *value = first + n + (ky - y.first) * down;
            const int8_t *weight = taps + n + (ky - y.first) * a->kernel_width * channels;
            for (kx = x.first; kx < x.last; kx++, value += across, weight += channels)
              sum += (*value - a->input_zero) * (*weight - a->weights_zero);
          }
          output[n] = RESULT(sum, n);
        }
        output += channels;
      }
  }
}

/* A depthwise convolution of 3 by 3 taps, one channel after another. Three rows of the channel lie in the scratch as
   int16 and a fourth stands for what is outside of the image; a pair of words has the weights of a row as 0, 1 and
   1, 2. Weights are [3, 3, channels]. */
static void depthwise_3x3_int8(const struct depthwise_3x3_int8_call *a) {
  int32_t channels = a->input_channels, columns = a->output_width, stride = a->stride_width, left = a->pad_left;
  int32_t length = (stride * columns + 3) & ~1, inside = least(a->input_width, length - left), b, n, oy, ox, k;
  int16_t *first = a->scratch, *outside = first + 3 * length;
  for (k = 0; k < 4 * length; k++) first[k] = (int16_t)a->input_zero;
  for (b = 0; b < a->batch; b++)
    for (n = 0; n < channels; n++) {
      const int8_t *from = (const int8_t *)a->input + b * a->input_height * a->input_width * channels + n;
      const int8_t *weights = (const int8_t *)a->weights + n;
      int8_t *output = (int8_t *)a->output + b * a->output_height * columns * channels + n;
      int16_t *next = first, *top = outside, *middle = outside, *bottom = outside, w[9];
      int32_t multiplier = a->multipliers[n], shift = a->shifts[n], bias = a->bias[n], y = -a->pad_top;
      for (k = 0; k < 9; k++, weights += channels) {
        w[k] = (int16_t)(*weights - a->weights_zero);
        bias -= a->input_zero * w[k];
      }
      for (oy = 0; oy < a->output_height; oy++) {
        for (; y < oy * a->stride_height - a->pad_top + 3; y++) {
          top = middle;
          middle = bottom;
          bottom = outside;
          if (y < 0 || y >= a->input_height) continue;
          bottom = next + left;
          for (k = inside; k >= 2; k -= 2, from += 2 * channels) {
            *bottom++ = from[0];
            *bottom++ = from[channels];
          }
          if (k > 0) *bottom = *from;
          from += (a->input_width - inside + k) * channels;
          bottom = next;
          next = next == first + 2 * length ? first : next + length;
        }
        const int16_t *x0 = top, *x1 = middle, *x2 = bottom;
        ox = 0;
#if defined(__ARM_FEATURE_DSP)
        int32_t a0 = word_at(w), a1 = word_at(w + 3), a2 = word_at(w + 6);
        int32_t b0 = word_at(w + 1), b1 = word_at(w + 4), b2 = word_at(w + 7);
        if (stride == 1)
          for (; ox + 2 <= columns; ox += 2, x0 += 2, x1 += 2, x2 += 2) {
            int32_t sum = bias, second = bias, u = word_at(x0), v = word_at(x0 + 2);
            sum = __smlad(u, a0, sum);
            sum = __smlabt(v, b0, sum);
            second = __smlatb(u, a0, second);
            second = __smlad(v, b0, second);
            u = word_at(x1);
            v = word_at(x1 + 2);
            sum = __smlad(u, a1, sum);
            sum = __smlabt(v, b1, sum);
            second = __smlatb(u, a1, second);
            second = __smlad(v, b1, second);
            u = word_at(x2);
            v = word_at(x2 + 2);
            sum = __smlad(u, a2, sum);
            sum = __smlabt(v, b2, sum);
            second = __smlatb(u, a2, second);
            second = __smlad(v, b2, second);
            *output = SCALED(sum);
            output += channels;
            *output = SCALED(second);
            output += channels;
          }
#endif
        for (; ox < columns; ox++, output += channels, x0 += stride, x1 += stride, x2 += stride) {
          int32_t sum = bias;
#if defined(__ARM_FEATURE_DSP)
          sum = __smlad(word_at(x0), a0, sum);
          sum = __smlad(word_at(x1), a1, sum);
          sum = __smlad(word_at(x2), a2, sum);
          sum = __smlabt(x0[2], b0, sum);
          sum = __smlabt(x1[2], b1, sum);
          sum = __smlabt(x2[2], b2, sum);
#else
          sum += x0[0] * w[0] + x0[1] * w[1] + x0[2] * w[2] + x1[0] * w[3] + x1[1] * w[4] + x1[2] * w[5];
          sum += x2[0] * w[6] + x2[1] * w[7] + x2[2] * w[8];
#endif
          *output = SCALED(sum);
        }
      }
    }
}

/* A fully connected layer, two outputs at once: the rows of an image are the rows of a matrix. Weights are
   [outputs, inputs]. */
static void connected_int8(const struct connected_int8_call *a) {
  int32_t inputs = a->input_channels, outputs = a->output_channels, rows, n, k;
  const int8_t *input = a->input;
  int8_t *output = a->output;
  for (rows = a->batch * a->output_height; rows > 0; rows--, input += inputs, output += outputs)
    for (n = 0; n < outputs; n += 2) {
      int32_t more = n + 1 < outputs, sum = a->bias[n], second = a->bias[n + more];
      const int8_t *weights = (const int8_t *)a->weights + n * inputs, *others = weights + more * inputs;
      k = 0;
#if defined(__ARM_FEATURE_DSP)
      if (a->weights_zero == 0)
        for (; k + 4 <= inputs; k += 4) {
          int32_t v = word_at(input + k), w = word_at(weights + k), u = word_at(others + k);
          int32_t zeros = both(-a->input_zero), even = even_values(zeros, v), odd = odd_values(zeros, v);
          sum = __smlad(even, even_weights(w), sum);
          sum = __smlad(odd, odd_weights(w), sum);
          second = __smlad(even, even_weights(u), second);
          second = __smlad(odd, odd_weights(u), second);
        }
#endif
      for (; k < inputs; k++) {
        int32_t value = input[k] - a->input_zero;
        sum += value * (weights[k] - a->weights_zero);
        second += value * (others[k] - a->weights_zero);
      }
      output[n] = RESULT(sum, n);
      if (more) output[n + 1] = RESULT(second, n + 1);
    }
}
