/* Attention of one row over the cache: each score, and each value of the result, is one sum in rising order. */
#include "functions.h"
#include "model.h"

#if defined(LANES_AVX2)
typedef f32x16 tile;
#else
typedef float tile __attribute__((vector_size(32), aligned(4)));
#endif
#define TILE ((int32_t)(sizeof(tile) / 4))

/* Scores of 16 positions for `count` queries. */
INLINE void score_block(const float *keys, const float *q, int32_t head_size, int count, float *scores,
                        int32_t scores_width) {
  for (int32_t start = 0; start < 16; start += TILE) {
    tile sums[4];
    for (int g = 0; g < count; g++) sums[g] = (tile){0};
    for (int32_t d = 0; d < head_size; d++) {
      tile key = *(const tile *)(keys + d * 16 + start);
      for (int g = 0; g < count; g++) sums[g] += q[g * head_size + d] * key;
    }
    for (int g = 0; g < count; g++) *(tile *)(scores + (size_t)g * (size_t)scores_width + start) = sums[g];
  }
}

/* Sums of values, weighted, for `count` queries. */
INLINE void add_values(const float *values, const float *weights, int32_t weights_width, int32_t first, int32_t last,
                       int32_t head_size, int count, const float inverse[], float *y) {
  int32_t row = width(head_size);
  for (int32_t d = 0; d < row; d += TILE) {
    tile sums[4];
    for (int g = 0; g < count; g++) sums[g] = (tile){0};
    for (int32_t j = first; j <= last; j++) {
      tile value = *(const tile *)(values + (size_t)j * (size_t)row + d);
      for (int g = 0; g < count; g++) sums[g] += weights[(size_t)g * (size_t)weights_width + j] * value;
    }
    for (int g = 0; g < count; g++) {
      tile sum = sums[g] * inverse[g];
      float *to = y + g * head_size + d;
      if (d + TILE <= head_size) *(tile *)to = sum;
      else
        for (int32_t i = 0; d + i < head_size; i++) to[i] = sum[i];
    }
  }
}

/* Scores to weights, from a multiple of 16 below `first` on; returns what their sum is to be multiplied by. */
static float weigh(const int32_t *p, float *scores, int32_t first, int32_t last) {
  float factor = from_bits(p[WORD_ATTENTION_SCALE]), cap = from_bits(p[WORD_ATTENTION_SOFTCAP]);
  i32x16 lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  f32x16 best = all(-__builtin_inff()), sums = {0};
  for (int32_t j = first / 16 * 16; j <= last; j += 16) {
    f32x16 score = load(scores + j) * factor;
    if (cap > 0.0f) score = softcapped(score, cap);
    i32x16 at = lanes + j;
    score = chosen((at >= first) & (at <= last), score, all(-__builtin_inff()));
    store(scores + j, score);
    best = larger(best, score);
  }
  f32x16 most = all(fold_largest(best));
  for (int32_t j = first / 16 * 16; j <= last; j += 16) {
    f32x16 weight = exponential(load(scores + j) - most);
    store(scores + j, weight);
    sums += weight;
  }
  return 1.0f / fold(sums);
}

INLINE void attend_heads(const int32_t *p, const float *keys, const float *values, int32_t first, int32_t last,
                         int32_t context, int count, const float *q, float *y, float *scores) {
  int32_t head_size = p[WORD_HEAD_SIZE], scores_width = width(context);
  float inverse[4];
  for (int32_t j = first / 16 * 16; j <= last; j += 16)
    score_block(keys + (size_t)j * (size_t)head_size, q, head_size, count, scores + j, scores_width);
  for (int g = 0; g < count; g++) inverse[g] = weigh(p, scores + (size_t)g * (size_t)scores_width, first, last);
  add_values(values, scores, scores_width, first, last, head_size, count, inverse, y);
}

/* Some queries of one row and one head of keys, over the positions of its slot up to its own. */
void attend(const int32_t *p, struct cache cache, int32_t slot, int32_t layer, int32_t position, int32_t head,
            int32_t first_query, int32_t last_query, const float *q, float *y, float *scores) {
  int32_t head_size = p[WORD_HEAD_SIZE], group = p[WORD_HEADS] / p[WORD_KV_HEADS], window = p[WORD_SLIDING_WINDOW];
  int32_t first = layer_kind(p, layer) == 1 && window > 0 ? most(0, position - window + 1) : 0;
  const float *keys = cached_head(p, cache, slot, layer, head);
  const float *values = keys + (size_t)width(cache.context) * (size_t)head_size;
  for (int32_t g = first_query; g < last_query;) {
    int32_t offset = (head * group + g) * head_size, count = least(4, last_query - g);
#define HEADS(n) attend_heads(p, keys, values, first, position, cache.context, n, q + offset, y + offset, scores)
    switch (count) {
      case 1: HEADS(1); break;
      case 2: HEADS(2); break;
      case 3: HEADS(3); break;
      default: HEADS(4);
    }
    g += count;
  }
}

/* Put a row's keys and values into the cache. */
void remember(const int32_t *p, struct cache cache, int32_t slot, int32_t layer, int32_t position, const float *k,
              const float *v) {
  int32_t head_size = p[WORD_HEAD_SIZE], row = width(head_size);
  for (int32_t head = 0; head < p[WORD_KV_HEADS]; head++) {
    float *keys = cached_head(p, cache, slot, layer, head), *values = keys + (size_t)width(cache.context) * (size_t)head_size;
    keys += (size_t)(position / 16 * 16) * (size_t)head_size + position % 16;
    values += (size_t)position * (size_t)row;
    for (int32_t d = 0; d < head_size; d++) {
      keys[d * 16] = k[head * head_size + d];
      values[d] = v[head * head_size + d];
    }
    for (int32_t d = head_size; d < row; d++) values[d] = 0.0f;
  }
}
