"""A doorbell in shared memory: wake the processes that wait for the next frame.

Why it is correct. The bell is a 32-bit count in shared memory. A sleeper reads the count, checks
the condition it waits for, and asks the kernel (futex) to sleep only if the count is still what it
read: a ring between the check and the sleep makes the call return at once, so no wake-up is lost.
The ringer stores what was waited for, fence, the count; the sleeper loads the count, fence, looks
(`ordering.py`). The kernel sees to the rest: the count is stored before it looks for sleepers, and
the sleeper is on its list before it compares the count once more.
Every sleep has a time limit, so a ringer that dies delays nobody for ever. Nobody spins: where the
kernel's call cannot be made, a sleeper looks again every `LOOK_S`.
"""

from __future__ import annotations

import ctypes
import errno
import platform
from collections.abc import Callable

from rtagent.clock import Clock
from rtagent.memory import ordering

_FUTEX_WAIT = 0
_FUTEX_WAKE = 1
_EVERYBODY = 2**31 - 1
_SYS_FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98}.get(platform.machine(), -1)
"""The number of the kernel's call; -1 is that of none."""
_AWAKE = (errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT)
"""How a sleep ends that nobody ends by ringing."""
LOOK_S = 0.001
"""Time between two looks at the condition where the kernel's call cannot be used."""


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class Doorbell:
    """A futex word that one process rings and others wait for.

    Args:
        buffer: shared memory.
        offset: where the 4-byte word lies; a multiple of 4.
    """

    def __init__(self, buffer: memoryview, offset: int) -> None:
        # Read and written in one piece; `struct.pack_into` would zero it first.
        self._word = ctypes.c_uint32.from_buffer(buffer, offset)
        self._address = ctypes.c_void_p(ctypes.addressof(self._word))
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall

    def ring(self) -> None:
        """Count up and wake all sleepers. Only the bell's one writer."""
        ordering.fence()
        self._word.value += 1
        self._syscall(_SYS_FUTEX, self._address, _FUTEX_WAKE, _EVERYBODY, None, None, 0)

    def wait_for(self, condition: Callable[[], bool], clock: Clock, timeout: float) -> bool:
        """Sleep until the condition holds.

        Args:
            condition: looked at after every ring.
            clock: measures the time limit.
            timeout: seconds.

        Returns:
            Whether the condition holds.
        """
        deadline = clock.now() + timeout
        while True:
            count = self._word.value
            ordering.fence()
            if condition():
                return True
            rest = deadline - clock.now()
            if rest <= 0:
                return False
            limit = _Timespec(int(rest), int(rest % 1.0 * 1e9))
            ended = self._syscall(
                _SYS_FUTEX, self._address, _FUTEX_WAIT, ctypes.c_uint32(count),
                ctypes.byref(limit), None, 0,
            )
            if ended and ctypes.get_errno() not in _AWAKE:
                clock.sleep_until(clock.now() + min(rest, LOOK_S))
