/* A batch of at most CHUNK rows, as every thread that takes part sees it. */
#pragma once
#include "model.h"
#include "team.h"

/* At most so many stages has a batch. */
#define STAGES_OF_A_LAYER 10
#define STAGES_AROUND 4

struct batch {
  const int32_t *program;
  const uint8_t *file;
  struct cache cache;
  uint8_t *scratch;
  const int32_t *tokens, *slots, *positions;
  int32_t count, wanted_count;
  const int32_t *wanted; /* places in this batch */
  float *logits;
};

void run_batch(const struct batch *batch, struct member *member);
uint8_t *own_memory(const struct member *member, const int32_t *program, int32_t context);
void run_shared(struct team *team, const struct batch *batch, struct member *member);
