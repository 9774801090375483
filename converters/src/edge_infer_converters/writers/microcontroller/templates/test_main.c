/* Runs the goldens of $prefix: returns 0 where every output is as it should be. */
#include "$prefix.h"
$step_includes
#include <stdio.h>
#include <string.h>

$arrays
$step_arrays$compare
int main(void) {
  int wrong = 0, place$missed;
$reset  for (place = 0; place < $count; place++) {
    int differs = 0;
$classes$feeds    ${prefix}_run();
$checks$step_checks    if (differs) printf("golden %d differs\n", place);
    wrong += differs;
  }
$step_lines  printf("$prefix: %d of $count goldens as they should be\n", $count - wrong);
  $step_said  return wrong$failed != 0;
}
