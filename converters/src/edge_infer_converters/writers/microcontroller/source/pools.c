/* The window of an output of a pool: rows and columns of the image. */
struct window { int32_t top, bottom, left, right, count; };

static struct window window_of(int32_t top, int32_t left, int32_t height, int32_t width, int32_t rows, int32_t columns) {
  struct window found;
  found.top = most(top, 0);
  found.bottom = least(top + height, rows);
  found.left = most(left, 0);
  found.right = least(left + width, columns);
  found.count = (found.bottom - found.top) * (found.right - found.left);
  return found;
}

static void average_pool_int8(const struct average_pool_int8_call *a) {
  int32_t channels = a->output_channels, b, oy, ox, n, y, x;
  int8_t *output = a->output;
  for (b = 0; b < a->batch; b++) {
    const int8_t *image = (const int8_t *)a->input + b * a->input_height * a->input_width * channels;
    for (oy = 0; oy < a->output_height; oy++)
      for (ox = 0; ox < a->output_width; ox++) {
        struct window w = window_of(oy * a->stride_height - a->pad_top, ox * a->stride_width - a->pad_left,
                                    a->kernel_height, a->kernel_width, a->input_height, a->input_width);
        for (n = 0; n < channels; n++) {
          int32_t sum = 0;
          for (y = w.top; y < w.bottom; y++)
            for (x = w.left; x < w.right; x++) {
              int32_t value = image[(y * a->input_width + x) * channels + n];
              sum += value;
            }
          sum = sum > 0 ? (sum + w.count / 2) / w.count : (sum - w.count / 2) / w.count;
          *output++ = (int8_t)least(most(sum, a->low), a->high);
        }
      }
  }
}

/* Of uint8 with the sign flipped: the unsigned sum is rounded. */
static void average_pool_uint8(const struct average_pool_uint8_call *a) {
  int32_t channels = a->output_channels, b, oy, ox, n, y, x;
  int8_t *output = a->output;
  for (b = 0; b < a->batch; b++) {
    const int8_t *image = (const int8_t *)a->input + b * a->input_height * a->input_width * channels;
    for (oy = 0; oy < a->output_height; oy++)
      for (ox = 0; ox < a->output_width; ox++) {
        struct window w = window_of(oy * a->stride_height - a->pad_top, ox * a->stride_width - a->pad_left,
                                    a->kernel_height, a->kernel_width, a->input_height, a->input_width);
        for (n = 0; n < channels; n++) {
          int32_t sum = 0;
          for (y = w.top; y < w.bottom; y++)
            for (x = w.left; x < w.right; x++) {
              int32_t value = image[(y * a->input_width + x) * channels + n];
              sum += value + 128;
            }
          sum = (sum + w.count / 2) / w.count - 128;
          *output++ = (int8_t)least(most(sum, a->low), a->high);
        }
      }
  }
}

static void max_pool_int8(const struct max_pool_int8_call *a) {
  int32_t channels = a->output_channels, b, oy, ox, n, y, x;
  int8_t *output = a->output;
  for (b = 0; b < a->batch; b++) {
    const int8_t *image = (const int8_t *)a->input + b * a->input_height * a->input_width * channels;
    for (oy = 0; oy < a->output_height; oy++)
      for (ox = 0; ox < a->output_width; ox++) {
        struct window w = window_of(oy * a->stride_height - a->pad_top, ox * a->stride_width - a->pad_left,
                                    a->kernel_height, a->kernel_width, a->input_height, a->input_width);
        for (n = 0; n < channels; n++) {
          int32_t sum = -128;
          for (y = w.top; y < w.bottom; y++)
            for (x = w.left; x < w.right; x++) {
              int32_t value = image[(y * a->input_width + x) * channels + n];
              sum = most(sum, value);
            }
          *output++ = (int8_t)least(most(sum, a->low), a->high);
        }
      }
  }
}

static void average_pool_float(const struct average_pool_float_call *a) {
  int32_t channels = a->output_channels, b, oy, ox, n, y, x;
  float *output = a->output;
  for (b = 0; b < a->batch; b++) {
    const float *image = (const float *)a->input + b * a->input_height * a->input_width * channels;
    for (oy = 0; oy < a->output_height; oy++)
      for (ox = 0; ox < a->output_width; ox++) {
        struct window w = window_of(oy * a->stride_height - a->pad_top, ox * a->stride_width - a->pad_left,
                                    a->kernel_height, a->kernel_width, a->input_height, a->input_width);
        for (n = 0; n < channels; n++) {
          float sum = 0.0f;
          for (y = w.top; y < w.bottom; y++)
            for (x = w.left; x < w.right; x++) {
              float value = image[(y * a->input_width + x) * channels + n];
              sum += value;
            }
          sum /= (float)w.count;
          *output++ = (float)least_float(most_float(sum, a->low), a->high);
        }
      }
  }
}

static void max_pool_float(const struct max_pool_float_call *a) {
  int32_t channels = a->output_channels, b, oy, ox, n, y, x;
  float *output = a->output;
  for (b = 0; b < a->batch; b++) {
    const float *image = (const float *)a->input + b * a->input_height * a->input_width * channels;
    for (oy = 0; oy < a->output_height; oy++)
      for (ox = 0; ox < a->output_width; ox++) {
        struct window w = window_of(oy * a->stride_height - a->pad_top, ox * a->stride_width - a->pad_left,
                                    a->kernel_height, a->kernel_width, a->input_height, a->input_width);
        for (n = 0; n < channels; n++) {
          float sum = -3.4028235e38f;
          for (y = w.top; y < w.bottom; y++)
            for (x = w.left; x < w.right; x++) {
              float value = image[(y * a->input_width + x) * channels + n];
              sum = most_float(sum, value);
            }
          *output++ = (float)least_float(most_float(sum, a->low), a->high);
        }
      }
  }
}

/* The mean along one axis of [outer, reduced, inner]. */
static void mean_int8(const struct mean_int8_call *a) {
  const int8_t *input = a->input;
  int8_t *output = a->output;
  int32_t o, i, r;
  for (o = 0; o < a->outer; o++, input += a->reduced * a->inner)
    for (i = 0; i < a->inner; i++) {
      int32_t sum = 0;
      for (r = 0; r < a->reduced; r++) sum += input[r * a->inner + i] - a->input_zero;
      *output++ = (int8_t)rounded((float)sum * a->multiplier, a->output_zero, -128, 127);
    }
}

/* The mean along one axis of [outer, reduced, inner]; the multiplier holds the scales and the count. */
static void mean_int8_fixed(const struct mean_int8_fixed_call *a) {
  const int8_t *input = a->input;
  int8_t *output = a->output;
  int32_t o, i, r;
  for (o = 0; o < a->outer; o++, input += a->reduced * a->inner)
    for (i = 0; i < a->inner; i++) {
      int32_t sum = 0;
      for (r = 0; r < a->reduced; r++) sum += input[r * a->inner + i] - a->input_zero;
      sum = scaled_twice(sum, a->multiplier, a->shift) + a->output_zero;
      *output++ = (int8_t)least(most(sum, -128), 127);
    }
}

static void mean_float(const struct mean_float_call *a) {
  const float *input = a->input;
  float *output = a->output;
  int32_t o, i, r;
  for (o = 0; o < a->outer; o++, input += a->reduced * a->inner)
    for (i = 0; i < a->inner; i++) {
      float sum = 0.0f;
      for (r = 0; r < a->reduced; r++) sum += input[r * a->inner + i];
      *output++ = sum / (float)a->reduced;
    }
}
