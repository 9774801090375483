/* Run a compiled model's calls: an image and its calls from stdin, the image to stdout. The table of kernels is made by
   the test. */
#include <stdint.h>
#include <stdio.h>
#include "table.h"

#define MOST (1 << 23)
#define CALLS 4096
static uint8_t memory[MOST] __attribute__((aligned(16)));
static uint32_t calls[2 * CALLS]; /* each kernel's number, and where its arguments lie */

int main(void) {
  uint32_t sizes[2]; /* the bytes of the image, the number of calls */
  if (fread(sizes, sizeof sizes, 1, stdin) != 1 || sizes[0] > MOST || sizes[1] > CALLS) return 2;
  if (fread(calls, 8, sizes[1], stdin) != sizes[1] || fread(memory, 1, sizes[0], stdin) != sizes[0]) return 3;
  for (uint32_t i = 0; i < sizes[1]; i++) KERNEL_TABLE[calls[2 * i]](memory, memory + calls[2 * i + 1]);
  return fwrite(memory, 1, sizes[0], stdout) == sizes[0] ? 0 : 4;
}
