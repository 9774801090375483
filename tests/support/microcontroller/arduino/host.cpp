/* Runs a sketch on this machine: once through `loop`. */
#include <stdio.h>
#include "Arduino.h"

Monitor Serial;
void setup();
void loop();
void Monitor::begin(unsigned long) {}
void Monitor::print(const char *text) { fputs(text, stdout); }
void Monitor::print(int number) { printf("%d", number); }
void Monitor::print(unsigned long number) { printf("%lu", number); }
void Monitor::println(const char *text) { puts(text); }
void delay(unsigned long) {}
unsigned long micros() {
  static unsigned long now = 0;
  return now += 7;
}

int main() {
  setup();
  loop();
  return 0;
}
