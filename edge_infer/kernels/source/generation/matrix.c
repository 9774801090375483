/* Products of a matrix, in each encoding, with rows of activations. */
#include "model.h"
#include "quantised.h"

INLINE f32x16 sixteen(const uint8_t *w, int32_t column, int32_t count, int is_half) {
  if (is_half) {
    const uint16_t *half = (const uint16_t *)w + column;
    return count >= 16 ? load_half(half) : load_half_some(half, count);
  }
  const float *value = (const float *)w + column;
  return count >= 16 ? load(value) : load_some(value, count);
}

/* The lanes of a register. Rows of weights and rows of activations whose sums fit the registers make a tile. */
#if defined(LANES_AVX2) && defined(__AVX512F__)
#define LANES 16
#define TILE_ROWS 6
#define TILE 4
#elif defined(LANES_AVX2)
#define LANES 8
#define TILE_ROWS 4
#define TILE 2
#elif defined(LANES_NEON)
#define LANES 4
#define TILE_ROWS 4
#define TILE 4
#else
#define LANES 4
#define TILE_ROWS 4
#define TILE 2
#endif

/* Up to so many rows of activations are faster without a tile where weights are floats: each row of weights is read once,
 * in order, and with all lanes the sums of three fit the registers. Set where that was measured. */
#if defined(__SSE2__) && !defined(__AVX512F__)
#define FEW 8
#else
#define FEW 1
#endif
#define TOGETHER 3

typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4)));

/* The dots of rows of floats with `count` rows of activations. Each is a sum of its own by lanes, as all are.
 * Weights `ahead` floats further on are fetched into the cache meanwhile. */
INLINE void float_dots(const float *w, int rows, size_t ahead, const float *x, int32_t x_width, int count,
                       int32_t columns, const float *bias, float *y, size_t y_width) {
  f32x16 all_sums[TILE_ROWS][TILE];
  for (int32_t lane = 0; lane < 16; lane += LANES, ahead = 0) {
    lanes sums[TILE_ROWS][TILE];
    for (int r = 0; r < rows; r++)
      for (int t = 0; t < count; t++) sums[r][t] = (lanes){0};
    for (int32_t c = lane; c + 16 <= columns + lane; c += 16) {
      lanes values[TILE];
      for (int t = 0; t < count; t++) values[t] = *(const lanes *)(x + (size_t)t * (size_t)x_width + c);
      for (int r = 0; r < rows; r++) {
        const float *at = w + (size_t)r * (size_t)columns + c;
        lanes weight = *(const lanes *)at;
        __builtin_prefetch(at + ahead);
        for (int t = 0; t < count; t++) sums[r][t] += weight * values[t];
      }
    }
    for (int r = 0; r < rows; r++)
      for (int t = 0; t < count; t++) *(lanes *)((float *)&all_sums[r][t] + lane) = sums[r][t];
  }
  int32_t rest = columns % 16, c = columns - rest;
  for (int r = 0; r < rows; r++) {
    for (int t = 0; t < count; t++) {
      f32x16 sum = all_sums[r][t];
      if (rest)
        sum += load_some(w + (size_t)r * (size_t)columns + c, rest) * load_some(x + (size_t)t * (size_t)x_width + c, rest);
      y[(size_t)t * y_width + r] = fold(sum) + (bias ? bias[r] : 0.0f);
    }
  }
}

/* How far weights are fetched ahead, where rows follow one another. */
#define AHEAD_BYTES 4096

/* The dots of a row of floats or halves with `count` rows of activations, at most TOGETHER. */
INLINE void row_dots(const uint8_t *w, int is_half, const float *x, int32_t x_width, int count, int32_t columns,
                     float bias, float *y, size_t y_width) {
  f32x16 sums[TOGETHER] = {0};
  int32_t c = 0;
  for (; c + 16 <= columns; c += 16) {
    __builtin_prefetch(w + (size_t)c * (is_half ? 2 : 4) + AHEAD_BYTES);
    f32x16 weight = sixteen(w, c, 16, is_half);
    for (int t = 0; t < count; t++) sums[t] += weight * load(x + (size_t)t * (size_t)x_width + c);
  }
  for (int t = 0; t < count; t++) {
    if (c < columns)
      sums[t] += sixteen(w, c, columns - c, is_half) * load_some(x + (size_t)t * (size_t)x_width + c, columns - c);
    y[(size_t)t * y_width] = fold(sums[t]) + bias;
  }
}

#define FLOAT_FORM(name, rows, count)                                                                             \
  static __attribute__((noinline)) void name(const float *w, size_t ahead, const float *x, int32_t x_width,       \
                                             int32_t columns, const float *bias, float *y, size_t y_width) {      \
    float_dots(w, rows, ahead, x, x_width, count, columns, bias, y, y_width);                                     \
  }
FLOAT_FORM(tile_dots, TILE_ROWS, TILE)
/* Where a register has all lanes, rows together are faster than one after the other for one row of activations too. */
#if LANES == 16
#define HAS_ROWS_DOTS 1
FLOAT_FORM(rows_dots, TILE_ROWS, 1)
#else
#define HAS_ROWS_DOTS 0
#define rows_dots tile_dots
#endif

#define ROW_FORM(name, is_half, count)                                                                             \
  static __attribute__((noinline)) void name(const uint8_t *w, const float *x, int32_t x_width, int32_t columns,   \
                                             float bias, float *y, size_t y_width) {                               \
    row_dots(w, is_half, x, x_width, count, columns, bias, y, y_width);                                            \
  }
ROW_FORM(half_dot, 1, 1)
ROW_FORM(one_dot, 0, 1)
#if FEW > 1
ROW_FORM(two_dots, 0, 2)
ROW_FORM(three_dots, 0, 3)
#else
#define two_dots one_dot
#define three_dots one_dot
#endif

/* Few rows of activations, of halves one: all of them with a row of weights, before the next one. */
static void multiply_few(const struct matrix *m, int is_half, const float *x, int32_t x_width, int32_t count, float *y,
                         size_t y_width) {
  for (int32_t r = 0; r < m->rows; r++) {
    const uint8_t *w = m->values + (size_t)r * (size_t)m->columns * (is_half ? 2 : 4);
    float bias = m->bias ? m->bias[r] : 0.0f;
    if (is_half) half_dot(w, x, 0, m->columns, bias, y + r, 0);
    for (int32_t t = 0, some; !is_half && t < count; t += some) {
      const float *from = x + (size_t)t * (size_t)x_width;
      float *to = y + (size_t)t * y_width + r;
      some = least(count - t, TOGETHER);
      (some == 3 ? three_dots : some == 2 ? two_dots : one_dot)(w, from, x_width, m->columns, bias, to, y_width);
    }
  }
}

static void multiply_floats(const struct matrix *m, int is_half, const float *x, int32_t x_width, int32_t count,
                            float *y, size_t y_width, float *expanded) {
  size_t columns = (size_t)m->columns;
  if (count <= (is_half ? 1 : FEW)) {
    multiply_few(m, is_half, x, x_width, count, y, y_width);
    return;
  }
  for (int32_t r = 0, rows; r < m->rows; r += rows) {
    rows = r + TILE_ROWS <= m->rows ? TILE_ROWS : 1;
    const float *w = (const float *)m->values + (size_t)r * columns, *bias = m->bias ? m->bias + r : (const float *)0;
    size_t ahead = is_half ? 0 : (size_t)rows * columns;
    if (is_half) {
      const uint8_t *halves = m->values + (size_t)r * columns * 2;
      int32_t values = rows * m->columns, i = 0;
      for (; i + 16 <= values; i += 16) {
        __builtin_prefetch(halves + (size_t)i * 2 + AHEAD_BYTES);
        store(expanded + i, sixteen(halves, i, 16, 1));
      }
      if (i < values) store_some(expanded + i, sixteen(halves, i, values - i, 1), values - i);
      w = expanded;
    }
    for (int32_t t = 0, some; t < count; t += some) {
      const float *from = x + (size_t)t * (size_t)x_width;
      float *to = y + (size_t)t * y_width + r;
      some = rows > 1 && t + TILE <= count ? TILE : 1;
      if (some > 1) {
        tile_dots(w, ahead, from, x_width, m->columns, bias, to, y_width);
      } else if (HAS_ROWS_DOTS && rows > 1) {
        rows_dots(w, ahead, from, x_width, m->columns, bias, to, y_width);
      } else {
        for (int32_t i = 0; i < rows; i++)
          one_dot((const uint8_t *)(w + (size_t)i * columns), from, 0, m->columns, bias ? bias[i] : 0.0f, to + i, 0);
      }
    }
  }
}

/* The index-th of `count` quantised rows. Those that a panel takes four at a time stand together. */
INLINE struct quantised quantised_row(const struct workspace *work, int32_t index, int32_t count, int32_t blocks) {
  size_t padded = (size_t)padded_blocks(blocks), place = (size_t)index * padded;
  int8_t *values = work->quantised + place * BLOCK * VALUE_BYTES;
#if defined(LANES_PAIRS)
  if (index / 4 * 4 + 4 <= count) {
    size_t tile = (size_t)(index / 4 * 4) * padded * BLOCK * VALUE_BYTES + (size_t)(index % 4) * 4;
    return (struct quantised){work->quantised + tile, work->quantised_scales + place, work->quantised_sums + place, 4};
  }
#endif
  (void)count;
  return (struct quantised){values, work->quantised_scales + place, work->quantised_sums + place, 1};
}

/* A panel of packed rows of weights with `count` quantised rows. The lanes of blocks are taken one after the other. */
INLINE void panel_by_rows(const uint8_t *panel, const float *scales, const struct quantised x[], int32_t blocks,
                          int count, int is_int4, panel_floats y[]) {
  static const int order[4] = {0, 2, 1, 3};
  for (int lane = 0; lane < 4; lane++) {
    panel_floats sums[4];
    for (int t = 0; t < count; t++) sums[t] = (panel_floats){0};
    for (int32_t b = order[lane]; b < blocks; b += 4) {
      panel_ints dots[4];
      panel_dots(dots, panel + (size_t)b * PANEL_BLOCK_BYTES, x, b, count, is_int4);
      panel_floats scale = *(const panel_floats *)(scales + (size_t)b * PANEL_ROWS);
      for (int t = 0; t < count; t++)
        sums[t] += __builtin_convertvector(dots[t], panel_floats) * (scale * x[t].scales[b]);
    }
    for (int t = 0; t < count; t++) {
      panel_floats *to = y + (lane < 2 ? t : 4 + t);
      *to = lane & 1 ? *to + sums[t] : sums[t];
    }
  }
  for (int t = 0; t < count; t++) y[t] += y[4 + t];
}

#define PANEL_FORM(name, count, is_int4)                                                                     \
  static __attribute__((noinline)) void name(const uint8_t *panel, const float *scales,                      \
                                             const struct quantised x[], int32_t blocks, panel_floats y[]) { \
    panel_by_rows(panel, scales, x, blocks, count, is_int4, y);                                              \
  }
PANEL_FORM(four_int8_rows, 4, 0)
PANEL_FORM(one_int8_row, 1, 0)
#if defined(PANELS_ARE_ALIKE)
#define four_int4_rows four_int8_rows
#define one_int4_row one_int8_row
#else
PANEL_FORM(four_int4_rows, 4, 1)
PANEL_FORM(one_int4_row, 1, 1)
#endif

static __attribute__((noinline)) void pack_int4(uint8_t *panel, const uint8_t *const rows[], int32_t blocks) {
  for (int32_t b = 0; b < blocks; b++) pack_block(panel + (size_t)b * PANEL_BLOCK_BYTES, rows, b, 1);
}

static __attribute__((noinline)) void pack_int8(uint8_t *panel, const uint8_t *const rows[], int32_t blocks) {
  for (int32_t b = 0; b < blocks; b++) pack_block(panel + (size_t)b * PANEL_BLOCK_BYTES, rows, b, 0);
}

static void multiply_panels(const struct matrix *m, int is_int4, int32_t count, float *y, size_t y_width,
                            const struct workspace *work) {
  int32_t blocks = m->columns / BLOCK, block_bytes = is_int4 ? 16 : 32;
  for (int32_t first = 0; first < m->rows; first += PANEL_ROWS) {
    const uint8_t *rows[PANEL_ROWS];
    for (int r = 0; r < PANEL_ROWS; r++) {
      size_t row = (size_t)least(first + r, m->rows - 1) * (size_t)blocks;
      rows[r] = m->values + row * (size_t)block_bytes;
      for (int32_t b = 0; b < blocks; b += 4) {
        f32x4 four = load_scales(m->scales + row + b, blocks - b);
        for (int i = 0; i < least(4, blocks - b); i++) work->panel_scales[(b + i) * PANEL_ROWS + r] = four[i];
      }
    }
    if (is_int4) pack_int4(work->panel, rows, blocks);
    else pack_int8(work->panel, rows, blocks);
    int32_t live = least(PANEL_ROWS, m->rows - first);
    float bias[PANEL_ROWS] = {0};
    for (int r = 0; m->bias && r < live; r++) bias[r] = m->bias[first + r];
    for (int32_t t = 0; t < count;) {
      struct quantised x[4];
      panel_floats sums[8];
      int tile = t + 4 <= count ? 4 : 1;
      for (int i = 0; i < tile; i++) x[i] = quantised_row(work, t + i, count, blocks);
      if (is_int4) (tile == 4 ? four_int4_rows : one_int4_row)(work->panel, work->panel_scales, x, blocks, sums);
      else (tile == 4 ? four_int8_rows : one_int8_row)(work->panel, work->panel_scales, x, blocks, sums);
      for (int i = 0; i < tile; i++) {
        panel_floats value = sums[i] + *(const panel_floats *)bias;
        float *to = y + (size_t)(t + i) * y_width + first;
        if (live == PANEL_ROWS) *(panel_floats *)to = value;
        else
          for (int r = 0; r < live; r++) to[r] = value[r];
      }
      t += tile;
    }
  }
}

static void multiply_blocks(const struct matrix *m, int is_int4, int32_t count, float *y, size_t y_width,
                            const struct workspace *work) {
  int32_t blocks = m->columns / BLOCK;
  if (count >= 4) {
    multiply_panels(m, is_int4, count, y, y_width, work);
    return;
  }
  for (int32_t t = 0; t < count; t++) {
    float *to = y + (size_t)t * y_width;
    struct quantised row = quantised_row(work, t, count, blocks);
    if (is_int4) rows_by_one(m->values, m->scales, row, blocks, to, m->rows, 1);
    else rows_by_one(m->values, m->scales, row, blocks, to, m->rows, 0);
    for (int32_t r = 0; m->bias && r < m->rows; r++) to[r] += m->bias[r];
  }
}

/* Bytes of so many values of a matrix. */
INLINE size_t value_bytes(const struct matrix *m, size_t count) {
  switch (m->encoding) {
    case ENCODING_F32: return count * 4;
    case ENCODING_F16: return count * 2;
    case ENCODING_INT8: return count;
    default: return count / 2;
  }
}

INLINE int is_blocks(const struct matrix *m) { return m->encoding >= ENCODING_INT8; }

/* Make columns `first` to `last` - 1, whole blocks, of the index-th of `count` rows ready for `multiply`. */
void prepare_part(const struct matrix *m, const float *x, int32_t index, int32_t count, int32_t first, int32_t last,
                  const struct workspace *work) {
  int32_t blocks = m->columns / BLOCK;
  if (is_blocks(m)) quantise(quantised_row(work, index, count, blocks), x, blocks, first / BLOCK, last / BLOCK);
}

void prepare(const struct matrix *m, const float *x, int32_t index, int32_t count, const struct workspace *work) {
  prepare_part(m, x, index, count, 0, m->columns, work);
}

/* y[t] = m x[t] + bias for `count` rows that are prepared, at most CHUNK. */
SMALL void multiply(const struct matrix *m, const float *x, int32_t x_width, int32_t count, float *y, size_t y_width,
              const struct workspace *work) {
  int32_t unit = is_blocks(m) ? PANEL_ROWS : TILE_ROWS, units = (m->rows + unit - 1) / unit;
  int32_t parts = parts_of(work->member, units);
  EACH_PART(work->member, part, parts) {
    int32_t first = part_start(part, parts, units) * unit;
    struct matrix some = *m;
    some.rows = least(part_start(part + 1, parts, units) * unit, m->rows) - first;
    some.values += value_bytes(m, (size_t)first * (size_t)m->columns);
    some.scales += (size_t)first * (size_t)(m->columns / BLOCK);
    if (some.bias) some.bias += first;
    float *to = y + first;
    switch (m->encoding) {
      case ENCODING_F32: multiply_floats(&some, 0, x, x_width, count, to, y_width, work->expanded); break;
      case ENCODING_F16: multiply_floats(&some, 1, x, x_width, count, to, y_width, work->expanded); break;
      case ENCODING_INT8: multiply_blocks(&some, 0, count, to, y_width, work); break;
      default: multiply_blocks(&some, 1, count, to, y_width, work);
    }
  }
}

/* A row of a matrix as floats, times a factor. */
SMALL void embed(const struct matrix *m, int32_t row, float scale, float *y) {
  size_t start = (size_t)row * (size_t)m->columns;
  if (m->encoding <= ENCODING_F16) {
    int is_half = m->encoding == ENCODING_F16;
    const uint8_t *w = m->values + start * (is_half ? 2 : 4);
    for (int32_t c = 0; c < m->columns; c += 16)
      store_some(y + c, sixteen(w, c, m->columns - c, is_half) * scale, m->columns - c);
    return;
  }
  for (int32_t b = 0; b < m->columns / BLOCK; b++) {
    size_t block = start / BLOCK + (size_t)b;
    float unit = load_scales(m->scales + block, 1)[0];
    for (int i = 0; i < BLOCK; i++) {
      int32_t value = (int8_t)m->values[block * 32 + i];
      if (m->encoding == ENCODING_INT4) {
        uint8_t both = m->values[block * 16 + (i & 15)];
        value = (i < 16 ? both & 15 : both >> 4) - 8;
      }
      y[b * BLOCK + i] = (float)value * unit * scale;
    }
  }
}

INLINE uint8_t *take(uint8_t **next, double *bytes, size_t size) {
  uint8_t *at = *next;
  size = (size + 63) / 64 * 64;
  *bytes += (double)size;
  *next += size;
  return at;
}

/* What each thread has for itself, from `start`, a multiple of 64, on; returns its size. */
SMALL double own_parts(struct workspace *work, const int32_t *p, int32_t context, uint8_t *start) {
  int32_t inner = width(most(queries(p), p[WORD_MLP_SIZE])), columns = width(most(p[WORD_HIDDEN_SIZE], inner));
  size_t blocks = (size_t)padded_blocks(columns / BLOCK + 1);
  double bytes = 0.0;
  work->scores = (float *)take(&start, &bytes, (size_t)width(context) * 4 * 4);
  work->expanded = (float *)take(&start, &bytes, (size_t)columns * TILE_ROWS * 4);
  work->panel = take(&start, &bytes, blocks * PANEL_BLOCK_BYTES);
  work->panel_scales = (float *)take(&start, &bytes, blocks * PANEL_ROWS * 4);
  return bytes;
}

/* The parts of a workspace that begins at `start`, a multiple of 64; its size alone where `start` is nothing. */
SMALL struct workspace workspace_at(const int32_t *p, int32_t context, uint8_t *start) {
  int32_t hidden = width(p[WORD_HIDDEN_SIZE]), q = queries(p), mlp = p[WORD_MLP_SIZE];
  int32_t wide = width(most(q + 2 * keys(p), up_rows(p)));
  int32_t inner = width(most(q, mlp)), columns = width(most(p[WORD_HIDDEN_SIZE], inner));
  size_t blocks = (size_t)padded_blocks(columns / BLOCK + 1);
  struct workspace work = {0};
  uint8_t *next = start;
  work.stream = (float *)take(&next, &work.bytes, (size_t)hidden * CHUNK * 4);
  work.normed = (float *)take(&next, &work.bytes, (size_t)hidden * CHUNK * 4);
  work.delta = (float *)take(&next, &work.bytes, (size_t)hidden * CHUNK * 4);
  work.wide = (float *)take(&next, &work.bytes, (size_t)wide * CHUNK * 4);
  work.inner = (float *)take(&next, &work.bytes, (size_t)inner * CHUNK * 4);
  work.rotation = (float *)take(&next, &work.bytes, (size_t)width(p[WORD_ROTARY_SIZE]) * 2 * CHUNK * 4);
  work.quantised = (int8_t *)take(&next, &work.bytes, blocks * BLOCK * VALUE_BYTES * CHUNK);
  work.quantised_scales = (float *)take(&next, &work.bytes, blocks * CHUNK * 4);
  work.quantised_sums = (int32_t *)take(&next, &work.bytes, blocks * CHUNK * 4);
  work.bytes += own_parts(&work, p, context, next);
  return work;
}
