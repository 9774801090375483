/* Shows EDGE_INFER_TEST_CPUS processors to a process: cc -shared -fPIC, then LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int shown(void) {
  const char *text = getenv("EDGE_INFER_TEST_CPUS");
  return text ? atoi(text) : 0;
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
  for (int cpu = 0; cpu < shown(); cpu++) CPU_SET_S(cpu, size, set);
  return 0;
}

/* A processor that is not there cannot be chosen. */
int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *set) { (void)pid, (void)size, (void)set; return 0; }
int pthread_setaffinity_np(unsigned long thread, size_t size, const cpu_set_t *set) { (void)thread, (void)size, (void)set; return 0; }
int pthread_getaffinity_np(unsigned long thread, size_t size, cpu_set_t *set) { (void)thread; return sched_getaffinity(0, size, set); }
