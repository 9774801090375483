/* A batch split among threads: each stage of it into parts, which whoever is free takes.
 *
 * A stage ends when all its parts are done, not when all threads are there: a thread that the system has put aside, or
 * that wakes late, holds nobody up unless it is in the middle of a part. Who waits looks for some microseconds, fewer
 * where that was in vain, and then sleeps (futex). `generation.wasm` has one thread and none of this; the page's module
 * with threads is `generation-threads.wasm`, whose memory all of its instances share.
 */
#pragma once
#include "lanes.h"

#if defined(__wasm__) && !defined(__wasm_atomics__)
#define ALONE 1
#endif

struct member {
  struct team *team; /* nothing: alone */
  int32_t index;     /* of the thread */
  int32_t stage, parts, part, patience;
};

#if defined(ALONE)

/* Parts of a stage of `units`. */
INLINE int32_t parts_of(struct member *member, int32_t units) {
  (void)member, (void)units;
  return 1;
}

#define EACH_PART(member, part, parts) for (int32_t part = 0; part < 1 && (void *)(member); part++)

#else

int32_t team_threads(const struct team *team);
int32_t take_part(struct member *member, int32_t parts);
int32_t next_part(struct member *member);

INLINE int32_t parts_of(struct member *member, int32_t units) {
  return member->team ? most(1, least(units, 3 * team_threads(member->team))) : 1;
}

/* Run the body for the parts that this thread gets; behind it all parts are done, whoever had them. */
#define EACH_PART(member, part, parts) \
  for (int32_t part = take_part(member, parts); part >= 0; part = next_part(member))

#endif

/* Where a part of `units` begins, and where the one before it ends. */
INLINE int32_t part_start(int32_t part, int32_t parts, int32_t units) {
  return (int32_t)((int64_t)units * part / parts);
}
