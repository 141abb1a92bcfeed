/* The fence of ordering.py: `dmb ish` on ARM64; on x86-64 no instruction is needed. */
#include <stdatomic.h>

void rtagent_fence(void) { atomic_thread_fence(memory_order_acq_rel); }
