/* Copy a slot's first positions, and pick the best logits. */
#include "model.h"

/* Copy positions 0 to `length` - 1 of one slot into another. */
SMALL EXPORT void decoder_copy(const int32_t *p, float *cache_start, int32_t slots, int32_t context, int32_t from, int32_t to,
                         int32_t length) {
  struct cache cache = {cache_start, slots, context};
  int32_t size = p[WORD_HEAD_SIZE], whole = length / 16 * 16;
  size_t values = (size_t)width(context) * (size_t)size, key_floats = (size_t)whole * (size_t)size;
  for (int32_t layer = 0; layer < p[WORD_LAYERS]; layer++) {
    for (int32_t head = 0; head < p[WORD_KV_HEADS]; head++) {
      const float *source = cached_head(p, cache, from, layer, head);
      float *target = cached_head(p, cache, to, layer, head);
      for (size_t i = 0; i < key_floats; i += 16) store(target + i, load(source + i));
      for (int32_t d = 0; d < size; d++)
        for (int32_t i = 0; i < length - whole; i++)
          target[key_floats + (size_t)d * 16 + (size_t)i] = source[key_floats + (size_t)d * 16 + (size_t)i];
      for (size_t i = 0; i < (size_t)length * (size_t)width(size); i += 16)
        store(target + values + i, load(source + values + i));
    }
  }
}

/* Whether one logit comes before another: NaN first, then the larger, then the smaller id. */
INLINE int is_before(float a, int32_t a_id, float b, int32_t b_id) {
  int a_nan = a != a, b_nan = b != b;
  if (a_nan != b_nan) return a_nan;
  if (!a_nan && a != b) return a > b;
  return a_id < b_id;
}

/* Move the entry at `at` down a heap whose first entry comes last. */
INLINE void sink(int32_t *ids, float *values, int32_t count, int32_t at) {
  int32_t id = ids[at];
  float value = values[at];
  for (;;) {
    int32_t child = 2 * at + 1;
    if (child >= count) break;
    if (child + 1 < count && is_before(values[child], ids[child], values[child + 1], ids[child + 1])) child++;
    if (!is_before(value, id, values[child], ids[child])) break;
    ids[at] = ids[child], values[at] = values[child];
    at = child;
  }
  ids[at] = id, values[at] = value;
}

/* The best `count` of `total` logits in order, NaN first. */
SMALL EXPORT void decoder_top(const float *logits, int32_t total, int32_t count, int32_t *ids, float *values) {
  for (int32_t i = 0; i < count; i++) ids[i] = i, values[i] = logits[i];
  for (int32_t i = count / 2 - 1; i >= 0; i--) sink(ids, values, count, i);
  for (int32_t i = count; i < total; i++) {
    if (logits[i] <= values[0] || !is_before(logits[i], i, values[0], ids[0])) continue;
    ids[0] = i, values[0] = logits[i];
    sink(ids, values, count, 0);
  }
  for (int32_t left = count - 1; left > 0; left--) {
    int32_t id = ids[0];
    float value = values[0];
    ids[0] = ids[left], values[0] = values[left];
    ids[left] = id, values[left] = value;
    sink(ids, values, left, 0);
  }
}
