/* What a sketch takes of Arduino's core, for compilers alone: on a host, `Serial` prints. */
#pragma once
#include <stdint.h>
#include <string.h>

struct Monitor {
  void begin(unsigned long baud);
  explicit operator bool() { return true; }
  void print(const char *text);
  void print(int number);
  void print(unsigned long number);
  void println(const char *text);
};
extern Monitor Serial;
void delay(unsigned long ms);
unsigned long micros();
