"""Surviving a lack of memory: recognise its errors, give back unused memory, measure peaks.

torch reports a failed allocation on the CPU as a plain `RuntimeError`, so its text decides. All
unused memory can be given back if malloc has one arena, as in every worker (`processes/launch.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path

import torch

from rtagent.memory.arena import available_memory
from rtagent.memory.usage import LEAST_FREE_BYTES

SAMPLING_S = 0.0005
_RESET_PEAK = "5"
"""Written to `clear_refs`, it resets the peak (man 5 proc)."""
_TEXTS = (
    "can't allocate memory", "not enough memory", "cannot allocate memory",
    "could not create a memory object", "out of memory", "bad_alloc",
    "alloc_failed", "allocation_failed",
)
"""What errors of torch, oneDNN, the C++ library, cuBLAS and cuDNN say of a lack of memory."""
_NO_PRIMITIVE = "could not create a primitive"
"""The whole message of oneDNN if it gets no memory for the code of an operation. An operation that
it does not support fails with a longer message (`... primitive descriptor for ...`)."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that an allocation failed, on the processor or on a GPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and (
        text == _NO_PRIMITIVE or any(part in text for part in _TEXTS)
    )


def release() -> None:
    """Give memory that is not in use back to the system."""
    gc.collect()
    _empty_caches()


def _empty_caches() -> None:
    """Give back what malloc and torch keep for later."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        # What a failed update has begun may still read memory that is free by now.
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        _release_pinned()


def _release_pinned() -> None:
    """Give back pinned memory of the host, which torch keeps in a cache of its own.

    torch has a public function for it only since 2.13, and none before 2.5.
    """
    release = getattr(torch.accelerator, "empty_host_cache", None)
    release = release or getattr(torch._C, "_host_emptyCache", None)
    if release is not None:
        release()


def ask_for(count: int) -> None:
    """Make sure that so many bytes could be allocated and used, without using any.

    If they could not, unused memory is given back first.

    Raises:
        MemoryError: so many bytes cannot be had.
    """
    try:
        _map(count)
    except OSError:
        release()
        try:
            _map(count)
        except OSError as error:
            raise MemoryError(f"{count} bytes cannot be had: {error.strerror}") from error


def _map(count: int) -> None:
    mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    # The kernel promises more than there is, and ends the process that uses it. As much as
    # `r3/pressure.py` keeps free is there: to look takes longer than an update of a small network.
    if count > LEAST_FREE_BYTES and count > available_memory():
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))


def measure_peak(run: Callable[[], object], process: Path = Path("/proc/self")) -> int:
    """The memory that a call needs at its peak, beyond what the process had before.

    Memory that malloc and torch keep for later is given back first: it counts if the call uses it.
    The kernel records the peak; if it may not be reset, a thread samples every half millisecond.

    Args:
        run: the call; it should have run once before, so that what it keeps is allocated.
        process: the folder of this process in /proc.

    Returns:
        Bytes, at least 0; pages of shared memory that the call touches for the first time count.
    """
    _empty_caches()
    try:
        (process / "clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return _sampled_peak(run, process)
    before = _status(process, "VmRSS")
    run()
    return max(0, _status(process, "VmHWM") - before)


def _sampled_peak(run: Callable[[], object], process: Path) -> int:
    before = _status(process, "VmRSS")
    peak, over = before, threading.Event()

    def sample() -> None:
        nonlocal peak
        while not over.wait(SAMPLING_S):
            peak = max(peak, _status(process, "VmRSS"))

    thread = threading.Thread(target=sample, name="rtagent-peak", daemon=True)
    thread.start()
    try:
        run()
        with contextlib.suppress(OSError):
            peak = max(peak, _status(process, "VmRSS"))
    finally:
        over.set()
        thread.join()
    return peak - before


def _status(process: Path, name: str) -> int:
    """A field of /proc/<pid>/status, in bytes."""
    for line in (process / "status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * 1024
    raise OSError(f"{process}/status has no {name}")
