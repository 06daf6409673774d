/* Makes memory run out: allocations of this thread fail on demand, those of libraries included, except OpenBLAS. */
#ifndef FB_TESTS_CHAOS_H
#define FB_TESTS_CHAOS_H

#include <stdbool.h>

/* `count` more allocations succeed; every later one fails until chaos_off. */
void chaos_fail_after(long count);
/* `count` more allocations succeed, the next one fails, and all later ones succeed again. */
void chaos_fail_once(long count);
/* Back to normal; true if an allocation failed. So a test of every allocation is
 * for (long k = 0;; k += fault_step()) { chaos_fail_after(k); …; if (!chaos_off()) break; } */
bool chaos_off(void);

/* How far from one fault to the next: 1, for every one, or FOLDBACK_FAULT_STEP. */
long fault_step(void);

#endif
