/* Runs the goldens of $prefix on the board, and prints how long a run takes: the serial monitor at 115200 baud. */
#include <$prefix.h>
$step_includes#include <string.h>

$arrays
$step_arrays$compare
void setup() {
  Serial.begin(115200);
  while (!Serial) {
  }
}

void loop() {
  int wrong = 0, place$missed;
  unsigned long begin, took = 0;
$reset  for (place = 0; place < $count; place++) {
    int differs = 0;
$classes$feeds    begin = micros();
    ${prefix}_run();
    took = micros() - begin;
$checks$step_checks    wrong += differs;
  }
$step_lines  Serial.print("$prefix: ");
  Serial.print($count - wrong);
  Serial.print(" of $count goldens as they should be, ");
  Serial.print(took);
  Serial.println(" microseconds for a run");
$step_printed  delay(5000);
}
