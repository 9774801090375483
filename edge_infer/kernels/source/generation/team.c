/* Threads that take parts of a batch: who begins it, who joins, and how they wait. On Linux, and in a page; see team.h. */
#include "team.h"
#if !defined(ALONE)
#include "model.h"
#include "run.h"

/* The words that threads write stand on lines of their own. */
struct stage {
  int32_t taken, done, fill[14];
};

/* `gate` counts who is inside; with CLOSED nobody enters. */
struct team {
  int32_t threads, has_ended, joined, fill[13];
  int32_t call, idle, fill2[14];
  int32_t gate, sleepers, fill3[14];
  const struct batch *batch;
  int64_t fill4[7];
  struct stage stages[];
};

#define CLOSED 0x40000000
#define MOST_PATIENCE 1024
#define LEAST_PATIENCE 16
#define LOAD(place) __atomic_load_n(place, __ATOMIC_ACQUIRE)
#define ADD(place, value) __atomic_add_fetch(place, value, __ATOMIC_SEQ_CST)

#if defined(__wasm__)
#define PAUSE() ((void)0)
#define WAIT 0
#define WAKE 1
INLINE void futex(int32_t *place, int32_t operation, int32_t value) {
  if (operation == WAIT) __builtin_wasm_memory_atomic_wait32(place, value, -1);
  else __builtin_wasm_memory_atomic_notify(place, (uint32_t)value);
}
/* The page's file holds what is called twice once. */
#define APART __attribute__((noinline))
/* A browser may end a worker in the middle of its part, which nobody else computes then: trap instead of waiting for
   ever. Twice half a minute, as a machine that slept wakes with the first one over. A process has no such threads. */
#define HALF_NS 30000000000
INLINE void sleep_on(int32_t *place, int32_t value) {
  if (__builtin_wasm_memory_atomic_wait32(place, value, HALF_NS) != 2) return;
  if (__builtin_wasm_memory_atomic_wait32(place, value, HALF_NS) == 2) __builtin_trap();
}
#elif defined(__x86_64__)
#define PAUSE() __builtin_ia32_pause()
INLINE long futex(int32_t *place, long operation, long value) {
  register long none __asm__("r10") = 0;
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(202L), "D"(place), "S"(operation), "d"(value), "r"(none)
                   : "rcx", "r11", "memory");
  return result;
}
#elif defined(__aarch64__)
#define PAUSE() __asm__ volatile("yield")
INLINE long futex(int32_t *place, long operation, long value) {
  register long number __asm__("x8") = 98, first __asm__("x0") = (long)place, second __asm__("x1") = operation;
  register long third __asm__("x2") = value, none __asm__("x3") = 0;
  __asm__ volatile("svc 0" : "+r"(first) : "r"(number), "r"(second), "r"(third), "r"(none) : "memory");
  return first;
}
#else
#define PAUSE() __asm__ volatile("yield")
INLINE long futex(int32_t *place, long operation, long value) {
  register long number __asm__("r7") = 240, first __asm__("r0") = (long)place, second __asm__("r1") = operation;
  register long third __asm__("r2") = value, none __asm__("r3") = 0;
  __asm__ volatile("svc 0" : "+r"(first) : "r"(number), "r"(second), "r"(third), "r"(none) : "memory");
  return first;
}
#endif

#if !defined(WAIT)
/* Within one process. */
#define WAIT 128
#define WAKE 129
#define sleep_on(place, value) futex(place, WAIT, value)
#define APART
#endif

int32_t team_threads(const struct team *team) { return team->threads; }

static int32_t stages_of(const int32_t *program) { return STAGES_OF_A_LAYER * program[WORD_LAYERS] + STAGES_AROUND; }

/* Wait until a word is what is wanted. */
static APART void await_done(struct member *member, int32_t *place, int32_t wanted) {
  struct team *team = member->team;
  int32_t looks = member->patience;
  for (;;) {
    int32_t value = LOAD(place);
    if (value == wanted) {
      if (looks > 0) member->patience = least(MOST_PATIENCE, member->patience * 2);
      return;
    }
    if (looks-- > 0) {
      PAUSE();
      continue;
    }
    member->patience = most(LEAST_PATIENCE, member->patience / 2);
    ADD(&team->sleepers, 1);
    sleep_on(place, value);
    ADD(&team->sleepers, -1);
  }
}

static void wake_sleepers(struct team *team, int32_t *place) {
  if (__atomic_load_n(&team->sleepers, __ATOMIC_SEQ_CST)) futex(place, WAKE, 0x7fffffff);
}

/* The next part of a stage of a team, or -1 once all of them are done. */
static int32_t part_of_stage(struct member *member) {
  struct stage *stage = &member->team->stages[member->stage];
  if (LOAD(&stage->taken) < member->parts) {
    int32_t part = ADD(&stage->taken, 1) - 1;
    if (part < member->parts) return part;
  }
  await_done(member, &stage->done, member->parts);
  member->stage++;
  return -1;
}

int32_t take_part(struct member *member, int32_t parts) {
  member->parts = parts;
  return member->team ? part_of_stage(member) : 0;
}

int32_t next_part(struct member *member) {
  if (!member->team) return -1;
  struct stage *stage = &member->team->stages[member->stage];
  if (ADD(&stage->done, 1) == member->parts) wake_sleepers(member->team, &stage->done);
  return part_of_stage(member);
}

static size_t head_bytes(const int32_t *program) {
  return sizeof(struct team) + sizeof(struct stage) * (size_t)stages_of(program);
}

static double own_bytes(const int32_t *program, int32_t context) {
  struct workspace work;
  return own_parts(&work, program, context, (uint8_t *)0);
}

/* What a thread that joined has for itself. */
uint8_t *own_memory(const struct member *member, const int32_t *program, int32_t context) {
  size_t own = (size_t)own_bytes(program, context);
  return (uint8_t *)member->team + head_bytes(program) + own * (size_t)(member->index - 1);
}

/* The size of a team's memory, all zero at first, at a multiple of 64. */
EXPORT double decoder_team_bytes(const int32_t *program, int32_t context, int32_t threads) {
  return (double)head_bytes(program) + own_bytes(program, context) * (double)(threads - 1);
}

/* Let a team have so many threads, the caller of `decoder_run_shared` among them. */
EXPORT void decoder_team_begin(struct team *team, int32_t threads) {
  team->threads = threads;
  team->gate = CLOSED;
}

#if defined(__wasm__)
/* How many threads take part: the caller of `decoder_run_shared`, and those that have come. */
EXPORT int32_t decoder_team_present(const struct team *team) { return 1 + LOAD(&team->joined); }
#endif

/* Let the threads of a team return from `decoder_join`. */
EXPORT void decoder_team_end(struct team *team) {
  __atomic_store_n(&team->has_ended, 1, __ATOMIC_SEQ_CST);
  ADD(&team->call, 1);
  futex(&team->call, WAKE, 0x7fffffff);
}

/* Take part in a team's batches until it ends; `index` is 1 to the number of its threads - 1. */
EXPORT void decoder_join(struct team *team, int32_t index) {
  struct member member = {team, index, 0, 0, 0, LEAST_PATIENCE};
  ADD(&team->joined, 1);
  for (int32_t last = 0; !LOAD(&team->has_ended);) {
    int32_t call = LOAD(&team->call);
    if (call == last) {
      ADD(&team->idle, 1);
      futex(&team->call, WAIT, last);
      ADD(&team->idle, -1);
      continue;
    }
    last = call;
    int32_t inside = LOAD(&team->gate), enters = 0;
    while (!(inside & CLOSED) && !enters)
      enters = __atomic_compare_exchange_n(&team->gate, &inside, inside + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    if (!enters) continue;
    member.stage = 0;
    run_batch(team->batch, &member);
    if (ADD(&team->gate, -1) == CLOSED) wake_sleepers(team, &team->gate);
  }
}

/* Let a team compute a batch. */
void run_shared(struct team *team, const struct batch *batch, struct member *member) {
  for (int32_t i = 0; i < stages_of(batch->program); i++) team->stages[i].taken = team->stages[i].done = 0;
  team->batch = batch;
  member->stage = 0;
  __atomic_store_n(&team->gate, 0, __ATOMIC_SEQ_CST);
  ADD(&team->call, 1);
  if (__atomic_load_n(&team->idle, __ATOMIC_SEQ_CST)) futex(&team->call, WAKE, 0x7fffffff);
  run_batch(batch, member);
  __atomic_fetch_or(&team->gate, CLOSED, __ATOMIC_SEQ_CST);
  await_done(member, &team->gate, CLOSED);
}
#endif
