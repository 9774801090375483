/* The whole forward pass of a decoder for a flat batch of rows. */
#include "functions.h"
#include "model.h"

INLINE f32x16 load_row(const float *x, int32_t i, int32_t count) {
  return count - i >= 16 ? load(x + i) : load_some(x + i, count - i);
}

INLINE void rms_norm(const float *x, const float *weight, int32_t count, float epsilon, float *y) {
  f32x16 squares = {0};
  for (int32_t i = 0; i < count; i += 16) {
    f32x16 value = load_row(x, i, count);
    squares += value * value;
  }
  float inverse = 1.0f / __builtin_sqrtf(fold(squares) / (float)count + epsilon);
  for (int32_t i = 0; i < count; i += 16)
    store_some(y + i, load_row(x, i, count) * inverse * load_row(weight, i, count), count - i);
}

INLINE void layer_norm(const float *x, const float *weight, const float *bias, int32_t count, float epsilon, float *y) {
  f32x16 sums = {0}, squares = {0};
  for (int32_t i = 0; i < count; i += 16) sums += load_row(x, i, count);
  float mean = fold(sums) / (float)count;
  for (int32_t i = 0; i < count; i += 16) {
    f32x16 value = load_row(x, i, count) - mean;
    if (count - i < 16) value = load_some((const float *)&value, count - i);
    squares += value * value;
  }
  float inverse = 1.0f / __builtin_sqrtf(fold(squares) / (float)count + epsilon);
  for (int32_t i = 0; i < count; i += 16) {
    f32x16 value = (load_row(x, i, count) - mean) * inverse * load_row(weight, i, count);
    if (bias) value += load_row(bias, i, count);
    store_some(y + i, value, count - i);
  }
}

static void norm(const int32_t *p, const float *x, const float *weight, const float *bias, int32_t count, float *y) {
  float epsilon = from_bits(p[WORD_NORM_EPSILON]);
  if (p[WORD_NORM] == NORM_RMS) rms_norm(x, weight, count, epsilon, y);
  else layer_norm(x, weight, bias, count, epsilon, y);
}

/* Rotate the two halves of a head's first values. */
INLINE void rotate(float *x, const float *cosines, const float *sines, int32_t half) {
  for (int32_t i = 0; i < half; i += 16) {
    int32_t count = half - i;
    f32x16 first = load_row(x, i, half), second = load_row(x + half, i, half);
    f32x16 cosine = load_row(cosines, i, half), sine = load_row(sines, i, half);
    store_some(x + i, first * cosine - second * sine, count);
    store_some(x + half + i, second * cosine + first * sine, count);
  }
}

INLINE f32x16 activated(f32x16 x, int32_t kind) {
  switch (kind) {
    case ACTIVATION_SILU: return silu(x);
    case ACTIVATION_GELU: return gelu(x);
    case ACTIVATION_GELU_TANH: return gelu_tanh(x);
    default: return chosen(x < all(0.0f), all(0.0f), x);
  }
}

/* The rows of one chunk; see `decoder_run`. */
struct rows {
  const int32_t *tokens, *slots, *positions;
  int32_t count;
};

static void start_rows(const int32_t *p, const uint8_t *file, struct rows rows, const struct workspace *work) {
  const int32_t *tensors = p + WORD_TENSORS;
  int32_t hidden = p[WORD_HIDDEN_SIZE], half = p[WORD_ROTARY_SIZE] / 2, is_rope = p[WORD_POSITIONS] == POSITIONS_ROPE;
  struct matrix embedding = matrix_of(file, tensors + 3 * TENSOR_EMBEDDING, 0, p[WORD_VOCAB_SIZE], hidden);
  struct matrix positions = matrix_of(file, tensors + 3 * TENSOR_POSITIONS, 0, 0, hidden);
  for (int32_t t = 0; t < rows.count; t++) {
    float *x = work->stream + (size_t)t * (size_t)width(hidden), *more = work->delta;
    embed(&embedding, rows.tokens[t], from_bits(p[WORD_EMBEDDING_SCALE]), x);
    if (!is_rope) {
      embed(&positions, rows.positions[t] + p[WORD_POSITION_OFFSET], 1.0f, more);
      for (int32_t i = 0; i < hidden; i += 16)
        store_some(x + i, load_row(x, i, hidden) + load_row(more, i, hidden), hidden - i);
      continue;
    }
    for (int32_t kind = 0; kind < 2; kind++) {
      const float *speeds = vector_of(file, tensors + 3 * (TENSOR_ROPE_0 + kind));
      float *to = work->rotation + (size_t)(kind * CHUNK + t) * (size_t)width(p[WORD_ROTARY_SIZE]);
      /* The angle is rounded to a float, as the models were trained. */
      for (int32_t i = 0; speeds && i < half; i++)
        cosine_and_sine((double)((float)rows.positions[t] * speeds[i]), to + i, to + half + i);
    }
  }
}

static void attention(const int32_t *p, const uint8_t *file, struct cache cache, int32_t layer, struct rows rows,
                      const struct workspace *work) {
  int32_t hidden = p[WORD_HIDDEN_SIZE], size = p[WORD_HEAD_SIZE], q = queries(p), k = keys(p), wide = width(q + 2 * k);
  int32_t inner = width(q), half = p[WORD_POSITIONS] == POSITIONS_ROPE ? p[WORD_ROTARY_SIZE] / 2 : 0;
  struct matrix qkv = matrix_of(file, part(p, layer, PART_QKV_WEIGHT), part(p, layer, PART_QKV_BIAS), q + 2 * k, hidden);
  struct matrix output = matrix_of(file, part(p, layer, PART_ATTENTION_OUTPUT_WEIGHT),
                                   part(p, layer, PART_ATTENTION_OUTPUT_BIAS), hidden, q);
  const float *q_norm = vector_of(file, part(p, layer, PART_Q_NORM_WEIGHT));
  const float *k_norm = vector_of(file, part(p, layer, PART_K_NORM_WEIGHT));
  float epsilon = from_bits(p[WORD_NORM_EPSILON]);
  multiply(&qkv, work->normed, width(hidden), rows.count, work->wide, (size_t)wide, work);
  for (int32_t t = 0; t < rows.count; t++) {
    float *row = work->wide + (size_t)t * (size_t)wide;
    const float *cosines = work->rotation + (size_t)(layer_kind(p, layer) * CHUNK + t) * (size_t)width(p[WORD_ROTARY_SIZE]);
    for (int32_t head = 0; head < p[WORD_HEADS] + p[WORD_KV_HEADS]; head++) {
      float *x = row + head * size;
      const float *weight = head < p[WORD_HEADS] ? q_norm : k_norm;
      if (weight) rms_norm(x, weight, size, epsilon, x);
      rotate(x, cosines, cosines + half, half);
    }
    remember(p, cache, rows.slots[t], layer, rows.positions[t], row + q, row + q + k);
  }
  for (int32_t t = 0; t < rows.count; t++)
    attend(p, cache, rows.slots[t], layer, rows.positions[t], work->wide + (size_t)t * (size_t)wide,
           work->inner + (size_t)t * (size_t)inner, work->scores);
  multiply(&output, work->inner, inner, rows.count, work->delta, (size_t)width(hidden), work);
}

INLINE void activate(const int32_t *p, float *wide, float *inner, int32_t count, int32_t kind) {
  int32_t mlp = p[WORD_MLP_SIZE], is_gated = p[WORD_GATED];
  for (int32_t t = 0; t < count; t++) {
    const float *from = wide + (size_t)t * (size_t)width(up_rows(p));
    float *to = inner + (size_t)t * (size_t)width(mlp);
    for (int32_t i = 0; i < mlp; i += 16) {
      f32x16 value = activated(load_row(from, i, mlp), kind);
      if (is_gated) value *= load_row(from + mlp, i, mlp);
      store_some(to + i, value, mlp - i);
    }
  }
}

static void mlp(const int32_t *p, const uint8_t *file, int32_t layer, int32_t count, const struct workspace *work) {
  int32_t hidden = p[WORD_HIDDEN_SIZE], size = p[WORD_MLP_SIZE];
  struct matrix up = matrix_of(file, part(p, layer, PART_UP_WEIGHT), part(p, layer, PART_UP_BIAS), up_rows(p), hidden);
  struct matrix down = matrix_of(file, part(p, layer, PART_DOWN_WEIGHT), part(p, layer, PART_DOWN_BIAS), hidden, size);
  multiply(&up, work->normed, width(hidden), count, work->wide, (size_t)width(up.rows), work);
  switch (p[WORD_ACTIVATION]) {
    case ACTIVATION_SILU: activate(p, work->wide, work->inner, count, ACTIVATION_SILU); break;
    case ACTIVATION_GELU: activate(p, work->wide, work->inner, count, ACTIVATION_GELU); break;
    case ACTIVATION_GELU_TANH: activate(p, work->wide, work->inner, count, ACTIVATION_GELU_TANH); break;
    default: activate(p, work->wide, work->inner, count, ACTIVATION_RELU);
  }
  multiply(&down, work->inner, width(size), count, work->delta, (size_t)width(hidden), work);
}

static void norm_rows(const int32_t *p, const uint8_t *file, const int32_t *weight, int32_t count,
                      const struct workspace *work) {
  int32_t hidden = p[WORD_HIDDEN_SIZE];
  for (int32_t t = 0; t < count; t++) {
    size_t at = (size_t)t * (size_t)width(hidden);
    norm(p, work->stream + at, vector_of(file, weight), vector_of(file, weight + 3), hidden, work->normed + at);
  }
}

/* Add what a layer's half computed to the stream, normed before where the family does so. */
static void add_delta(const int32_t *p, const uint8_t *file, const int32_t *post, int32_t count,
                      const struct workspace *work) {
  int32_t hidden = p[WORD_HIDDEN_SIZE];
  const float *weight = vector_of(file, post);
  for (int32_t t = 0; t < count; t++) {
    size_t at = (size_t)t * (size_t)width(hidden);
    float *x = work->stream + at, *delta = work->delta + at;
    if (weight) norm(p, delta, weight, 0, hidden, delta);
    for (int32_t i = 0; i < hidden; i += 16)
      store_some(x + i, load_row(x, i, hidden) + load_row(delta, i, hidden), hidden - i);
  }
}

/* The logits of one row of the chunk. */
static void finish_rows(const int32_t *p, const uint8_t *file, const int32_t *wanted, int32_t count, float *logits,
                        const struct workspace *work) {
  const int32_t *tensors = p + WORD_TENSORS, *head = tensors + 3 * TENSOR_HEAD;
  int32_t hidden = p[WORD_HIDDEN_SIZE], vocab = p[WORD_VOCAB_SIZE];
  float cap = from_bits(p[WORD_FINAL_SOFTCAP]);
  struct matrix m = matrix_of(file, head[0] ? head : tensors + 3 * TENSOR_EMBEDDING, tensors + 3 * TENSOR_HEAD_BIAS,
                              vocab, hidden);
  for (int32_t i = 0; i < count; i++)
    norm(p, work->stream + (size_t)wanted[i] * (size_t)width(hidden), vector_of(file, tensors + 3 * TENSOR_FINAL_NORM_WEIGHT),
         vector_of(file, tensors + 3 * TENSOR_FINAL_NORM_BIAS), hidden, work->normed + (size_t)i * (size_t)width(hidden));
  multiply(&m, work->normed, width(hidden), count, logits, (size_t)vocab, work);
  size_t total = (size_t)count * (size_t)vocab;
  for (size_t i = 0; cap > 0.0f && i < total; i += 16) {
    int32_t left = total - i < 16 ? (int32_t)(total - i) : 16;
    store_some(logits + i, softcapped(load_row(logits + i, 0, left), cap), left);
  }
}

/* Compute a batch. Nothing is read outside of what `decoder_check` and `decoder_check_rows` have passed.
 *
 * rows: tokens [count], slots [count], positions [count]; wanted: rising places of rows whose logits [wanted_count,
 * vocab_size] are computed; scratch: `decoder_scratch_bytes`, at a multiple of 64. */
EXPORT void decoder_run(const int32_t *program, const uint8_t *file, float *cache_start, uint8_t *scratch, int32_t slots,
                        int32_t context, const int32_t *rows, int32_t count, const int32_t *wanted,
                        int32_t wanted_count, float *logits) {
  const int32_t *p = program;
  struct workspace work = workspace_at(p, context, scratch);
  struct cache cache = {cache_start, slots, context};
  for (int32_t start = 0; start < count; start += CHUNK) {
    struct rows chunk = {rows + start, rows + count + start, rows + 2 * count + start, least(CHUNK, count - start)};
    int32_t places[CHUNK], found = 0;
    while (found < wanted_count && found < CHUNK && wanted[found] < start + chunk.count) {
      places[found] = wanted[found] - start;
      found++;
    }
    start_rows(p, file, chunk, &work);
    for (int32_t layer = 0; layer < p[WORD_LAYERS]; layer++) {
      norm_rows(p, file, part(p, layer, PART_ATTENTION_NORM_WEIGHT), chunk.count, &work);
      attention(p, file, cache, layer, chunk, &work);
      add_delta(p, file, part(p, layer, PART_ATTENTION_POST_NORM_WEIGHT), chunk.count, &work);
      if (!p[WORD_PARALLEL]) norm_rows(p, file, part(p, layer, PART_MLP_NORM_WEIGHT), chunk.count, &work);
      mlp(p, file, layer, chunk.count, &work);
      add_delta(p, file, part(p, layer, PART_MLP_POST_NORM_WEIGHT), chunk.count, &work);
    }
    finish_rows(p, file, places, found, logits, &work);
    wanted += found;
    wanted_count -= found;
    logits += (size_t)found * (size_t)p[WORD_VOCAB_SIZE];
  }
}
