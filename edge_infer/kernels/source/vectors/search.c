/* The search of an index: the best rows by their 8-bit numbers, and the nearest ones by their 1-bit codes. */
#include "dot.h"

#if defined(__wasm__)
#define EXPORT(type) type
#else
#define EXPORT(type) __attribute__((visibility("default"))) type
#endif

/* Raised where the arguments change. */
EXPORT(int32_t) vectors_abi(void) { return 1; }

/* Ask for bytes that are read soon: processors do not look beyond a page of 4 kB by themselves, and a file that is mapped
 * lies in such pages. It makes a scan 1.9 times as fast. What lies behind the data is not read. */
#define AHEAD 8192
INLINE void fetch_ahead(const void *place, uint32_t bytes) {
#if !defined(__wasm__)
  for (uint32_t at = 0; at < bytes; at += 64) __builtin_prefetch((const void *)((uintptr_t)place + AHEAD + at));
#else
  (void)place, (void)bytes;
#endif
}

/* A heap of the best rows, its worst at the root. */
struct heap {
  float *scores;
  uint32_t *rows;
  uint32_t held;
};

INLINE int is_worse(float score, uint32_t row, float other, uint32_t other_row) {
  return score < other || (score == other && row > other_row);
}

static void put(struct heap *heap, uint32_t most, float score, uint32_t row) {
  uint32_t at;
  if (heap->held < most) {
    for (at = heap->held++; at; at = (at - 1) / 2) {
      uint32_t above = (at - 1) / 2;
      if (!is_worse(score, row, heap->scores[above], heap->rows[above])) break;
      heap->scores[at] = heap->scores[above];
      heap->rows[at] = heap->rows[above];
    }
  } else {
    for (at = 0;;) {
      uint32_t below = 2 * at + 1;
      if (below >= most) break;
      if (below + 1 < most && is_worse(heap->scores[below + 1], heap->rows[below + 1], heap->scores[below], heap->rows[below]))
        below++;
      if (!is_worse(heap->scores[below], heap->rows[below], score, row)) break;
      heap->scores[at] = heap->scores[below];
      heap->rows[at] = heap->rows[below];
      at = below;
    }
  }
  heap->scores[at] = score;
  heap->rows[at] = row;
}

/* Put the best rows of a range into a heap, and return how many it holds.
 *
 * data: the rows, `dimension` numbers each. scales: what the dot product of each is multiplied by. wide: scratch for
 * `dimension` numbers. allowed: a byte for each row, 0 where it is left out; null for all. picked: rows, rising, of which
 * `first` to `end` are looked at; null for the rows `first` to `end` themselves. most: the size of the heap, 1 or more. */
EXPORT(uint32_t)
vectors_scan(const int8_t *data, const float *scales, const int8_t *query, int16_t *wide, const uint8_t *allowed,
             const uint32_t *picked, uint32_t first, uint32_t end, uint32_t dimension, uint32_t most, float *scores,
             uint32_t *rows) {
  struct query q = prepare(query, wide, dimension);
  struct heap heap = {scores, rows, 0};
  while (first < end) {
    uint32_t four[4], count = 0;
    const int8_t *places[4];
    int32_t dots[4];
    for (; first < end && count < 4; first++) {
      uint32_t row = picked ? picked[first] : first;
      if (allowed && !allowed[row]) continue;
      four[count] = row;
      places[count++] = data + (uintptr_t)row * dimension;
    }
    if (!count) break;
    for (uint32_t i = count; i < 4; i++) places[i] = places[0];
    if (!picked) fetch_ahead(places[0], 4 * dimension);
    dot_four(places, q, dimension, dots);
    for (uint32_t i = 0; i < count; i++) {
      float score = (float)dots[i] * scales[four[i]];
      if (heap.held < most || score > heap.scores[0]) put(&heap, most, score, four[i]);
    }
  }
  return heap.held;
}

INLINE uint32_t differing(const uint64_t *code, const uint64_t *query, uint32_t words) {
#if defined(__wasm_simd128__)
  v128_t sums = wasm_i64x2_const_splat(0);
  uint32_t i = 0;
  for (; i + 2 <= words; i += 2) {
    v128_t ones = wasm_i8x16_popcnt(wasm_v128_xor(wasm_v128_load(code + i), wasm_v128_load(query + i)));
    sums = wasm_i32x4_add(sums, wasm_u32x4_extadd_pairwise_u16x8(wasm_u16x8_extadd_pairwise_u8x16(ones)));
  }
  uint32_t count = (uint32_t)total(sums);
  for (; i < words; i++) count += (uint32_t)__builtin_popcountll(code[i] ^ query[i]);
  return count;
#else
  uint32_t count = 0;
  for (uint32_t i = 0; i < words; i++) {
    uint64_t one, other;
    __builtin_memcpy(&one, code + i, 8);
    __builtin_memcpy(&other, query + i, 8);
    count += (uint32_t)__builtin_popcountll(one ^ other);
  }
  return count;
#endif
}

/* Write for each row of a range in how many bits its code differs from the query's, 65535 for one that is left out. */
EXPORT(void)
vectors_differ(const uint64_t *codes, const uint64_t *query, const uint8_t *allowed, uint32_t first, uint32_t end,
               uint32_t words, uint16_t *found) {
  for (uint32_t row = first; row < end; row++) {
    fetch_ahead(codes + (uintptr_t)row * words, 8 * words);
    found[row] = allowed && !allowed[row] ? 0xffff : (uint16_t)differing(codes + (uintptr_t)row * words, query, words);
  }
}

/* Write the rows that differ least, rising, of equal ones the first; return how many there are.
 *
 * found: what `vectors_differ` wrote. wanted: how many rows at most. counts: scratch for `limit` numbers. limit: more than
 * any row differs; rows from there on are left out. */
EXPORT(uint32_t)
vectors_select(const uint16_t *found, uint32_t rows, uint32_t wanted, uint32_t *counts, uint32_t limit,
               uint32_t *picked) {
  for (uint32_t i = 0; i < limit; i++) counts[i] = 0;
  for (uint32_t row = 0; row < rows; row++) {
    if (found[row] < limit) counts[found[row]]++;
  }
  uint32_t last = 0, below = 0, count = 0;
  for (; last < limit && below + counts[last] < wanted; last++) below += counts[last];
  uint32_t left = wanted - below;
  for (uint32_t row = 0; row < rows && count < wanted; row++) {
    if (found[row] > last || found[row] >= limit || (found[row] == last && !left)) continue;
    left -= found[row] == last;
    picked[count++] = row;
  }
  return count;
}

/* The compiler may call this, and there is no C library. */
void *memset(void *to, int value, __SIZE_TYPE__ count) {
  volatile uint8_t *bytes = to;
  for (__SIZE_TYPE__ i = 0; i < count; i++) bytes[i] = (uint8_t)value;
  return to;
}
