/* SVDF: a filter over the features of a step, then one over the last steps. */
#include "vectors.h"

INLINE int32_t short_at(const uint8_t *values, int32_t place, int32_t bytes) {
  return bytes == 1 ? ((const int8_t *)values)[place] : ((const int16_t *)values)[place];
}

/* TFLite's EvalIntegerSVDF (reference/svdf.h), with a state and filters over time of int8 or int16. */
COLD(svdf_int8) {
  uint8_t *state = AT(uint8_t, state);
  const int8_t *input = AT(const int8_t, input), *features = AT(const int8_t, features);
  const uint8_t *times = AT(const uint8_t, times);
  const int32_t *bias = AT(const int32_t, bias);
  int8_t *output = AT(int8_t, output);
  int32_t bytes = a->state_bytes, limit = bytes == 1 ? 127 : 32767, units = a->filters / a->rank;
  for (int32_t b = 0; b < a->batch; b++, input += a->inputs)
    for (int32_t unit = 0; unit < units; unit++) {
      uint32_t total = (uint32_t)bias[unit]; /* it may overflow, and then wraps around */
      for (int32_t filter = unit * a->rank; filter < (unit + 1) * a->rank; filter++, state += a->memory * bytes) {
        int32_t value = 0;
        for (int32_t i = 0; i < a->inputs; i++)
          value += (input[i] - a->input_zero) * features[filter * a->inputs + i];
        value = saturated_sum(scaled_twice(value, a->feature_multiplier, a->feature_shift), a->state_zero);
        int32_t last = (a->memory - 1) * bytes;
        for (int32_t i = 0; i < last; i++) state[i] = state[i + bytes];
        value = least(most(value, -1 - limit), limit);
        for (int32_t i = 0; i < bytes; i++, value >>= 8) state[last + i] = (uint8_t)value;
        for (int32_t i = 0; i < a->memory; i++)
          total += (uint32_t)(short_at(state, i, bytes) - a->state_zero) *
                   (uint32_t)short_at(times, filter * a->memory + i, bytes);
      }
      int32_t result = scaled_twice((int32_t)total, a->time_multiplier, a->time_shift);
      *output++ = (int8_t)least(most(saturated_sum(result, a->output_zero), -128), 127);
    }
}
