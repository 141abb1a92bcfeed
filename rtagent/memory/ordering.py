"""The order of loads and stores in shared memory: one fence, which every structure here uses.

Why it is correct. A processor may carry out loads and stores in another order than a program names
them, and other processes see that order. x86-64 keeps loads among loads and stores among stores in
order; ARM64 keeps neither, and Python adds nothing. So order is asked for. `fence` promises: of
what this thread loaded or stored before the call, nothing is carried out after anything that it
stores behind the call, and nothing that it loaded before is loaded after anything behind it. That
is an acquire and a release fence in one; of the four orders it leaves out only that of a store
before a load, which the kernel keeps where it matters here (`wakeup.py`). Two rules follow.

* *Announced* (a word says that contents are there). The writer stores the contents, fence, the
  word. A reader loads the word, fence, the contents: it has them at least as new as the word says.
* *Used again* (contents are replaced while somebody may read them). The writer stores a mark that
  they are going, fence, the contents, fence, the mark that they are there. A reader loads the
  contents, fence, and looks whether the mark is still the one that it knew before; if any of what
  it loaded is newer, then so is the mark (H.-J. Boehm, "Can Seqlocks Get Along with Programming
  Language Memory Models?", MSPC 2012).

Marks and words are aligned 8-byte (in the doorbell 4-byte) numbers, which both processors load and
store in one piece; what was copied together with the contents is never taken for a mark. Where a
record carries a checksum, too, a reader that ignored the rules would leave the record out, and not
believe half of it. Under a `RobustLock` nothing of this is needed: taking it is an acquire, letting
go of it a release, also by death, since the kernel's own lock around it is (`robust_lock.py`).

There are two fences. The compiled one is C11's (`fence.c`): `dmb ish` on ARM64, no instruction on
x86-64. Where there was no compiler, a lock of Python that nobody else knows is let go of and taken
again. Both synchronize memory (POSIX.1-2017, XBD 4.12; CPython uses semaphores or atomic words).
In the words of the Arm Architecture Reference Manual (B2.3, *barrier-ordered-before*): what comes
first in the program is before the store-release with which the lock is let go, that is before the
load-acquire with which it is taken, and that is before all that follows. Taking and then letting go
would not do: both neighbours may move in between.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from rtagent.memory.compiled import compiled_fence


def fence_by_lock() -> None:
    """The fence without a compiler; its lock is new each time, so no two threads meet there."""
    lock = threading.Lock()
    lock.acquire()
    lock.release()
    lock.acquire()


fence: Callable[[], object] = compiled_fence() or fence_by_lock
"""Keeps loads and stores before it from those behind it; called as `ordering.fence()`."""
