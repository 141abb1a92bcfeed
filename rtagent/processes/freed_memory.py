"""Memory that a process frees and soon needs again, kept by the process."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_NEVER = 2**31 - 1


def keep_freed_memory() -> None:
    """Have malloc keep memory that is freed, for all threads of this process.

    By default glibc gives large blocks back to the system and takes fresh ones, which the kernel
    has to clear: for messages of megabytes that takes longer than to fill them, and for a learner
    5 to 20 % of an update. malloc_trim(3) still gives back free memory. Nothing changes where the C
    library has no mallopt(3). The memory kept may exceed what was in use at once, since small
    blocks come to lie between large ones.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, _NEVER)
