/* What is checked before a decoder runs, and how much memory it needs. */
#include "model.h"

/* Whether the three words of a tensor name a place in the file. Sizes are doubles: exact, and without overflow. */
SMALL static int is_inside(const int32_t *words, double rows, double columns, int is_needed, int is_vector, double bytes) {
  int32_t encoding = words[0], unit = encoding >= ENCODING_INT8 ? BLOCK : 1;
  if (encoding == ENCODING_ABSENT) return !is_needed;
  if (encoding < 0 || encoding > (is_vector ? ENCODING_F32 : ENCODING_INT4) || words[1] < 0 || words[2] < 0) return 0;
  if ((int32_t)columns % unit != 0) return 0;
  double count = rows * columns, bits = encoding == ENCODING_F32 ? 32 : encoding == ENCODING_F16 ? 16
                                                                  : encoding == ENCODING_INT8    ? 8
                                                                                                 : 4;
  double end = (double)words[1] * 16 + count * bits / 8;
  double scales_end = unit == 1 ? 0 : (double)words[2] * 16 + count / BLOCK * 2;
  return end + SLACK <= bytes && scales_end + SLACK <= bytes;
}

/* Limits of the fields: from, to. What is not here is a float of any value. */
static const struct { int32_t word, low, high; } limits[] = {
    {WORD_MAGIC, PROGRAM_MAGIC, PROGRAM_MAGIC},
    {WORD_VERSION, PROGRAM_VERSION, PROGRAM_VERSION},
    {WORD_VOCAB_SIZE, 1, 1 << 24},
    {WORD_HIDDEN_SIZE, 1, 1 << 17},
    {WORD_LAYERS, 1, 1 << 12},
    {WORD_HEADS, 1, 1 << 12},
    {WORD_KV_HEADS, 1, 1 << 12},
    {WORD_HEAD_SIZE, 1, 1 << 12},
    {WORD_MLP_SIZE, 1, 1 << 19},
    {WORD_CONTEXT, 1, 1 << 20},
    {WORD_NORM, 0, NORM_LAYER},
    {WORD_ACTIVATION, 0, ACTIVATION_RELU},
    {WORD_GATED, 0, 1},
    {WORD_PARALLEL, 0, 1},
    {WORD_POSITIONS, 0, POSITIONS_LEARNED},
    {WORD_POSITION_OFFSET, 0, 1 << 16},
    {WORD_ROTARY_SIZE, 0, 1 << 12},
    {WORD_SLIDING_WINDOW, 0, 1 << 24},
};

/* 0, or one more than the place of the first word that is wrong. */
SMALL EXPORT int32_t decoder_check(const int32_t *p, int32_t words, double bytes) {
  if (words < WORD_TENSORS) return 1 + WORD_WORDS;
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    int32_t value = p[limits[i].word];
    if (value < limits[i].low || value > limits[i].high) return 1 + limits[i].word;
  }
  if (p[WORD_HEADS] % p[WORD_KV_HEADS] != 0) return 1 + WORD_KV_HEADS;
  if (p[WORD_HEADS] > (1 << 18) / p[WORD_HEAD_SIZE]) return 1 + WORD_HEAD_SIZE;
  if (p[WORD_ROTARY_SIZE] > p[WORD_HEAD_SIZE] || p[WORD_ROTARY_SIZE] % 2) return 1 + WORD_ROTARY_SIZE;
  if (p[WORD_WORDS] != words || words != WORD_TENSORS + 3 * TENSOR_COUNT + p[WORD_LAYERS] * LAYER_WORDS)
    return 1 + WORD_WORDS;
  double vocab = p[WORD_VOCAB_SIZE], hidden = p[WORD_HIDDEN_SIZE], size = p[WORD_HEAD_SIZE], q = queries(p);
  double mlp = p[WORD_MLP_SIZE], up = up_rows(p), wide = q + 2.0 * keys(p), half = p[WORD_ROTARY_SIZE] / 2;
  double learned = (double)p[WORD_CONTEXT] + p[WORD_POSITION_OFFSET];
  int has_kind[2] = {0, 0}, is_rope = p[WORD_POSITIONS] == POSITIONS_ROPE;
  for (int32_t layer = 0; layer < p[WORD_LAYERS]; layer++) {
    int32_t kind = layer_kind(p, layer);
    if (kind < 0 || kind > 1) return 1 + WORD_TENSORS + 3 * TENSOR_COUNT + layer * LAYER_WORDS;
    has_kind[kind] = 1;
  }
  const struct { int32_t name; double rows, columns; int32_t is_needed; } tensors[] = {
      {TENSOR_EMBEDDING, vocab, hidden, 1},   {TENSOR_HEAD, vocab, hidden, 0},
      {TENSOR_HEAD_BIAS, 0, vocab, 0},        {TENSOR_POSITIONS, learned, hidden, !is_rope},
      {TENSOR_ROPE_0, 0, half, is_rope && has_kind[0]}, {TENSOR_ROPE_1, 0, half, is_rope && has_kind[1]},
      {TENSOR_FINAL_NORM_WEIGHT, 0, hidden, 1}, {TENSOR_FINAL_NORM_BIAS, 0, hidden, 0},
  };
  const struct { int32_t name; double rows, columns; int32_t is_needed; } parts[] = {
      {PART_ATTENTION_NORM_WEIGHT, 0, hidden, 1},
      {PART_ATTENTION_NORM_BIAS, 0, hidden, 0},
      {PART_ATTENTION_POST_NORM_WEIGHT, 0, hidden, 0},
      {PART_QKV_WEIGHT, wide, hidden, 1},
      {PART_QKV_BIAS, 0, wide, 0},
      {PART_Q_NORM_WEIGHT, 0, size, 0},
      {PART_K_NORM_WEIGHT, 0, size, 0},
      {PART_ATTENTION_OUTPUT_WEIGHT, hidden, q, 1},
      {PART_ATTENTION_OUTPUT_BIAS, 0, hidden, 0},
      {PART_MLP_NORM_WEIGHT, 0, hidden, !p[WORD_PARALLEL]},
      {PART_MLP_NORM_BIAS, 0, hidden, 0},
      {PART_MLP_POST_NORM_WEIGHT, 0, hidden, 0},
      {PART_UP_WEIGHT, up, hidden, 1},
      {PART_UP_BIAS, 0, up, 0},
      {PART_DOWN_WEIGHT, hidden, mlp, 1},
      {PART_DOWN_BIAS, 0, hidden, 0},
  };
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
    const int32_t *at = p + WORD_TENSORS + 3 * tensors[i].name;
    int is_vector = tensors[i].rows == 0;
    if (!is_inside(at, is_vector ? 1 : tensors[i].rows, tensors[i].columns, tensors[i].is_needed, is_vector, bytes))
      return (int32_t)(1 + (at - p));
  }
  for (int32_t layer = 0; layer < p[WORD_LAYERS]; layer++) {
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
      const int32_t *at = part(p, layer, parts[i].name);
      int is_vector = parts[i].rows == 0;
      if (!is_inside(at, is_vector ? 1 : parts[i].rows, parts[i].columns, parts[i].is_needed, is_vector, bytes))
        return (int32_t)(1 + (at - p));
    }
  }
  return 0;
}

/* 0, or what is wrong with a batch: 4 * row + 1 for its token, + 2 for its slot, + 3 for its position, and -1 - i for
   the i-th of `wanted`. */
SMALL EXPORT int32_t decoder_check_rows(const int32_t *p, int32_t slots, int32_t context, const int32_t *rows, int32_t count,
                                  const int32_t *wanted, int32_t wanted_count) {
  for (int32_t t = 0; t < count; t++) {
    if (rows[t] < 0 || rows[t] >= p[WORD_VOCAB_SIZE]) return 4 * t + 1;
    if (rows[count + t] < 0 || rows[count + t] >= slots) return 4 * t + 2;
    int32_t position = rows[2 * count + t];
    if (position < 0 || position >= context) return 4 * t + 3;
    if (t && rows[count + t] == rows[count + t - 1] && position <= rows[2 * count + t - 1]) return 4 * t + 3;
  }
  for (int32_t i = 0; i < wanted_count; i++)
    if (wanted[i] < (i ? wanted[i - 1] + 1 : 0) || wanted[i] >= count) return -1 - i;
  return 0;
}

/* Bytes of the cache of a checked program. */
SMALL EXPORT double decoder_cache_bytes(const int32_t *p, int32_t slots, int32_t context) {
  double head = (double)width(context) * (double)(p[WORD_HEAD_SIZE] + width(p[WORD_HEAD_SIZE]));
  return 4.0 * head * p[WORD_KV_HEADS] * p[WORD_LAYERS] * slots;
}

/* Bytes of the memory that only the kernels use. */
SMALL EXPORT double decoder_scratch_bytes(const int32_t *p, int32_t context) {
  return workspace_at(p, context, (uint8_t *)0).bytes;
}

SMALL EXPORT int32_t decoder_version(void) { return PROGRAM_VERSION; }
