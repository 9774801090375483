/* A TFLite delegate that takes no operator. `fail` in its settings is what it says instead of loading. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct Delegate {
  void *data;
  int (*prepare)(void *context, struct Delegate *delegate);
  int (*copy_from)(void *, struct Delegate *, int, void *);
  int (*copy_to)(void *, struct Delegate *, int, void *);
  void (*free_handle)(void *, struct Delegate *, int *);
  int64_t flags;
  void *opaque;
} Delegate;

static int prepare(void *context, Delegate *delegate) {
  (void)context;
  (void)delegate;
  return 0;
}

Delegate *tflite_plugin_create_delegate(char **keys, char **values, int count, void (*report)(const char *)) {
  for (int i = 0; i < count; i++)
    if (strcmp(keys[i], "fail") == 0) {
      report(values[i]);
      return NULL;
    }
  Delegate *made = calloc(1, sizeof *made);
  made->prepare = prepare;
  return made;
}

void tflite_plugin_destroy_delegate(Delegate *delegate) { free(delegate); }
