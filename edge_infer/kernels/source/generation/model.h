/* A decoder's program, and the memory that a run uses. */
#pragma once
#include "lanes.h"
#include "program.h"
#include "team.h"

/* Rows of a batch that go through the layers together. */
#define CHUNK 128

struct matrix {
  int32_t rows, columns, encoding;
  const uint8_t *values;
  const uint16_t *scales;
  const float *bias;
};

/* What only the kernels use, and what one run leaves there no other reads. */
struct workspace {
  float *stream, *normed, *wide, *inner, *delta, *rotation, *scores, *expanded;
  int8_t *quantised;
  float *quantised_scales;
  int32_t *quantised_sums;
  uint8_t *panel;
  float *panel_scales;
  double bytes;
  struct member *member; /* the thread that uses it */
};

struct cache {
  float *start;
  int32_t slots, context;
};

/* Floats of a row in memory. */
INLINE int32_t width(int32_t count) { return round_up(count, 16); }

INLINE int32_t queries(const int32_t *p) { return p[WORD_HEADS] * p[WORD_HEAD_SIZE]; }
INLINE int32_t keys(const int32_t *p) { return p[WORD_KV_HEADS] * p[WORD_HEAD_SIZE]; }
INLINE int32_t up_rows(const int32_t *p) { return p[WORD_MLP_SIZE] * (p[WORD_GATED] ? 2 : 1); }

/* The three words of a tensor of a layer. */
INLINE const int32_t *part(const int32_t *p, int32_t layer, int32_t name) {
  return p + WORD_TENSORS + 3 * TENSOR_COUNT + layer * LAYER_WORDS + 1 + 3 * name;
}

INLINE int32_t layer_kind(const int32_t *p, int32_t layer) {
  return p[WORD_TENSORS + 3 * TENSOR_COUNT + layer * LAYER_WORDS];
}

INLINE const uint8_t *place(const uint8_t *file, int32_t units) { return file + (size_t)units * 16; }

/* A vector of floats, or nothing where it is absent. */
INLINE const float *vector_of(const uint8_t *file, const int32_t *words) {
  return words[0] ? (const float *)place(file, words[1]) : (const float *)0;
}

INLINE struct matrix matrix_of(const uint8_t *file, const int32_t *words, const int32_t *bias, int32_t rows,
                               int32_t columns) {
  return (struct matrix){rows, columns, words[0], place(file, words[1]), (const uint16_t *)place(file, words[2]),
                         bias ? vector_of(file, bias) : (const float *)0};
}

/* Cached keys and values of one head of one layer of one slot: keys [context / 16, head_size, 16], so that a score is
   computed for 16 positions at once, then values [context, width(head_size)]. */
INLINE size_t head_floats(const int32_t *p, int32_t context) {
  return (size_t)width(context) * (size_t)(p[WORD_HEAD_SIZE] + width(p[WORD_HEAD_SIZE]));
}

INLINE float *cached_head(const int32_t *p, struct cache cache, int32_t slot, int32_t layer, int32_t head) {
  size_t index = ((size_t)slot * (size_t)p[WORD_LAYERS] + (size_t)layer) * (size_t)p[WORD_KV_HEADS] + (size_t)head;
  return cache.start + index * head_floats(p, cache.context);
}

struct workspace workspace_at(const int32_t *program, int32_t context, uint8_t *start);
double own_parts(struct workspace *work, const int32_t *program, int32_t context, uint8_t *start);
void prepare(const struct matrix *m, const float *x, int32_t index, int32_t count, const struct workspace *work);
void prepare_part(const struct matrix *m, const float *x, int32_t index, int32_t count, int32_t first, int32_t last,
                  const struct workspace *work);
void multiply(const struct matrix *m, const float *x, int32_t x_width, int32_t count, float *y, size_t y_width,
              const struct workspace *work);
void embed(const struct matrix *m, int32_t row, float scale, float *y);
void attend(const int32_t *p, struct cache cache, int32_t slot, int32_t layer, int32_t position, int32_t head,
            int32_t first_query, int32_t last_query, const float *q, float *y, float *scores);
void remember(const int32_t *p, struct cache cache, int32_t slot, int32_t layer, int32_t position, const float *k,
              const float *v);
