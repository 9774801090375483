enum { LITERT, SYMMETRIC, ASYMMETRIC };

/* What a row is divided by, and the integer that stands for 0. */
struct range { float scale, inverse, zero; };

/* XNNPACK's xnn_f32_qd8_asymmetric_quantization_params. */
static struct range range_of_litert(float low, float high) {
  float inverse = low == high ? 1.0f : 255.0f / (high - low);
  float below = low * inverse, above = high * inverse;
  float zero = (-128.0f + below) + (127.0f + above) > 0.0f ? -128.0f - below : 127.0f - above;
  zero = least_float(most_float(zero, -128.0f), 127.0f);
  return (struct range){1.0f / inverse, inverse, (zero + 12582912.0f) - 12582912.0f};
}

static float away(float value) {
  int32_t whole = (int32_t)value;
  float rest = value - (float)whole;
  return (float)(whole + (rest >= 0.5f) - (rest <= -0.5f));
}

/* TFLite's AsymmetricQuantizeFloats, or SymmetricQuantizeFloats (reference/portable_tensor_utils.cc). */
static struct range range_of_tflite(float low, float high, int32_t kind) {
  if (low == high) return (struct range){1.0f, 1.0f, 0.0f};
  if (kind == SYMMETRIC) {
    float range = most_float(-low, high);
    return (struct range){range / 127.0f, 127.0f / range, 0.0f};
  }
  double scale = ((double)high - low) / 255.0, below = low / scale, above = high / scale;
  double zero = 128.0 - below < 127.0 + above ? -128.0 - below : 127.0 - above;
  zero = zero < -128.0 ? -128.0 : zero > 127.0 ? 127.0 : zero;
  return (struct range){(float)scale, 1.0f / (float)scale, away((float)zero)};
}

static void quantize_rows(const struct quantize_rows_call *a) {
  const float *input = a->input;
  float *parameters = a->parameters;
  for (int32_t row = 0, out = 0; row < a->rows; row++, input += a->columns, parameters += 2) {
    float low = 0.0f, high = 0.0f;
    for (int32_t i = 0; i < a->columns; i++) low = least_float(low, input[i]), high = most_float(high, input[i]);
    struct range range = a->kind == LITERT ? range_of_litert(low, high) : range_of_tflite(low, high, a->kind);
    int32_t zero = (int32_t)range.zero, least_value = a->kind == SYMMETRIC ? -127 : -128;
    parameters[0] = range.scale;
    parameters[1] = range.zero;
    for (int32_t i = 0; i < a->columns; i++, out++) {
      float value = input[i] * range.inverse;
      int32_t whole = a->kind == LITERT ? rounded(value, zero, -128, 127)
                                        : least(most((int32_t)away(least_float(most_float(
                                              value + range.zero, -1e6f), 1e6f)), least_value), 127);
      if (a->output_bytes == 1)
        ((int8_t *)a->output)[out] = (int8_t)whole;
      else
        ((float *)a->output)[out] = (float)(whole - zero);
    }
  }
}
