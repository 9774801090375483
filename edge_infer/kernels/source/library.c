/* What a shared library has besides the kernels. */
#include <stddef.h>
#include "vectors.h"

#if !defined(__wasm__)
typedef void (*kernel)(uint8_t *image, const void *arguments);

__attribute__((visibility("default"))) int32_t edge_infer_kernels_abi(void) { return KERNELS_ABI; }

/* Run the calls of a program: pairs of a kernel's address and its arguments' address. */
__attribute__((visibility("default"))) void edge_infer_run(uint8_t *image, const uintptr_t *calls, int32_t count) {
  for (int32_t i = 0; i < count; i++) ((kernel)calls[2 * i])(image, (const void *)calls[2 * i + 1]);
}
#endif

/* The compiler may call these, and there is no C library. */
void *memset(void *to, int value, size_t count) {
  volatile uint8_t *bytes = to;
  for (size_t i = 0; i < count; i++) bytes[i] = (uint8_t)value;
  return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t count) {
  volatile uint8_t *bytes = to;
  for (size_t i = 0; i < count; i++) bytes[i] = ((const uint8_t *)from)[i];
  return to;
}
