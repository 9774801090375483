/* Blocks of bytes in loops of five: transposes, slices, pads, concatenations. Steps are in bytes. */
static void copy(const struct copy_call *a) {
  const uint8_t *input = a->input;
  uint8_t *output = a->output;
  int32_t i, j, k, l, m;
  for (i = 0; i < a->size_0; i++)
    for (j = 0; j < a->size_1; j++)
      for (k = 0; k < a->size_2; k++)
        for (l = 0; l < a->size_3; l++)
          for (m = 0; m < a->size_4; m++)
            memcpy(output + i * a->output_0 + j * a->output_1 + k * a->output_2 + l * a->output_3 + m * a->output_4,
                   input + i * a->input_0 + j * a->input_1 + k * a->input_2 + l * a->input_3 + m * a->input_4,
                   (uint32_t)a->block);
}

static void fill(const struct fill_call *a) {
  uint8_t *output = a->output;
  int32_t i, value = a->value;
  for (i = 0; i < a->count; i++)
    if (a->bytes == 4)
      memcpy(output + 4 * i, &value, 4);
    else
      output[i] = (uint8_t)value;
}

/* Rows of a table, by their numbers; a number that is no row's takes the nearest one. */
static void gather(const struct gather_call *a) {
  const int32_t *positions = a->positions;
  uint8_t *output = a->output;
  int32_t outer, i;
  for (outer = 0; outer < a->outer; outer++)
    for (i = 0; i < a->count; i++, output += a->block) {
      int32_t row = outer * a->rows + least(most(positions[i], 0), a->rows - 1);
      memcpy(output, (const uint8_t *)a->input + row * a->block, (uint32_t)a->block);
    }
}
