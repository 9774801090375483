/* Runs the goldens of $prefix: returns 0 where every output is as it should be. */
#include "$prefix.h"

#include <stdio.h>
#include <string.h>

$arrays
$compare
int main(void) {
  int wrong = 0, place;
$reset  for (place = 0; place < $count; place++) {
    int differs = 0;
$feeds    ${prefix}_run();
$checks    if (differs) printf("golden %d differs\n", place);
    wrong += differs;
  }
  printf("$prefix: %d of $count goldens as they should be\n", $count - wrong);
  return wrong != 0;
}
