/* The start of a Cortex-M4 in QEMU (mps2-an386): the first words of its memory, and newlib's start. */
#include <stdint.h>

extern uint32_t stack_top;
void _start(void);
void start(void);

void start(void) {
#if defined(__ARM_FP)
  *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* CPACR: let the program use the floating-point unit */
#endif
  _start();
}

struct vectors { uint32_t *stack; void (*start)(void); };

__attribute__((section(".vectors"), used)) static const struct vectors vectors = {&stack_top, start};
