/* Shows a process as many processors as EDGE_INFER_TEST_CPUS says: `make cpus` builds it and sets LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static cpu_set_t chosen;

static int shown(void) {
  const char *text = getenv("EDGE_INFER_TEST_CPUS");
  return text ? atoi(text) : 1;
}

int get_nprocs(void) { return shown(); }
int get_nprocs_conf(void) { return shown(); }

long sysconf(int name) {
  static long (*next)(int);
  if (name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF) return shown();
  if (!next) next = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
  return next(name);
}

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set) {
  (void)pid;
  memset(set, 0, size);
  for (int cpu = 0; cpu < shown(); cpu++)
    if (!CPU_COUNT(&chosen) || CPU_ISSET(cpu, &chosen)) CPU_SET_S(cpu, size, set);
  return 0;
}

/* The choice always succeeds, although most of these processors are not there. */
int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *set) {
  int (*next)(pid_t, size_t, const cpu_set_t *) = (int (*)(pid_t, size_t, const cpu_set_t *))dlsym(RTLD_NEXT, "sched_setaffinity");
  next(pid, size, set);
  if (pid == 0) memcpy(&chosen, set, size < sizeof chosen ? size : sizeof chosen);
  return 0;
}

int pthread_setaffinity_np(unsigned long thread, size_t size, const cpu_set_t *set) {
  (void)thread, (void)size, (void)set;
  return 0;
}
