/* Run a weight file with kernels linked in, for processors that only an emulator has:
   run FILE PROGRAM_OFFSET WORDS CONTEXT TOKEN...
   It writes the logits of all tokens as one batch, then of each alone, and then of each alone shared by three threads,
   as float32. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int32_t decoder_check(const int32_t *, int32_t, double);
double decoder_cache_bytes(const int32_t *, int32_t, int32_t);
double decoder_scratch_bytes(const int32_t *, int32_t);
void decoder_run(const int32_t *, const uint8_t *, float *, uint8_t *, int32_t, int32_t, const int32_t *, int32_t,
                 const int32_t *, int32_t, float *);
double decoder_team_bytes(const int32_t *, int32_t, int32_t);
void decoder_team_begin(void *, int32_t);
void decoder_team_end(void *);
void decoder_join(void *, int32_t);
void decoder_run_shared(void *, const int32_t *, const uint8_t *, float *, uint8_t *, int32_t, int32_t, const int32_t *,
                        int32_t, const int32_t *, int32_t, float *);

static void *team;

static void *join(void *index) {
  decoder_join(team, (int32_t)(intptr_t)index);
  return NULL;
}

static void *memory(size_t size) {
  void *start = aligned_alloc(64, (size + 63) / 64 * 64);
  return start ? memset(start, 0, size) : NULL;
}

int main(int count, char **words) {
  FILE *file = fopen(words[1], "rb");
  if (!file || count < 6) return 2;
  fseek(file, 0, SEEK_END);
  size_t size = (size_t)ftell(file);
  uint8_t *weights = memory(size);
  rewind(file);
  if (!weights || fread(weights, 1, size, file) != size) return 2;
  const int32_t *program = (const int32_t *)(weights + atoi(words[2]));
  if (decoder_check(program, atoi(words[3]), (double)size)) return 3;
  int32_t context = atoi(words[4]), tokens = count - 5, vocabulary = program[3];
  float *cache = memory((size_t)decoder_cache_bytes(program, 2, context));
  uint8_t *scratch = memory((size_t)decoder_scratch_bytes(program, context));
  int32_t *rows = memory((size_t)tokens * 12), *wanted = memory((size_t)tokens * 4);
  float *logits = memory((size_t)tokens * (size_t)vocabulary * 4);
  if (!cache || !scratch || !rows || !wanted || !logits) return 2;
  for (int32_t i = 0; i < tokens; i++) {
    rows[i] = atoi(words[5 + i]);
    rows[tokens + i] = 0;
    rows[2 * tokens + i] = wanted[i] = i;
  }
  decoder_run(program, weights, cache, scratch, 2, context, rows, tokens, wanted, tokens, logits);
  fwrite(logits, 4, (size_t)tokens * (size_t)vocabulary, stdout);
  for (int32_t i = 0; i < tokens; i++) {
    int32_t row[3] = {rows[i], 1, i}, first = 0;
    decoder_run(program, weights, cache, scratch, 2, context, row, 1, &first, 1, logits);
    fwrite(logits, 4, (size_t)vocabulary, stdout);
  }
  pthread_t others[2];
  team = memory((size_t)decoder_team_bytes(program, context, 3));
  if (!team) return 2;
  decoder_team_begin(team, 3);
  for (intptr_t i = 0; i < 2; i++)
    if (pthread_create(&others[i], NULL, join, (void *)(i + 1))) return 2;
  for (int32_t i = 0; i < tokens; i++) {
    int32_t row[3] = {rows[i], 1, i}, first = 0;
    decoder_run_shared(team, program, weights, cache, scratch, 2, context, row, 1, &first, 1, logits);
    fwrite(logits, 4, (size_t)vocabulary, stdout);
  }
  decoder_team_end(team);
  for (int i = 0; i < 2; i++)
    if (pthread_join(others[i], NULL)) return 2;
  return 0;
}
