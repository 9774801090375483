/* Rows of a table, by their numbers. */
#include "vectors.h"

/* A number that is no row's takes the nearest one: a kernel has no way to fail. */
COLD(gather) {
  const uint8_t *input = AT(const uint8_t, input);
  const int32_t *positions = AT(const int32_t, positions);
  uint8_t *output = AT(uint8_t, output);
  for (int32_t outer = 0; outer < a->outer; outer++)
    for (int32_t i = 0; i < a->count; i++) {
      const uint8_t *row = input + (outer * a->rows + least(most(positions[i], 0), a->rows - 1)) * a->block;
      for (int32_t k = 0; k < a->block; k++) *output++ = row[k];
    }
}
