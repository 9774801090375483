/* The whole forward pass of a decoder for a flat batch of rows. */
#include "functions.h"
#include "run.h"

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

SMALL static void norm(const int32_t *p, const float *x, const float *weight, const float *bias, int32_t count, float *y) {
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

/* Let the threads of a workspace share `count` rows. */
#define EACH_ROW(work, t, count)                                                                                 \
  for (int32_t row_count = (count), row_parts = parts_of((work)->member, row_count); row_parts; row_parts = 0)   \
  EACH_PART((work)->member, row_part, row_parts)                                                                 \
  for (int32_t t = part_start(row_part, row_parts, row_count); t < part_start(row_part + 1, row_parts, row_count); t++)

SMALL static void start_row(const struct batch *rows, int32_t t, const struct workspace *work) {
  const int32_t *p = rows->program, *tensors = p + WORD_TENSORS;
  const uint8_t *file = rows->file;
  int32_t hidden = p[WORD_HIDDEN_SIZE], half = p[WORD_ROTARY_SIZE] / 2, is_rope = p[WORD_POSITIONS] == POSITIONS_ROPE;
  struct matrix embedding = matrix_of(file, tensors + 3 * TENSOR_EMBEDDING, 0, p[WORD_VOCAB_SIZE], hidden);
  struct matrix positions = matrix_of(file, tensors + 3 * TENSOR_POSITIONS, 0, 0, hidden);
  size_t at = (size_t)t * (size_t)width(hidden);
  float *x = work->stream + at, *more = work->delta + at;
  embed(&embedding, rows->tokens[t], from_bits(p[WORD_EMBEDDING_SCALE]), x);
  if (!is_rope) {
    embed(&positions, rows->positions[t] + p[WORD_POSITION_OFFSET], 1.0f, more);
    for (int32_t i = 0; i < hidden; i += 16)
      store_some(x + i, load_row(x, i, hidden) + load_row(more, i, hidden), hidden - i);
    return;
  }
  for (int32_t kind = 0; kind < 2; kind++) {
    const float *speeds = vector_of(file, tensors + 3 * (TENSOR_ROPE_0 + kind));
    float *to = work->rotation + (size_t)(kind * CHUNK + t) * (size_t)width(p[WORD_ROTARY_SIZE]);
    /* The angle is rounded to a float, as the models were trained. */
    for (int32_t i = 0; speeds && i < half; i++)
      cosine_and_sine((double)((float)rows->positions[t] * speeds[i]), to + i, to + half + i);
  }
}

static struct matrix qkv_of(const int32_t *p, const uint8_t *file, int32_t layer) {
  return matrix_of(file, part(p, layer, PART_QKV_WEIGHT), part(p, layer, PART_QKV_BIAS), queries(p) + 2 * keys(p),
                   p[WORD_HIDDEN_SIZE]);
}

static struct matrix up_of(const int32_t *p, const uint8_t *file, int32_t layer) {
  return matrix_of(file, part(p, layer, PART_UP_WEIGHT), part(p, layer, PART_UP_BIAS), up_rows(p), p[WORD_HIDDEN_SIZE]);
}

SMALL static void norm_row(const int32_t *p, const uint8_t *file, const int32_t *weight, int32_t t,
                     const struct workspace *work) {
  size_t at = (size_t)t * (size_t)width(p[WORD_HIDDEN_SIZE]);
  norm(p, work->stream + at, vector_of(file, weight), vector_of(file, weight + 3), p[WORD_HIDDEN_SIZE], work->normed + at);
}

/* Norm a row for a layer's attention, and prepare it for the matrices that read it. */
SMALL static void enter_attention(const struct batch *rows, int32_t layer, int32_t t, const struct workspace *work) {
  const int32_t *p = rows->program;
  struct matrix qkv = qkv_of(p, rows->file, layer);
  norm_row(p, rows->file, part(p, layer, PART_ATTENTION_NORM_WEIGHT), t, work);
  prepare(&qkv, work->normed + (size_t)t * (size_t)width(p[WORD_HIDDEN_SIZE]), t, rows->count, work);
}

/* Add what a layer's half computed to the stream, normed before where the family does so. */
SMALL static void add_delta(const int32_t *p, const uint8_t *file, const int32_t *post, int32_t t,
                      const struct workspace *work) {
  int32_t hidden = p[WORD_HIDDEN_SIZE];
  const float *weight = vector_of(file, post);
  size_t at = (size_t)t * (size_t)width(hidden);
  float *x = work->stream + at, *delta = work->delta + at;
  if (weight) norm(p, delta, weight, 0, hidden, delta);
  for (int32_t i = 0; i < hidden; i += 16)
    store_some(x + i, load_row(x, i, hidden) + load_row(delta, i, hidden), hidden - i);
}

/* Rotate a row's queries and keys, and put its keys and values into the cache. */
SMALL static void remember_row(const struct batch *rows, int32_t layer, int32_t t, const struct workspace *work) {
  const int32_t *p = rows->program;
  int32_t size = p[WORD_HEAD_SIZE], q = queries(p), k = keys(p);
  int32_t half = p[WORD_POSITIONS] == POSITIONS_ROPE ? p[WORD_ROTARY_SIZE] / 2 : 0;
  const float *q_norm = vector_of(rows->file, part(p, layer, PART_Q_NORM_WEIGHT));
  const float *k_norm = vector_of(rows->file, part(p, layer, PART_K_NORM_WEIGHT));
  float *row = work->wide + (size_t)t * (size_t)width(q + 2 * k);
  const float *cosines = work->rotation + (size_t)(layer_kind(p, layer) * CHUNK + t) * (size_t)width(p[WORD_ROTARY_SIZE]);
  for (int32_t head = 0; head < p[WORD_HEADS] + p[WORD_KV_HEADS]; head++) {
    float *x = row + head * size;
    const float *weight = head < p[WORD_HEADS] ? q_norm : k_norm;
    if (weight) rms_norm(x, weight, size, from_bits(p[WORD_NORM_EPSILON]), x);
    rotate(x, cosines, cosines + half, half);
  }
  remember(p, rows->cache, rows->slots[t], layer, rows->positions[t], row + q, row + q + k);
}

SMALL static void attention(const struct batch *rows, int32_t layer, const struct workspace *work) {
  const int32_t *p = rows->program;
  int32_t hidden = p[WORD_HIDDEN_SIZE], q = queries(p), wide = width(q + 2 * keys(p)), inner = width(q);
  int32_t heads = p[WORD_KV_HEADS], group = p[WORD_HEADS] / heads, count = rows->count;
  struct matrix qkv = qkv_of(p, rows->file, layer);
  struct matrix output = matrix_of(rows->file, part(p, layer, PART_ATTENTION_OUTPUT_WEIGHT),
                                   part(p, layer, PART_ATTENTION_OUTPUT_BIAS), hidden, q);
  multiply(&qkv, work->normed, width(hidden), count, work->wide, (size_t)wide, work);
  EACH_ROW(work, t, count) remember_row(rows, layer, t, work);
  /* A head of few rows is halved, so that all threads have something to do. */
  int32_t halves = group > 1 && parts_of(work->member, 2 * count * heads) > count * heads ? 2 : 1;
  int32_t units = count * heads * halves, parts = parts_of(work->member, units);
  EACH_PART(work->member, part, parts) {
    for (int32_t unit = part_start(part, parts, units); unit < part_start(part + 1, parts, units); unit++) {
      int32_t t = unit / (heads * halves), head = unit / halves % heads, half = unit % halves;
      attend(p, rows->cache, rows->slots[t], layer, rows->positions[t], head, part_start(half, halves, group),
             part_start(half + 1, halves, group), work->wide + (size_t)t * (size_t)wide,
             work->inner + (size_t)t * (size_t)inner, work->scores);
    }
  }
  EACH_ROW(work, t, count) prepare(&output, work->inner + (size_t)t * (size_t)inner, t, count, work);
  multiply(&output, work->inner, inner, count, work->delta, (size_t)width(hidden), work);
}

/* Some of a row's values of the perceptron, whole blocks, ready for the matrix that reads them. */
INLINE void activate(const struct batch *rows, const struct matrix *down, int32_t t, int32_t first, int32_t last,
                     int32_t kind, const struct workspace *work) {
  const int32_t *p = rows->program;
  int32_t mlp = p[WORD_MLP_SIZE], is_gated = p[WORD_GATED];
  const float *from = work->wide + (size_t)t * (size_t)width(up_rows(p));
  float *to = work->inner + (size_t)t * (size_t)width(mlp);
  for (int32_t i = first; i < last; i += 16) {
    f32x16 value = activated(load_row(from, i, mlp), kind);
    if (is_gated) value *= load_row(from + mlp, i, mlp);
    store_some(to + i, value, mlp - i);
  }
  prepare_part(down, to, t, rows->count, first, last, work);
}

SMALL static void mlp(const struct batch *rows, int32_t layer, const struct workspace *work) {
  const int32_t *p = rows->program;
  int32_t hidden = p[WORD_HIDDEN_SIZE], size = p[WORD_MLP_SIZE], count = rows->count;
  struct matrix up = up_of(p, rows->file, layer);
  struct matrix down = matrix_of(rows->file, part(p, layer, PART_DOWN_WEIGHT), part(p, layer, PART_DOWN_BIAS), hidden, size);
  multiply(&up, work->normed, width(hidden), count, work->wide, (size_t)width(up.rows), work);
  /* Some rows, or some blocks of one. */
  int32_t pieces = count > 1 ? 1 : parts_of(work->member, size / BLOCK), units = count * pieces;
  int32_t parts = parts_of(work->member, units);
  EACH_PART(work->member, part, parts) {
    for (int32_t unit = part_start(part, parts, units); unit < part_start(part + 1, parts, units); unit++) {
      int32_t t = unit / pieces, piece = unit % pieces, first = part_start(piece, pieces, size / BLOCK) * BLOCK;
      int32_t last = piece + 1 < pieces ? part_start(piece + 1, pieces, size / BLOCK) * BLOCK : size;
      switch (p[WORD_ACTIVATION]) {
        case ACTIVATION_SILU: activate(rows, &down, t, first, last, ACTIVATION_SILU, work); break;
        case ACTIVATION_GELU: activate(rows, &down, t, first, last, ACTIVATION_GELU, work); break;
        case ACTIVATION_GELU_TANH: activate(rows, &down, t, first, last, ACTIVATION_GELU_TANH, work); break;
        default: activate(rows, &down, t, first, last, ACTIVATION_RELU, work);
      }
    }
  }
  multiply(&down, work->inner, width(size), count, work->delta, (size_t)width(hidden), work);
}

/* The logits of the rows that are wanted. */
SMALL static void finish_rows(const struct batch *rows, const struct workspace *work) {
  const int32_t *p = rows->program, *tensors = p + WORD_TENSORS, *head = tensors + 3 * TENSOR_HEAD;
  int32_t hidden = p[WORD_HIDDEN_SIZE], vocab = p[WORD_VOCAB_SIZE], count = rows->wanted_count;
  float cap = from_bits(p[WORD_FINAL_SOFTCAP]), *logits = rows->logits;
  struct matrix m = matrix_of(rows->file, head[0] ? head : tensors + 3 * TENSOR_EMBEDDING, tensors + 3 * TENSOR_HEAD_BIAS,
                              vocab, hidden);
  EACH_ROW(work, i, count) {
    float *x = work->normed + (size_t)i * (size_t)width(hidden);
    norm(p, work->stream + (size_t)rows->wanted[i] * (size_t)width(hidden),
         vector_of(rows->file, tensors + 3 * TENSOR_FINAL_NORM_WEIGHT),
         vector_of(rows->file, tensors + 3 * TENSOR_FINAL_NORM_BIAS), hidden, x);
    prepare(&m, x, i, count, work);
  }
  multiply(&m, work->normed, width(hidden), count, logits, (size_t)vocab, work);
  if (cap <= 0.0f) return;
  EACH_ROW(work, i, count) {
    float *row = logits + (size_t)i * (size_t)vocab;
    for (int32_t v = 0; v < vocab; v += 16) store_some(row + v, softcapped(load_row(row, v, vocab), cap), vocab - v);
  }
}

/* All layers, as one thread of those that share the batch; a thread waits at the end of each stage. */
SMALL void run_batch(const struct batch *rows, struct member *member) {
  const int32_t *p = rows->program;
  struct workspace work = workspace_at(p, rows->cache.context, rows->scratch);
  work.member = member;
#if !defined(ALONE)
  if (member->index) own_parts(&work, p, rows->cache.context, own_memory(member, p, rows->cache.context));
#endif
  EACH_ROW(&work, t, rows->count) start_row(rows, t, &work), enter_attention(rows, 0, t, &work);
  for (int32_t layer = 0; layer < p[WORD_LAYERS]; layer++) {
    const int32_t *post = part(p, layer, PART_ATTENTION_POST_NORM_WEIGHT);
    const int32_t *last = part(p, layer, PART_MLP_POST_NORM_WEIGHT);
    struct matrix up = up_of(p, rows->file, layer);
    attention(rows, layer, &work);
    EACH_ROW(&work, t, rows->count) {
      add_delta(p, rows->file, post, t, &work);
      if (!p[WORD_PARALLEL]) norm_row(p, rows->file, part(p, layer, PART_MLP_NORM_WEIGHT), t, &work);
      prepare(&up, work.normed + (size_t)t * (size_t)width(p[WORD_HIDDEN_SIZE]), t, rows->count, &work);
    }
    mlp(rows, layer, &work);
    EACH_ROW(&work, t, rows->count) {
      add_delta(p, rows->file, last, t, &work);
      if (layer + 1 < p[WORD_LAYERS]) enter_attention(rows, layer + 1, t, &work);
    }
  }
  if (rows->wanted_count) finish_rows(rows, &work);
}

/* Compute a batch. Nothing is read outside of what `decoder_check` and `decoder_check_rows` have passed.
 *
 * rows: tokens [count], slots [count], positions [count]; wanted: rising places of rows whose logits [wanted_count,
 * vocab_size] are computed; scratch: `decoder_scratch_bytes`, at a multiple of 64; team: its threads share the work. */
SMALL static void run_rows(struct team *team, const int32_t *program, const uint8_t *file, struct cache cache,
                     uint8_t *scratch, const int32_t *rows, int32_t count, const int32_t *wanted,
                     int32_t wanted_count, float *logits) {
  struct member member = {team, 0, 0, 0, 0, 16};
  for (int32_t start = 0; start < count; start += CHUNK) {
    int32_t places[CHUNK], found = 0, size = least(CHUNK, count - start);
    while (found < wanted_count && found < CHUNK && wanted[found] < start + size) {
      places[found] = wanted[found] - start;
      found++;
    }
    struct batch batch = {program, file, cache, scratch, rows + start, rows + count + start, rows + 2 * count + start,
                          size, found, places, logits};
#if defined(ALONE)
    run_batch(&batch, &member);
#else
    if (team) run_shared(team, &batch, &member);
    else run_batch(&batch, &member);
#endif
    wanted += found;
    wanted_count -= found;
    logits += (size_t)found * (size_t)program[WORD_VOCAB_SIZE];
  }
}

SMALL EXPORT void decoder_run(const int32_t *program, const uint8_t *file, float *cache_start, uint8_t *scratch, int32_t slots,
                        int32_t context, const int32_t *rows, int32_t count, const int32_t *wanted,
                        int32_t wanted_count, float *logits) {
  run_rows(0, program, file, (struct cache){cache_start, slots, context}, scratch, rows, count, wanted, wanted_count, logits);
}

#if !defined(ALONE)
SMALL EXPORT void decoder_run_shared(struct team *team, const int32_t *program, const uint8_t *file, float *cache_start,
                               uint8_t *scratch, int32_t slots, int32_t context, const int32_t *rows, int32_t count,
                               const int32_t *wanted, int32_t wanted_count, float *logits) {
  run_rows(team, program, file, (struct cache){cache_start, slots, context}, scratch, rows, count, wanted, wanted_count,
           logits);
}
#endif
