#include "${prefix}_classes.h"

#include "${prefix}.h"
$labels
int ${prefix}_top_k(int count, int *classes) {
  const $kind *scores = ${output}();
  int found, i;
  for (found = 0; found < count && found < ${upper}_CLASSES; found++) {
    int best = -1, last = found ? classes[found - 1] : -1;
    for (i = 0; i < ${upper}_CLASSES; i++) {
      int is_left = last < 0 || scores[i] < scores[last] || (scores[i] == scores[last] && i > last);
      if (is_left && (best < 0 || scores[i] > scores[best])) best = i;
    }
    if (best < 0) break;
    classes[found] = best;
  }
  return found;
}
