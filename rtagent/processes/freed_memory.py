"""Memory that a process frees and soon needs again, kept by the process."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_NEVER = 2**31 - 1


def keep_freed_memory() -> None:
    """Have malloc keep what is freed, up to what was once needed, for all threads of this process.

    By default glibc gives large blocks back to the system and takes fresh ones, which the kernel
    has to clear: for messages of megabytes that takes longer than to fill them, and for a learner
    5 to 20 % of an update. malloc_trim(3) still gives back what is free. A C library without
    mallopt(3) stays as it is. Of blocks of one size several may be kept, for small blocks come to
    lie between them.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, _NEVER)
