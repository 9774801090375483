/* Runs $prefix on files of numpy: ./$prefix < in.npy > out.npy. Several inputs or outputs follow one another. */
#include "$prefix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what) {
  fprintf(stderr, "$prefix: %s\n", what);
  exit(1);
}

/* Read an array of one type in C order: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
static void read_array(void *to, const char *type, size_t size, size_t count) {
  unsigned char start[12];
  char text[4096];
  size_t length, more = 0;
  if (fread(start, 1, 10, stdin) != 10 || memcmp(start, "\x93NUMPY", 6) != 0) fail("expected a .npy file on stdin");
  length = start[8] | (size_t)start[9] << 8;
  if (start[6] > 1) {
    if (fread(start + 10, 1, 2, stdin) != 2) fail("the .npy file ends too soon");
    more = start[10] | (size_t)start[11] << 8;
  }
  if (more != 0 || length >= sizeof text || fread(text, 1, length, stdin) != length) fail("the .npy header is no header");
  text[length] = 0;
  if (!strstr(text, type)) {
    fprintf(stderr, "$prefix: expected an array of %s, got %s", type, text);
    exit(1);
  }
  if (strstr(text, "'fortran_order': True")) fail("expected an array in C order");
  if (fread(to, size, count, stdin) != count) fail("the array has fewer elements than the input");
}

static void write_array(const void *from, const char *type, const char *shape, size_t size, size_t count) {
  char text[4096];
  int length = snprintf(text, sizeof text, "{'descr': %s, 'fortran_order': False, 'shape': (%s), }", type, shape);
  int padded = (length + 1 + 10 + 63) / 64 * 64 - 10;
  if (length < 0 || padded >= (int)sizeof text) fail("the shape of an output is too long");
  memset(text + length, ' ', (size_t)(padded - length));
  text[padded - 1] = '\n';
  fwrite("\x93NUMPY\x01\x00", 1, 8, stdout);
  putchar(padded & 255);
  putchar(padded >> 8);
  fwrite(text, 1, (size_t)padded, stdout);
  if (fwrite(from, size, count, stdout) != count) fail("the output was not written");
}

int main(void) {
$reset$reads  if (getchar() != EOF) fail("more follows the inputs");
  ${prefix}_run();
$writes  return fflush(stdout) != 0;
}
