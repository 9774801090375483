/* Runs the goldens of $prefix on the board, and prints how long a run takes: the serial monitor at 115200 baud. */
#include <$prefix.h>
#include <string.h>

$arrays
$compare
void setup() {
  Serial.begin(115200);
  while (!Serial) {
  }
}

void loop() {
  int wrong = 0, place;
  unsigned long begin, took = 0;
$reset  for (place = 0; place < $count; place++) {
    int differs = 0;
$feeds    begin = micros();
    ${prefix}_run();
    took = micros() - begin;
$checks    wrong += differs;
  }
  Serial.print("$prefix: ");
  Serial.print($count - wrong);
  Serial.print(" of $count goldens as they should be, ");
  Serial.print(took);
  Serial.println(" microseconds for a run");
  delay(5000);
}
