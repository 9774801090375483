/* Moves of bytes. */
#include "vectors.h"

/* Blocks of bytes in loops of five: transposes, slices, pads, concatenations. Steps are in bytes. */
COLD(copy) {
  const uint8_t *input = AT(const uint8_t, input);
  uint8_t *output = AT(uint8_t, output);
  for (int32_t i = 0; i < a->size_0; i++)
    for (int32_t j = 0; j < a->size_1; j++)
      for (int32_t k = 0; k < a->size_2; k++)
        for (int32_t l = 0; l < a->size_3; l++) {
          const uint8_t *from = input + i * a->input_0 + j * a->input_1 + k * a->input_2 + l * a->input_3;
          uint8_t *to = output + i * a->output_0 + j * a->output_1 + k * a->output_2 + l * a->output_3;
          for (int32_t m = 0; m < a->size_4; m++, from += a->input_4, to += a->output_4)
            move(to, from, a->block);
        }
}

COLD(fill) {
  uint8_t *output = AT(uint8_t, output);
  int32_t value = a->value;
  for (int32_t i = 0; i < a->count; i++)
    if (a->bytes == 4)
      move(output + 4 * i, (const uint8_t *)&value, 4);
    else
      output[i] = (uint8_t)value;
}
