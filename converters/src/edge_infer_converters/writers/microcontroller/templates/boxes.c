/* The objects that ${prefix}.c finds, by edge-infer: format `$format` of the step post.boxes. */
#include "${prefix}_boxes.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "${prefix}.h"

#define COUNT INT32_C($count)
$defines
typedef $real real;
typedef struct ${prefix}_box box;
$labels
$tables
/* Tell whether the model sees an object at a place, of which score and class. What is not a number is none. */
static int is_object(int32_t place, real *score, int *label) {
$score}

static void set_corners(box *made, double x, double y, double width, double height) {
  made->left = (real)(x - width / 2);
  made->top = (real)(y - height / 2);
  made->right = (real)(x + width / 2);
  made->bottom = (real)(y + height / 2);
}

/* The box of a place, in pixels of the model's input. */
static void decode(int32_t place, box *made) {
$decode}
$chosen
